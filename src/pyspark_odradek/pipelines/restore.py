"""`restore`: writes an archive to a topic again, its records in their partitions and in their
order.

Keys, values, headers and timestamps are kept. Offsets are too when the archive begins where the
topic does and compaction left no holes; otherwise the archive gets a map from old offsets to new
ones, as ranges that moved together:

    _restored/orders-again.json   [{"partition": 0, "start": 120, "to": 0, "records": 500}, ...]

Groups that had committed offsets when the archive was written get theirs in the restored topic
(`groups`), so their consumers continue at the same record.

The topic is created if it does not exist, with its old partitions and settings, except those by
which it would lose or refuse the old records, and those about the old cluster. An existing topic
must be empty, since it would mix its records with those of the archive, and must not remove records
as old as the archive's, nor as many bytes. If the archive has larger records than the topic takes,
or from times that it does not take, its limits are raised.

A restore that failed half way can be continued: `_restored/orders-again.begun` has the id of the
topic that it began to fill, and that topic must have the archive's first records. It also has the
offsets that groups had in the topic before they got theirs: a group that has others by now keeps
them.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from odradek.client.errors import UnknownTopicOrPartition
from odradek.clock import SystemClock
from odradek.model import TopicPartition
from pyspark_odradek.pipelines.audit import compare_files, content_of, spans_of
from pyspark_odradek.pipelines.bookkeeping import described
from pyspark_odradek.pipelines.bookkeeping.extents import Extent, extent_of
from pyspark_odradek.pipelines.bookkeeping.manifest import (
    Archived,
    ArchivedFile,
    Manifest,
    on_archive,
)
from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.ends.owners import Lock
from pyspark_odradek.pipelines.ends.snapshots import Span, of_partition, read_spans, topic_spans
from pyspark_odradek.pipelines.ends.topics import (
    BOUNDS_OF_TIME,
    LIMIT,
    NO_BOUND,
    admit_times,
    create_topic,
    raise_limit,
    setting_of,
)
from pyspark_odradek.pipelines.running.jobs import OnceJob, Outcome
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

RESTORED: Final = "_restored"
_FILLED: Final = "{} has, or had, records: restore to a new topic"
_KEPT: Final = ("key", "value", "headers", "timestamp", "partition")
# Settings of retention, of brokers and storage that may not exist, and those removed in Kafka 4.
_NOT_RESTORED: Final = (
    "retention.bytes",
    "local.retention.bytes",
    "local.retention.ms",
    "remote.storage.enable",
    "min.insync.replicas",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    "message.downconversion.enable",
    "message.format.version",
    "message.timestamp.difference.max.ms",
)
_POLICY: Final = "cleanup.policy"
_RETENTION: Final = "retention.ms"
_RETENTION_BYTES: Final = "retention.bytes"
_FOREVER: Final = -1
# The default limit of a topic, and the overhead of a record.
_USUAL_LIMIT: Final = 1_048_588
_OVERHEAD: Final = 512
_SHARE_OF_CODECS: Final = 128


def build(spark: SparkSession, settings: PipelineSettings) -> OnceJob:
    """The restore as a job.

    Raises:
        PipelineError: no archive is named.
    """
    directory = settings.archive("restore")
    # Two at once would each continue where the other is.
    alone = Lock(FileSystem(spark), f"{directory}/{RESTORED}/{settings.topic}")

    def work(manifest: Manifest, archived: Archived) -> Outcome:
        with alone:
            return restore(spark, settings, manifest, archived)

    return on_archive(spark, directory, work)


def restore(
    spark: SparkSession, settings: PipelineSettings, manifest: Manifest, archived: Archived
) -> Outcome:
    """Writes the archive to the topic; there are no findings, only errors.

    Raises:
        PipelineError: the archive is damaged, or the topic cannot take it.
    """
    files, root = archived.files, manifest.table.directory
    for finding in compare_files(files, manifest.checksums(file.path for file in files)):
        raise PipelineError(f"the archive is damaged: {finding}")
    spans = spans_of(files)
    topics = {part.topic for part in spans}
    if len(topics) != 1:
        raise PipelineError(
            f"the archive is of {len(topics)} topics: {', '.join(sorted(topics)) or 'no records'}"
        )
    kept = described.kept_in(spark, root)
    # Before anything is written: a wrong name must not require a new start.
    found = chosen(kept.groups, settings.groups)
    records = manifest.frame(files)
    partitions = max(kept.partitions, 1 + max(part.partition for part in spans))
    extent = extent_of(records)
    attempt = Attempt(spark, root, settings)
    config = restored_settings(kept.settings, extent.largest_record)
    if "compact" in config.get(_POLICY, "") and extent.without_key:
        config[_POLICY] = "delete"
    there = prepare_topic(settings, partitions, config, may_go_on=attempt.is_begun())
    check_kept(settings, extent)
    raise_limit(settings.brokers, settings.topic, limit_for(extent.largest_record))
    admit_times(settings.brokers, settings.topic, extent.oldest_ms, extent.newest_ms)
    attempt.begin()
    if there:
        check_begun(records, read_spans(spark, settings, there))
    write(behind(records, there), settings, len(spans))
    check_written(settings, files)
    stretches = [row.asDict() for row in moved(records).collect()]
    FileSystem(spark).replace(f"{root}/{RESTORED}/{settings.topic}.json", json.dumps(stretches))
    facts: dict[str, object] = {"records": sum(p.records for file in files for p in file.ranges)}
    if settings.groups is not None:
        theirs = attempt.without_moved(translated(found, stretches))
        described.commit(settings.brokers, settings.topic, theirs)
        facts["groups"] = len(found)
    attempt.end()
    return Outcome(facts=facts)


def restored_settings(kept: Mapping[str, str], largest_record: int) -> dict[str, str]:
    """Returns the settings of a topic that gets the archived records; `largest` is the size of the
    largest.
    """
    settings = {name: value for name, value in kept.items() if name not in _NOT_RESTORED}
    settings |= dict.fromkeys(settings.keys() & set(BOUNDS_OF_TIME), NO_BOUND)
    least = limit_for(largest_record)
    if least > int(kept.get(LIMIT, _USUAL_LIMIT)):
        settings[LIMIT] = str(least)
    return settings


def limit_for(largest_record: int) -> int:
    """Returns the limit of a topic for a record of this size with any codec: a record that cannot
    be compressed is larger afterwards.
    """
    return largest_record + largest_record // _SHARE_OF_CODECS + _OVERHEAD


def chosen(kept: described.Groups, wanted: str | None) -> described.Groups:
    """Returns the groups to restore: none, `all`, or names separated by commas.

    Raises:
        PipelineError: the archive does not have one.
    """
    if wanted is None:
        return {}
    names = list(kept) if wanted == "all" else [name.strip() for name in wanted.split(",")]
    for name in names:
        if name not in kept:
            raise PipelineError(
                f"the archive has no group {name}, only {', '.join(kept) or 'none'}"
            )
    return {name: kept[name] for name in names}


def translated(kept: described.Groups, stretches: Sequence[dict[str, Any]]) -> described.Groups:
    """Returns the groups' offsets in the restored topic."""
    moved_in: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for stretch in stretches:
        moved_in[stretch["partition"]].append(stretch)
    return {
        name: {part: new_offset(moved_in[part], offset) for part, offset in offsets.items()}
        for name, offsets in kept.items()
    }


class Attempt:
    """The note of an archive that its restore to a topic has begun, and how far it is."""

    def __init__(self, spark: SparkSession, archive: str, settings: PipelineSettings) -> None:
        self._files: Final = FileSystem(spark)
        self._path: Final = f"{archive}/{RESTORED}/{settings.topic}.begun"
        self._settings: Final = settings

    def is_begun(self) -> bool:
        """Whether an attempt failed that has filled this very topic."""
        try:
            begun = self._read()["topic_id"]
            return begun is not None and begun == self._topic_id()
        except (FileNotFoundError, UnknownTopicOrPartition):
            return False

    def begin(self) -> None:
        """Notes the topic, with its id to distinguish it from a later one, unless it is noted."""
        if not self.is_begun():
            self._write({"topic_id": self._topic_id(), "groups": {}})

    def without_moved(self, groups: described.Groups) -> described.Groups:
        """Returns the groups without offsets of partitions for which a group has committed another
        one since an attempt came so far: its own, or that of the restore.
        """
        note, (brokers, topic) = self._read(), (self._settings.brokers, self._settings.topic)
        now = _as_text(described.committed(brokers, topic, groups))
        new = {name: now.get(name, {}) for name in groups if name not in note["groups"]}
        before = {**new, **note["groups"]}
        self._write({**note, "groups": before})
        return {
            name: {
                part: offset
                for part, offset in offsets.items()
                if now.get(name, {}).get(str(part)) == before[name].get(str(part))
            }
            for name, offsets in groups.items()
        }

    def end(self) -> None:
        """Removes the note."""
        self._files.remove(self._path)

    def _topic_id(self) -> str | None:
        return described.topic_id(self._settings.brokers, self._settings.topic)

    def _read(self) -> dict[str, Any]:
        text = self._files.read(self._path)
        try:
            note: dict[str, Any] = json.loads(text)
        except ValueError:
            # An earlier version noted the id alone.
            note = {"topic_id": text, "groups": {}}
        return note

    def _write(self, note: Mapping[str, Any]) -> None:
        self._files.replace(self._path, json.dumps(note))


def _as_text(groups: described.Groups) -> dict[str, dict[str, int]]:
    """Returns groups as a note has them."""
    return {
        name: {str(part): offset for part, offset in offsets.items()}
        for name, offsets in groups.items()
    }


def prepare_topic(
    settings: PipelineSettings, partitions: int, config: Mapping[str, str], *, may_go_on: bool
) -> dict[TopicPartition, Span]:
    """Ensures that the topic exists, and is empty unless a restore may continue; returns its filled
    partitions.

    Raises:
        PipelineError: it has records, or too few partitions, or does not keep the times of records,
            or cannot be created.
    """
    there = topic_spans(settings)
    if not there:
        create_topic(settings.brokers, settings.topic, partitions, config)
        return {}
    filled = {part: span for part, span in there.items() if span.end > 0}
    for part, span in filled.items():
        if span.start > 0 or not may_go_on:
            raise PipelineError(_FILLED.format(part))
    if setting_of(settings.brokers, settings.topic, "message.timestamp.type") != "CreateTime":
        raise PipelineError(
            f"{settings.topic} gives records the time of their arrival (message.timestamp.type): "
            "the archived times would be lost"
        )
    if len(there) < partitions:
        raise PipelineError(
            f"{settings.topic} has {len(there)} partitions, the archive {partitions}"
        )
    return filled


def check_kept(settings: PipelineSettings, extent: Extent) -> None:
    """Checks that a topic takes the archived records, and does not remove them for their age or
    size.

    Raises:
        PipelineError: it is compacted, and some have no key; or they are older than its
            `retention.ms`, or in one partition more than its `retention.bytes` before compression.
    """
    policy = setting_of(settings.brokers, settings.topic, _POLICY) or ""
    if "compact" in policy and extent.without_key:
        raise PipelineError(
            f"{settings.topic} is compacted: it takes no record without a key, and the archive has "
            f"{extent.without_key}; restore to a new topic"
        )
    if "delete" not in policy:
        return
    age_ms = SystemClock().wall_ms() - extent.oldest_ms
    for name, needed, lost in (
        (_RETENTION, age_ms, "records that are older than {} ms"),
        (_RETENTION_BYTES, extent.largest_partition, "what a partition has beyond {} bytes"),
    ):
        kept = int(setting_of(settings.brokers, settings.topic, name) or _FOREVER)
        if kept != _FOREVER and needed > kept:
            raise PipelineError(
                f"{settings.topic} removes {lost.format(kept)} ({name}), as archived ones are: set "
                "it to -1, or restore to a new topic"
            )


def check_begun(records: DataFrame, there: DataFrame) -> None:
    """Checks that a topic has the first records of the archive, partition by partition.

    Raises:
        PipelineError: it has other records.
    """
    content = content_of()
    ours = placed(records).select("partition", "place", content.alias("content"))
    place = f.col("offset").alias("place")
    theirs = there.select("topic", "partition", place, content.alias("found"))
    both = theirs.join(ours, ["partition", "place"], "left")
    other = both.where(~f.col("found").eqNullSafe(f.col("content"))).orderBy("partition")
    for row in other.limit(1).collect():
        raise PipelineError(_FILLED.format(f"{row.topic}-{row.partition}"))


def behind(records: DataFrame, there: Mapping[TopicPartition, Span]) -> DataFrame:
    """Returns the records that a topic with these offsets lacks."""
    if not there:
        return records
    end = of_partition({part.partition: span.end for part, span in there.items()}, 0)
    return placed(records).where(f.col("place") >= end)


def placed(records: DataFrame) -> DataFrame:
    """Returns records with their `place`, the offset that they get."""
    place = f.row_number().over(Window.partitionBy("partition").orderBy("offset")) - 1
    return records.withColumn("place", place)


def write(records: DataFrame, settings: PipelineSettings, partitions: int) -> None:
    """Writes records so that those of a partition come from one task, in their order."""
    ordered = records.repartition(partitions, "partition").sortWithinPartitions(
        "partition", "offset"
    )
    writer = ordered.select(*_KEPT).write.format("odradek").mode("append")
    writer = writer.options(**settings.broker_options())
    writer.option("topic", settings.topic).option("keepTimestamps", "true").save()


def check_written(settings: PipelineSettings, files: Iterable[ArchivedFile]) -> None:
    """Checks that every partition has as many records as its archive.

    Raises:
        PipelineError: it has more, since Spark repeated a task, or another producer wrote to it.
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
    """Ranges of offsets that moved together: where they began, and where they begin now."""
    return (
        placed(records.select("partition", "offset"))
        .groupBy("partition", (f.col("offset") - f.col("place")).alias("shift"))
        .agg(
            f.min("offset").alias("start"),
            f.min("place").alias("to"),
            f.count("*").alias("records"),
        )
        .drop("shift")
        .orderBy("partition", "start")
    )


def new_offset(stretches: Iterable[dict[str, Any]], offset: int) -> int:
    """Returns the offset at which a reader that was at `offset` of a partition continues in the
    restored topic.
    """
    found = 0
    for stretch in stretches:
        if stretch["start"] <= offset:
            found = stretch["to"] + min(offset - stretch["start"], stretch["records"])
    return found
