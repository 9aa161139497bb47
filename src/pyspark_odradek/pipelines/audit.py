"""`audit`: is the archive what was written, and is it what the topic has?

Three questions, each a list of findings; none is the answer that all is well:

- the files: each is there, with the size and the SHA-256 that the manifest has; the manifest
  itself has every batch, and is as it was written, and so is what is written of the topic;
- the offsets: none is there twice, and nothing is missing that Spark knows to be done;
- the topic: where both have offsets, they have the same records, by partition and hour. Of a topic
  that is compacted, which loses records that the archive has kept, every record is in the archive.

Offsets without a record are in the topic as well, be it that compaction made them or transactions,
so they are told of only where the topic has records. What the topic has deleted since, or got
since, is not compared. Files of no batch are what a killed run has left: a fact, and no finding.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek.model import TopicPartition
from pyspark_odradek.pipelines.bookkeeping.described import describe, kept_in
from pyspark_odradek.pipelines.bookkeeping.manifest import (
    Archived,
    ArchivedFile,
    FileRange,
    Manifest,
    on_archive,
)
from pyspark_odradek.pipelines.ends.batches import CHECKPOINT
from pyspark_odradek.pipelines.ends.checkpoints import Checkpoint
from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.ends.snapshots import Span, read_spans, topic_spans
from pyspark_odradek.pipelines.running.jobs import OnceJob, Outcome
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

_CONTENT: Final = ("key", "value", "headers", "timestamp", "timestampType", "offset")


def build(spark: SparkSession, settings: PipelineSettings) -> OnceJob:
    """The audit as a job.

    Raises:
        PipelineError: no archive is named.
    """
    directory = settings.archive("audit")
    checkpoint = Checkpoint(FileSystem(spark), settings.checkpoint or f"{directory}/{CHECKPOINT}")

    def run() -> Outcome:
        # Before the manifest is read, which has what was done by then: an archive may go on.
        work = partial(audit, spark, settings, checkpoint.last_commit())
        return on_archive(spark, directory, work).run()

    return OnceJob(run)


def audit(
    spark: SparkSession,
    settings: PipelineSettings,
    done: int,
    manifest: Manifest,
    archived: Archived,
) -> Outcome:
    """Every finding, a line each; `done` is the last batch that Spark knew to be done before.

    Raises:
        PipelineError: what the archive says of itself is damaged.
    """
    files, directory = archived.files, manifest.table.directory
    kept = kept_in(spark, directory)
    facts: dict[str, object] = {"files": len(files), "records": sum(_records_of(files))}
    if unnamed := manifest.table.unnamed(archived.snapshot):
        facts["files of no batch"] = len(unnamed)
    damaged = list(compare_files(files, manifest.checksums(file.path for file in files)))
    if damaged:
        # Spark would fail on some of them, and what it read would be in doubt.
        return Outcome(damaged, facts)
    findings = list(compare_ranges(files))
    findings += missing_batches(archived.snapshot.last_batch, done)
    if len({part.topic for part in spans_of(files)}) > 1:
        raise PipelineError(f"{directory} is of several topics")
    # The topic may have another name, as one has that was restored.
    settings = replace(settings, isolation_level=kept.isolation_level)
    there = topic_spans(settings)
    if not there:
        findings.append(f"there is no topic {settings.topic} to compare the archive with")
    read = {TopicPartition(settings.topic, p.partition): s for p, s in read_up_to(archived)}
    common = {part: both for part, span in read.items() if (both := span & there.get(part))}
    if common:
        records = manifest.frame(files).withColumn("topic", f.lit(settings.topic))
        ours, theirs = _within(records, common), read_spans(spark, settings, common)
        if describe(settings.brokers, settings.topic).is_compacted:
            findings.extend(compare_each(ours, theirs))
        else:
            findings.extend(compare_hours(by_hour(ours).collect(), by_hour(theirs).collect()))
    facts["offsets compared with the topic"] = sum(s.end - s.start for s in common.values())
    return Outcome(findings, facts)


def missing_batches(last: int, done: int) -> Iterator[str]:
    """Batches that Spark knows to be done, behind the last one of the manifest."""
    for number in range(last + 1, done + 1):
        yield f"batch {number} is done, and not in the manifest"


def read_up_to(archived: Archived) -> Iterator[tuple[TopicPartition, Span]]:
    """The end of the read part of each partition: records below it that still exist have to be in
    the archive.

    From its beginning, whatever that was then: it has not come down since.
    """
    with_records, ends = spans_of(archived.files), archived.ends
    for part in sorted({*with_records, *ends}):
        last = with_records[part].end if part in with_records else 0
        yield part, Span(0, max(ends.get(part, 0), last))


def compare_each(archived: DataFrame, topic: DataFrame) -> Iterator[str]:
    """Records of a topic that are not in the archive as they are, by partition."""
    ours, theirs = _contents(archived), _contents(topic)
    missing = theirs.join(ours, ["topic", "partition", "offset", "content"], "left_anti")
    for row in missing.groupBy("topic", "partition").count().orderBy("partition").collect():
        yield f"{row.topic}-{row.partition}: {row['count']} records of the topic are not there"
    twice = ours.groupBy("topic", "partition", "offset").count().where("count > 1")
    for row in twice.groupBy("topic", "partition").count().orderBy("partition").collect():
        yield f"{row.topic}-{row.partition}: {row['count']} records are in the archive twice"


def _contents(records: DataFrame) -> DataFrame:
    content = f.xxhash64(*_CONTENT).alias("content")
    return records.select("topic", "partition", "offset", content)


def compare_files(
    files: Iterable[ArchivedFile], found: Mapping[str, tuple[int, str]]
) -> Iterator[str]:
    """Compares the files with the manifest."""
    for file in files:
        if file.path not in found:
            yield f"{file.path}: the file is gone"
        elif found[file.path] != (file.bytes, file.sha256):
            yield f"{file.path}: the file is not what was written, by its size or checksum"


def compare_ranges(files: Collection[ArchivedFile]) -> Iterator[str]:
    """Whether more records are said to be in a stretch of offsets than fit."""
    counts = records_by_partition(files)
    for part, span in spans_of(files).items():
        if counts[part] > span.end - span.start:
            yield f"{part}: {counts[part]} records at {span.end - span.start} offsets"


def records_by_partition(files: Iterable[ArchivedFile]) -> dict[TopicPartition, int]:
    """How many records of every partition are in files."""
    counts: dict[TopicPartition, int] = {}
    for piece in (piece for file in files for piece in file.ranges):
        part = TopicPartition(piece.topic, piece.partition)
        counts[part] = counts.get(part, 0) + piece.records
    return counts


def spans_of(files: Iterable[ArchivedFile]) -> dict[TopicPartition, Span]:
    """From where to where every partition is archived."""
    pieces: dict[TopicPartition, list[FileRange]] = {}
    for piece in (piece for file in files for piece in file.ranges):
        pieces.setdefault(TopicPartition(piece.topic, piece.partition), []).append(piece)
    return {
        part: Span(min(p.start for p in each), max(p.end for p in each))
        for part, each in sorted(pieces.items())
    }


def by_hour(records: DataFrame) -> DataFrame:
    """Counts, different offsets, and a sum over the content of all rows, of every hour."""
    return records.groupBy(
        "topic", "partition", f.date_trunc("hour", "timestamp").cast("string").alias("hour")
    ).agg(
        f.count("*").alias("records"),
        f.count_distinct("offset").alias("offsets"),
        # A sum does not depend on the order, and unlike xor it sees a row that is there twice.
        f.sum(f.xxhash64(*_CONTENT).cast("decimal(38,0)")).alias("content"),
    )


def compare_hours(archived: Iterable[Any], topic: Iterable[Any]) -> Iterator[str]:
    """Where the rows of `by_hour` differ."""
    ours = {(row.topic, row.partition, row.hour): row for row in archived}
    theirs = {(row.topic, row.partition, row.hour): row for row in topic}
    for name in sorted(ours.keys() | theirs.keys()):
        where = f"{name[0]}-{name[1]} {name[2]}"
        here, there = ours.get(name), theirs.get(name)
        counts = [row.records if row is not None else 0 for row in (here, there)]
        if here is not None and here.records != here.offsets:
            yield f"{where}: {here.records - here.offsets} records are in the archive twice"
        elif counts[0] != counts[1]:
            yield f"{where}: {counts[0]} records in the archive, {counts[1]} in the topic"
        elif here is not None and there is not None and here.content != there.content:
            yield f"{where}: {counts[0]} records in both, and they are not the same"


def _records_of(files: Iterable[ArchivedFile]) -> Iterator[int]:
    return (piece.records for file in files for piece in file.ranges)


def _within(records: DataFrame, spans: Mapping[TopicPartition, Span]) -> DataFrame:
    wanted = f.lit(False)
    for part, span in spans.items():
        wanted = wanted | (
            (f.col("topic") == part.topic)
            & (f.col("partition") == part.partition)
            & f.col("offset").between(span.start, span.end - 1)
        )
    return records.where(wanted)
