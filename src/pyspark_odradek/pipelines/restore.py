"""`restore`: an archive becomes a topic again, its records in their partitions and in their order.

Keys, values, headers and timestamps are kept. Offsets are too when the archive begins where
the topic does and compaction left no holes; otherwise the archive gets a map from old offsets
to new ones, as stretches that moved together:

    _restored/orders-again.json   [{"partition": 0, "start": 120, "to": 0, "records": 500}, ...]

Groups that had committed offsets when the archive was written get theirs in the restored topic
(`groups`), so that their consumers go on at the same record.

The topic is created when it is not there, and has to be empty when it is: who restores over
records would have both. A restore that failed half way is begun again with a new topic.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from pyspark_odradek.pipelines.audit import compare_files, spans_of
from pyspark_odradek.pipelines.bookkeeping import groups
from pyspark_odradek.pipelines.bookkeeping.manifest import ArchivedFile, Manifest
from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.ends.snapshots import topic_spans
from pyspark_odradek.pipelines.ends.topics import create_topic
from pyspark_odradek.pipelines.running.jobs import OnceJob, Outcome
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

RESTORED: Final = "_restored"
_KEPT: Final = ("key", "value", "headers", "timestamp", "partition")


def build(spark: SparkSession, settings: PipelineSettings) -> OnceJob:
    """The restore as a job.

    Raises:
        PipelineError: no archive is named.
    """
    archive = settings.source
    if archive is None:
        raise PipelineError("restore needs the directory of an archive (--from DIR)")
    return OnceJob(lambda: restore(spark, settings, archive))


def restore(spark: SparkSession, settings: PipelineSettings, archive: str) -> Outcome:
    """Writes the archive to the topic; there are no findings, only errors.

    Raises:
        PipelineError: there is no archive, it is damaged, or the topic cannot take it.
    """
    manifest = Manifest(spark, archive)
    files = manifest.files()
    if not files:
        raise PipelineError(f"{archive} is no archive: it has no manifest")
    for finding in compare_files(files, manifest.checksums(archive)):
        raise PipelineError(f"the archive is damaged: {finding}")
    spans = spans_of(files)
    topics = {part.topic for part in spans}
    if len(topics) != 1:
        raise PipelineError(f"the archive is of several topics: {', '.join(sorted(topics))}")
    prepare_topic(settings, 1 + max(part.partition for part in spans))
    records = manifest.frame(files)
    write(records, settings, len(spans))
    check_written(settings, files)
    stretches = [row.asDict() for row in moved(records).collect()]
    root = archive.rstrip("/")
    FileSystem(spark).replace(f"{root}/{RESTORED}/{settings.topic}.json", json.dumps(stretches))
    facts: dict[str, object] = {"records": sum(p.records for file in files for p in file.ranges)}
    if settings.groups is not None:
        found = chosen(groups.kept_in(spark, root), settings.groups)
        groups.commit(settings.bootstrap_servers, settings.topic, translated(found, stretches))
        facts["groups"] = len(found)
    return Outcome(facts=facts)


def chosen(kept: groups.Groups, wanted: str) -> groups.Groups:
    """The groups of an archive that are wanted: `all`, or names between commas.

    Raises:
        PipelineError: the archive does not know one.
    """
    names = list(kept) if wanted == "all" else [name.strip() for name in wanted.split(",")]
    for name in names:
        if name not in kept:
            raise PipelineError(
                f"the archive has no group {name}, only {', '.join(kept) or 'none'}"
            )
    return {name: kept[name] for name in names}


def translated(kept: groups.Groups, stretches: Sequence[dict[str, Any]]) -> groups.Groups:
    """Where groups go on in the restored topic."""
    return {
        name: {part: new_offset(stretches, part, offset) for part, offset in offsets.items()}
        for name, offsets in kept.items()
    }


def prepare_topic(settings: PipelineSettings, partitions: int) -> None:
    """Makes sure that the topic is there and empty.

    Raises:
        PipelineError: it has records, or too few partitions, or cannot be created.
    """
    there = topic_spans(settings)
    if not there:
        create_topic(settings.bootstrap_servers, settings.topic, partitions)
        return
    filled = [part for part, span in there.items() if span.end > 0]
    if filled:
        raise PipelineError(f"{filled[0]} has, or had, records: restore to a new topic")
    if len(there) < partitions:
        raise PipelineError(
            f"{settings.topic} has {len(there)} partitions, the archive {partitions}"
        )


def write(records: DataFrame, settings: PipelineSettings, partitions: int) -> None:
    """Writes records so that those of a partition come from one task, in their order."""
    ordered = records.repartition(partitions, "partition").sortWithinPartitions(
        "partition", "offset"
    )
    writer = ordered.select(*_KEPT).write.format("odradek").mode("append")
    writer = writer.option("kafka.bootstrap.servers", settings.bootstrap_servers)
    writer.option("topic", settings.topic).option("keepTimestamps", "true").save()


def check_written(settings: PipelineSettings, files: Iterable[ArchivedFile]) -> None:
    """Checks that every partition has as many records as its archive.

    Raises:
        PipelineError: it has more, since Spark repeated a task, or somebody else wrote to it.
    """
    wanted: dict[int, int] = {}
    for piece in (piece for file in files for piece in file.ranges):
        wanted[piece.partition] = wanted.get(piece.partition, 0) + piece.records
    for part, span in topic_spans(settings).items():
        if span.end != wanted.get(part.partition, 0):
            raise PipelineError(
                f"{part} has {span.end} records and its archive {wanted.get(part.partition, 0)}: "
                "a task was repeated, or somebody else wrote to it; restore to a new topic"
            )


def moved(records: DataFrame) -> DataFrame:
    """Stretches of offsets that moved together: where they begin, and where they are now."""
    place = f.row_number().over(Window.partitionBy("partition").orderBy("offset")) - 1
    placed = records.select("partition", "offset").withColumn("place", place)
    return (
        placed.groupBy("partition", (f.col("offset") - f.col("place")).alias("shift"))
        .agg(
            f.min("offset").alias("start"),
            f.min("place").alias("to"),
            f.count("*").alias("records"),
        )
        .drop("shift")
        .orderBy("partition", "start")
    )


def new_offset(stretches: Iterable[dict[str, Any]], partition: int, offset: int) -> int:
    """Where a reader that was at `offset` goes on in the restored topic."""
    found = 0
    for stretch in stretches:
        if stretch["partition"] == partition and stretch["start"] <= offset:
            found = stretch["to"] + min(offset - stretch["start"], stretch["records"])
    return found
