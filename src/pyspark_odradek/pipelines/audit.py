"""`audit`: is the archive what was written, and is it what the topic has?

Three questions, each a list of findings; none is the answer that all is well:

- the files: each is there, with the size and the SHA-256 that the manifest has, and no other; the
  manifest itself, and what is written of groups, are as they were written;
- the offsets: every partition's files follow on each other, none is there twice;
- the topic: where both have records, they have the same ones, by partition and hour.

Holes that compaction made are in the topic as well, so they are told of only where the topic
has records. What the topic has deleted since, or got since, is not compared.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek.model import TopicPartition
from pyspark_odradek.pipelines.bookkeeping.groups import kept_in
from pyspark_odradek.pipelines.bookkeeping.manifest import ArchivedFile, FileRange, Manifest
from pyspark_odradek.pipelines.ends.snapshots import Span, read_spans, topic_spans
from pyspark_odradek.pipelines.running.jobs import OnceJob, Outcome
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

_CONTENT: Final = ("key", "value", "headers", "timestamp", "timestampType", "offset")


def build(spark: SparkSession, settings: PipelineSettings) -> OnceJob:
    """The audit as a job.

    Raises:
        PipelineError: no archive is named.
    """
    archive = settings.source
    if archive is None:
        raise PipelineError("audit needs the directory of an archive (--from DIR)")
    return OnceJob(lambda: audit(spark, settings, archive))


def audit(spark: SparkSession, settings: PipelineSettings, archive: str) -> Outcome:
    """Every finding, a line each.

    Raises:
        PipelineError: there is no archive, or what it says of itself is damaged.
    """
    manifest = Manifest(spark, archive)
    files = manifest.files()
    if not files:
        raise PipelineError(f"{archive} is no archive: it has no manifest")
    kept_in(spark, archive)
    facts: dict[str, object] = {"files": len(files), "records": sum(_records_of(files))}
    damaged = list(compare_files(files, manifest.checksums(archive)))
    if damaged:
        # Spark would fail on some of them, and what it read would be in doubt.
        return Outcome(damaged, facts)
    findings = list(compare_ranges(files))
    archived = spans_of(files)
    if len({part.topic for part in archived}) > 1:
        raise PipelineError(f"{archive} is of several topics")
    # The topic may have another name, as one has that was restored.
    there = topic_spans(settings)
    if not there:
        findings.append(f"there is no topic {settings.topic} to compare the archive with")
    renamed = {TopicPartition(settings.topic, part.partition): s for part, s in archived.items()}
    common = {part: both for part, span in renamed.items() if (both := span & there.get(part))}
    if common:
        records = manifest.frame(files).withColumn("topic", f.lit(settings.topic))
        ours = by_hour(_within(records, common))
        theirs = by_hour(read_spans(spark, settings, common))
        findings.extend(compare_hours(ours.collect(), theirs.collect()))
    facts["offsets compared with the topic"] = sum(s.end - s.start for s in common.values())
    return Outcome(findings, facts)


def compare_files(
    files: Iterable[ArchivedFile], found: dict[str, tuple[int, str]]
) -> Iterator[str]:
    """What is wrong with the files themselves."""
    known = set()
    for file in files:
        known.add(file.path)
        if file.path not in found:
            yield f"{file.path}: the file is gone"
        elif found[file.path] != (file.bytes, file.sha256):
            yield f"{file.path}: the file is not what was written, by its size or checksum"
    for path in sorted(found.keys() - known):
        yield f"{path}: the file is in no batch of the manifest"


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


def _within(records: DataFrame, spans: dict[TopicPartition, Span]) -> DataFrame:
    wanted = f.lit(False)
    for part, span in spans.items():
        wanted = wanted | (
            (f.col("topic") == part.topic)
            & (f.col("partition") == part.partition)
            & f.col("offset").between(span.start, span.end - 1)
        )
    return records.where(wanted)
