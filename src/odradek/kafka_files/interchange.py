"""Reads the log directories of a stopped Apache Kafka and copies logs out of them.

The copy writes nothing to the source and links none of its files: if two brokers appended to one
log, both would lose it. It copies what Kafka would still have after its own recovery: it counts
whole batches with right checksums, and leaves out files that wait for their deletion. A directory
that was closed in order is copied with its indexes; otherwise they are left behind, since the start
of the copy's broker rebuilds them with everything else.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from odradek.errors import BrokerError, reason_of
from odradek.kafka_files.inspection import FoundBatch, LogFile, UnreadableFile, read_bytes
from odradek.model import NO_PRODUCER_ID, TopicPartition
from odradek.records.legacy import read_message
from odradek.storage import checkpoints, names
from odradek.storage.checkpoints import CorruptCheckpoint
from odradek.system_calls import OPEN_FLAGS, pread, sync_path

_COPY_BYTES: Final = 8 * 1024 * 1024
_CHECKPOINT: Final = re.compile(r"^(\d{20})-(\d{10})\.checkpoint$")
_INDEXES: Final = (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)


class SourceLog(NamedTuple):
    """A partition's directory in the source; `topic_id` is None before Kafka 2.8."""

    topic_partition: TopicPartition
    path: str
    topic_id: UUID | None
    size_bytes: int


class SourceDirectory(NamedTuple):
    """A log directory of the source, with the content of its checkpoints."""

    path: str
    properties: Mapping[str, str]
    was_clean: bool
    logs: Sequence[SourceLog]
    recovery_points: Mapping[TopicPartition, int]
    log_start_offsets: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]

    def noted_end(self, partition: TopicPartition) -> int:
        """The offset at which the checkpoints say that a log ended; 0 if they have none."""
        noted = (self.recovery_points, self.log_start_offsets, self.high_watermarks)
        return max(offsets.get(partition, 0) for offsets in noted)

    def noted_partitions(self) -> set[TopicPartition]:
        """The partitions that the checkpoints have."""
        return {*self.recovery_points, *self.log_start_offsets, *self.high_watermarks}


class CopiedLog(NamedTuple):
    """The result of copying a log, counted in the copy; `damage` lists what was found wrong."""

    record_count: int
    size_bytes: int
    end_offset: int
    latest_epoch: int
    largest_producer_id: int
    damage: str | None


OnBytes = Callable[[int], None]


def read_source(path: str) -> SourceDirectory:
    """Reads the contents of a log directory.

    Raises:
        UnreadableFile: it is no log directory, or a file that must be right is not.
    """
    try:
        present = sorted(os.listdir(path))
    except OSError as error:
        raise UnreadableFile(path, reason_of(error)) from error
    if names.META_PROPERTIES not in present:
        raise UnreadableFile(path, "there is no meta.properties: it is not a log directory")
    logs = []
    for name in present:
        topic_partition = names.parse_partition_directory(name)
        directory = os.path.join(path, name)
        if topic_partition is not None and os.path.isdir(directory):
            logs.append(_read_log(topic_partition, directory))
    return SourceDirectory(
        path,
        _read_properties(os.path.join(path, names.META_PROPERTIES)),
        names.CLEAN_SHUTDOWN_FILE in present,
        logs,
        _read_offsets(path, names.RECOVERY_POINT_CHECKPOINT),
        _read_offsets(path, names.LOG_START_OFFSET_CHECKPOINT),
        _read_offsets(path, names.HIGH_WATERMARK_CHECKPOINT),
    )


def copy_log(
    source: SourceLog, target: str, *, with_indexes: bool, topic_id: UUID, on_bytes: OnBytes
) -> CopiedLog:
    """Copies a log into the new directory `target`, on to the disk, and counts what arrived there.

    Raises:
        UnreadableFile: a file cannot be read.
        OSError: the target cannot be written.
    """
    os.mkdir(target)
    for name in sorted(os.listdir(source.path)):
        parsed = names.parse_segment_file(name)
        if parsed is None and name != names.LEADER_EPOCH_CHECKPOINT:
            continue
        if parsed is not None and parsed[1] in _INDEXES and not with_indexes:
            continue
        _copy_file(os.path.join(source.path, name), os.path.join(target, name), on_bytes)
    with open(os.path.join(target, names.PARTITION_METADATA), "wb") as stream:
        stream.write(checkpoints.encode_partition_metadata(topic_id))
    sync_path(target)
    return _count(source, target)


def metadata_batches(path: str) -> Iterator[FoundBatch]:
    """The batches of a metadata log: the newest snapshot, then the log behind it.

    Raises:
        UnreadableFile: one of the files cannot be read, or a batch is damaged.
    """
    present = os.listdir(path)
    snapshots = sorted(
        (int(match[1]), name) for name in present if (match := _CHECKPOINT.match(name))
    )
    start_offset = 0
    if snapshots:
        start_offset, name = snapshots[-1]
        yield from _checked_batches(os.path.join(path, name))
    for base_offset in _base_offsets(path):
        for batch in _checked_batches(names.segment_file(path, base_offset, names.LOG_SUFFIX)):
            if batch.header.base_offset >= start_offset:
                yield batch


def _checked_batches(path: str) -> Iterator[FoundBatch]:
    with LogFile(path) as log:
        for batch in log.batches():
            problem = batch.problem()
            if problem is not None:
                raise UnreadableFile(path, problem.replace(" at position 0", ""), batch.position)
            yield batch


def _read_log(topic_partition: TopicPartition, directory: str) -> SourceLog:
    try:
        present = os.listdir(directory)
        size_bytes = sum(os.stat(os.path.join(directory, name)).st_size for name in present)
    except OSError as error:
        raise UnreadableFile(directory, reason_of(error)) from error
    for name in present:
        if name.endswith(names.SWAP_SUFFIX):
            raise UnreadableFile(
                os.path.join(directory, name),
                "a compaction was interrupted; start and stop Kafka once, so that it ends it",
            )
    topic_id = None
    if names.PARTITION_METADATA in present:
        path = os.path.join(directory, names.PARTITION_METADATA)
        try:
            topic_id = checkpoints.parse_partition_metadata(read_bytes(path))
        except CorruptCheckpoint as error:
            raise UnreadableFile(path, str(error)) from error
    return SourceLog(topic_partition, directory, topic_id, size_bytes)


def _read_properties(path: str) -> dict[str, str]:
    try:
        return checkpoints.parse_meta_properties(read_bytes(path))
    except CorruptCheckpoint as error:
        raise UnreadableFile(path, str(error)) from error


def _read_offsets(directory: str, name: str) -> dict[TopicPartition, int]:
    path = os.path.join(directory, name)
    if not os.path.lexists(path):
        return {}
    data = read_bytes(path)
    # A Kafka that was killed early leaves empty those that it has made and not yet written.
    if not data:
        return {}
    try:
        return checkpoints.parse_offsets(data)
    except CorruptCheckpoint as error:
        raise UnreadableFile(path, str(error)) from error


def _copy_file(source: str, target: str, on_bytes: OnBytes) -> None:
    try:
        reader = os.open(source, os.O_RDONLY | OPEN_FLAGS)
    except OSError as error:
        raise UnreadableFile(source, reason_of(error)) from error
    try:
        with open(target, "xb") as writer:
            position = 0
            while data := _read_piece(source, reader, position):
                writer.write(data)
                position += len(data)
                on_bytes(len(data))
            writer.flush()
            os.fsync(writer.fileno())
    finally:
        os.close(reader)


def _read_piece(path: str, descriptor: int, position: int) -> bytes:
    try:
        return pread(descriptor, _COPY_BYTES, position)
    except OSError as error:
        raise UnreadableFile(path, reason_of(error), position) from error


def _count(source: SourceLog, target: str) -> CopiedLog:
    """Walks the copy; a damaged batch is named by its place in the source, where it came from."""
    records = size_bytes = 0
    end_offset, epoch, producer_id = 0, -1, NO_PRODUCER_ID
    for base_offset in _base_offsets(target):
        end_offset = max(end_offset, base_offset)
        try:
            for batch in _checked_batches(
                names.segment_file(target, base_offset, names.LOG_SUFFIX)
            ):
                header = batch.header
                records += _record_count(batch)
                size_bytes += header.size_bytes
                end_offset = header.last_offset + 1
                epoch = max(epoch, header.partition_leader_epoch)
                producer_id = max(producer_id, header.producer_id)
        except UnreadableFile as error:
            damage = str(error).replace(target, source.path)
            return CopiedLog(records, size_bytes, end_offset, epoch, producer_id, damage)
    return CopiedLog(records, size_bytes, end_offset, epoch, producer_id, None)


def _base_offsets(directory: str) -> list[int]:
    found = map(names.parse_segment_file, os.listdir(directory))
    return sorted(parsed[0] for parsed in found if parsed and parsed[1] == names.LOG_SUFFIX)


def _record_count(batch: FoundBatch) -> int:
    """The records that a consumer may get of a batch."""
    header = batch.header
    if header.is_control:
        return 0
    if header.magic == 2:
        return header.record_count
    try:
        return len(read_message(batch.data, header))
    except BrokerError:
        # The wrapper is whole; damage inside shows when it is read.
        return 0
