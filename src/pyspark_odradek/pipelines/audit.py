"""`audit`: compares an archive with its manifest and with the topic.

It checks three things; without findings all is well:

- the files: each exists, with the size and the SHA-256 of the manifest; the manifest has every
  batch, and it and the description of the topic are unchanged;
- the offsets: none occurs twice, and no batch is missing that Spark has completed;
- the topic: where both have offsets, every record of the topic is in the archive once, unchanged.
  An archive may have more, since a topic loses records to compaction, retention and deletion: a
  fact, not a finding.

A topic also has offsets without records, after compaction or transactions, so missing offsets are
reported only where the topic has records. Later records of the topic are not compared. Files of no
batch are leftovers of a killed run: a fact, not a finding.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek.model import TopicPartition
from pyspark_odradek.pipelines.bookkeeping.described import kept_in
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
from pyspark_odradek.pipelines.ends.hours import utc_date, utc_hour
from pyspark_odradek.pipelines.ends.snapshots import (
    Span,
    is_there,
    no_topic,
    of_partition,
    read_spans,
    topic_spans,
)
from pyspark_odradek.pipelines.running.jobs import OnceJob, Outcome
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

_PLACE: Final = ("topic", "partition", "offset")
_IS_FOUND: Final = "missing > 0 OR changed > 0 OR twice > 0"


def build(spark: SparkSession, settings: PipelineSettings) -> OnceJob:
    """The audit as a job.

    Raises:
        PipelineError: no archive is named.
    """
    directory = settings.archive("audit")
    checkpoint = Checkpoint(FileSystem(spark), settings.checkpoint or f"{directory}/{CHECKPOINT}")

    def run() -> Outcome:
        # Read before the manifest, which then has at least these batches: the archive may grow
        # meanwhile.
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
    """Returns all findings, a line each; `done` is the last batch that Spark had completed before.

    Raises:
        PipelineError: the archive's own documents are damaged.
    """
    files, directory = archived.files, manifest.table.directory
    kept = kept_in(spark, directory)
    facts: dict[str, object] = {"files": len(files), "records": sum(_records_of(files))}
    if unnamed := manifest.table.unnamed(archived.snapshot):
        facts["files of no batch"] = len(unnamed)
    damaged = list(compare_files(files, manifest.checksums(file.path for file in files)))
    if damaged:
        # Spark would fail on some of them, and its results would be in doubt.
        return Outcome(damaged, facts)
    findings = list(missing_batches(archived.snapshot.last_batch, done))
    if len({part.topic for part in spans_of(files)}) > 1:
        raise PipelineError(f"{directory} has several topics")
    if settings.path is not None and kept.isolation_level == "read_committed":
        raise PipelineError(
            f"{directory} has committed records only, which cannot be told from others in "
            "segments: leave out --data-dir"
        )
    # The topic may have another name, as one has that was restored.
    settings = replace(settings, isolation_level=kept.isolation_level)
    there = topic_spans(settings)
    read = {TopicPartition(settings.topic, p.partition): s for p, s in read_up_to(archived)}
    common = {part: both for part, span in read.items() if (both := span & there.get(part))}
    records = manifest.frame(files).withColumn("topic", f.lit(settings.topic))
    findings += doubled(records.where(~is_within(common)))
    if common:
        # What the topic loses from now on is what it has no longer, and no failure.
        theirs = read_spans(spark, settings, common, failOnDataLoss="false")
        ours = records.where(is_within(common))
        if sums(ours) != sums(theirs):
            found, gone = compared(ours, theirs)
            findings += found
            facts["records that the topic has no longer"] = gone
    # Asked last: one that is deleted meanwhile has lost everything, and that is no failure above.
    if not is_there(settings):
        findings.append(str(no_topic(settings, " to compare the archive with")))
    facts["offsets compared with the topic"] = sum(s.end - s.start for s in common.values())
    return Outcome(findings, facts)


def missing_batches(last: int, done: int) -> Iterator[str]:
    """Returns batches that Spark has completed, after the last one of the manifest."""
    for number in range(last + 1, done + 1):
        yield f"batch {number} is done, and not in the manifest"


def read_up_to(archived: Archived) -> Iterator[tuple[TopicPartition, Span]]:
    """Returns the end of the archived part of each partition: records below it that still exist
    must be in the archive.

    The start of a partition never decreases, so the archive's own start does not matter.
    """
    with_records, ends = spans_of(archived.files), archived.ends
    for part in sorted({*with_records, *ends}):
        last = with_records[part].end if part in with_records else 0
        yield part, Span(0, max(ends.get(part, 0), last))


def sums(records: DataFrame) -> set[tuple[Any, ...]]:
    """Returns the number of records in each partition, and a checksum over their content, which
    show whether there is a difference at all.
    """
    # A sum does not depend on the order, and unlike xor it sees a row that is there twice.
    content = f.sum(f.col("content").cast("decimal(38,0)"))
    rows = _contents(records).groupBy("topic", "partition").agg(f.count("*"), content)
    return {tuple(row) for row in rows.collect()}


def compared(archived: DataFrame, topic: DataFrame) -> tuple[list[str], int]:
    """Returns the findings of the archive beside the topic, and how many records this has lost."""
    hours = differences(archived, topic).persist()
    try:
        # The driver has no room for all hours of all partitions.
        findings = list(compare_each(hours.where(_IS_FOUND).collect()))
        [row] = hours.agg(f.sum("gone").alias("gone")).collect()
    finally:
        hours.unpersist()
    # There is no sum of no hours: the topic may lose its last records while they are compared.
    return findings, row.gone or 0


def differences(archived: DataFrame, topic: DataFrame) -> DataFrame:
    """By partition and hour, how many records of the topic are `missing` in the archive or
    `changed` there, how many it has `twice`, and how many that are `gone` from the topic."""
    kept = (
        _contents(archived)
        .groupBy(*_PLACE)
        .agg(
            f.count("*").alias("times"),
            f.min("content").alias("least"),
            f.max("content").alias("most"),
            f.min("hour").alias("kept_hour"),
        )
    )
    both = _contents(topic).join(kept, [*_PLACE], "full")
    is_changed = (f.col("least") != f.col("content")) | (f.col("most") != f.col("content"))
    hour = f.coalesce("hour", "kept_hour").alias("hour")
    return both.groupBy("topic", "partition", hour).agg(
        f.count_if(f.isnull("times")).alias("missing"),
        f.count_if(is_changed).alias("changed"),
        f.count_if(f.col("times") > 1).alias("twice"),
        f.count_if(f.isnull("content")).alias("gone"),
    )


def compare_each(rows: Iterable[Any]) -> Iterator[str]:
    """Returns the findings in rows of `differences`, in order."""
    for row in sorted(rows, key=lambda row: (row.topic, row.partition, row.hour)):
        where = f"{row.topic}-{row.partition} {row.hour}"
        if row.missing:
            yield f"{where}: {row.missing} records of the topic are not there"
        if row.changed:
            yield f"{where}: {row.changed} records are in both, and they are not the same"
        if row.twice:
            yield f"{where}: {row.twice} records are in the archive twice"


def _contents(records: DataFrame) -> DataFrame:
    hour = f.concat_ws(" ", utc_date("timestamp"), utc_hour("timestamp")).alias("hour")
    return records.select(*_PLACE, content_of("timestampType", "offset").alias("content"), hour)


def content_of(*more: str) -> Column:
    """Returns a checksum of a record, and of `more` of its columns.

    Spark's own leaves out nulls: a key without a value would equal a value without a key.
    """
    nulls = f.isnull("key"), f.isnull("value")
    headers = f.transform("headers", lambda each: f.struct(each, f.isnull(each["value"])))
    return f.xxhash64("key", "value", *nulls, headers, "timestamp", *more)


def compare_files(
    files: Iterable[ArchivedFile], found: Mapping[str, tuple[int, str]]
) -> Iterator[str]:
    """Compares the files with the manifest."""
    for file in files:
        if file.path not in found:
            yield f"{file.path}: the file is gone"
        elif found[file.path] != (file.bytes, file.sha256):
            yield f"{file.path}: the file is not what was written, by its size or checksum"


def doubled(records: DataFrame) -> Iterator[str]:
    """Finds records that an archive has more than once, partition by partition.

    A task holds 4 KiB at a time, a bit for each of 32 768 offsets.
    """
    bucket = f.bitmap_bucket_number("offset").alias("bucket")
    offsets = f.bitmap_count(f.bitmap_construct_agg(f.bitmap_bit_position("offset")))
    each = records.groupBy("topic", "partition", bucket).agg((f.count("*") - offsets).alias("n"))
    found = each.groupBy("topic", "partition").agg(f.sum("n").alias("n")).where("n > 0")
    for row in found.orderBy("topic", "partition").collect():
        yield f"{row.topic}-{row.partition}: {row.n} records are in the archive twice"


def records_by_partition(files: Iterable[ArchivedFile]) -> dict[TopicPartition, int]:
    """Counts the records of every partition in files."""
    counts: dict[TopicPartition, int] = {}
    for piece in (piece for file in files for piece in file.ranges):
        part = TopicPartition(piece.topic, piece.partition)
        counts[part] = counts.get(part, 0) + piece.records
    return counts


def spans_of(files: Iterable[ArchivedFile]) -> dict[TopicPartition, Span]:
    """Returns the archived range of every partition."""
    pieces: dict[TopicPartition, list[FileRange]] = {}
    for piece in (piece for file in files for piece in file.ranges):
        pieces.setdefault(TopicPartition(piece.topic, piece.partition), []).append(piece)
    return {
        part: Span(min(p.start for p in each), max(p.end for p in each))
        for part, each in sorted(pieces.items())
    }


def _records_of(files: Iterable[ArchivedFile]) -> Iterator[int]:
    return (piece.records for file in files for piece in file.ranges)


def is_within(spans: Mapping[TopicPartition, Span]) -> Column:
    """Whether a record of the topic is in the span of its partition."""
    start = of_partition({part.partition: span.start for part, span in spans.items()}, 0)
    end = of_partition({part.partition: span.end for part, span in spans.items()}, 0)
    return (f.col("offset") >= start) & (f.col("offset") < end)
