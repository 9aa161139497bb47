"""Checks the files of log directories against each other, read-only: the rules of `fsck`.

A `Finding` is anything that a broker would fail on, repair silently or lose: a file, where in it,
what is wrong, and what the next start of a broker does about it, if anything. The check reads the
log once, batch by batch, and compares its indexes and snapshots on the way. Files that a clean stop
leaves on purpose (those that wait for their deletion) are no finding.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple
from uuid import UUID

from odradek.errors import BrokerError, reason_of
from odradek.kafka_files.index_check import OffsetIndexCheck, TimeIndexCheck
from odradek.kafka_files.inspection import (
    FoundBatch,
    LogFile,
    UnreadableFile,
    read_bytes,
    read_offset_index,
    read_producer_snapshot,
    read_time_index,
    read_transaction_index,
)
from odradek.kafka_files.producer_check import ProducerCheck
from odradek.model import TopicPartition
from odradek.protocol.uuids import uuid_text
from odradek.records.legacy import first_offset
from odradek.records.reader import read_batch
from odradek.storage import checkpoints, names
from odradek.storage.checkpoints import CorruptCheckpoint
from odradek.storage.index.transaction_index import encode_check
from odradek.storage.manager.epoch_check import EpochCheck
from odradek.storage.manager.transaction_check import malformed

_CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
_OFFSET_CHECKPOINTS: Final = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
    _CLEANER_CHECKPOINT,
)
_OTHER_FILES: Final = frozenset(
    {
        names.LOCK_FILE,
        names.META_PROPERTIES,
        names.CLEAN_SHUTDOWN_FILE,
        # Apache Kafka's, and the file system's own.
        "bootstrap.checkpoint",
        "remote-log-index-cache",
        "lost+found",
    }
)
# Nobody reads their content.
_EMPTY_FILES: Final = frozenset({names.LOCK_FILE, names.CLEAN_SHUTDOWN_FILE})
# Files that the floors above keep beside the logs.
_OWN_PREFIX: Final = "odradek-"
_PASSED_OVER: Final = (
    names.DELETED_SUFFIX,
    names.LEASE_SUFFIX,
    ".checkpoint",
    ".checkpoint.deleted",
)
_LEFTOVERS: Final = (names.CLEANED_SUFFIX, names.SWAP_SUFFIX, ".tmp")
_NO_ID: Final = uuid_text(UUID(int=0))
_QUORUM_FILES: Final = frozenset({"quorum-state"})

CUT: Final = "the next start after a crash cuts the log there"
REBUILT: Final = "the next start rebuilds it"
REMOVED: Final = "the next start removes it"
WITHOUT: Final = "the next start does without it"
SWAPPED: Final = "the next start puts it in the place of what it replaces"
REPLACED: Final = "the next start does without and writes a new one"


class Finding(NamedTuple):
    """Something that is wrong. `remedy` is what the next start does about it, if anything."""

    path: str
    problem: str
    position: int | None = None
    offset: int | None = None
    remedy: str | None = None


class KnownPartition(NamedTuple):
    """The metadata of a partition to check. Offsets of a compacted one may have gaps."""

    topic_id: UUID
    is_compacted: bool


class CheckedLog(NamedTuple):
    """The result of reading a log: where it begins and ends, and its records' bytes."""

    start_offset: int
    end_offset: int
    size_bytes: int


OnFinding = Callable[[Finding], None]


class DirectoryCheck:
    """The check of one log directory. `logs` and `properties` are what it found."""

    def __init__(
        self,
        path: str,
        known: Mapping[TopicPartition, KnownPartition] | None,
        on_finding: OnFinding,
        *,
        deep: bool = False,
        deleted_topics: Collection[UUID] = (),
    ) -> None:
        self.path: Final = path
        self._deleted_topics: Final = deleted_topics
        self.properties: dict[str, str] = {}
        self.logs: dict[TopicPartition, CheckedLog] = {}
        self._known: Final = known
        self._on_finding: Final = on_finding
        self._is_deep: Final = deep

    def run(self) -> None:
        """Checks everything, partition by partition.

        Raises:
            UnreadableFile: the directory itself cannot be listed.
        """
        try:
            present = sorted(os.listdir(self.path))
        except OSError as error:
            raise UnreadableFile(self.path, reason_of(error)) from error
        partitions = [name for name in present if self._is_partition(name)]
        self._check_properties(has_logs=bool(partitions))
        is_closed = names.CLEAN_SHUTDOWN_FILE in present
        for name in partitions:
            topic_partition = names.parse_partition_directory(name)
            assert topic_partition is not None, "the name was parsed a moment ago"
            check = PartitionCheck(
                os.path.join(self.path, name),
                None if self._known is None else self._known.get(topic_partition),
                self._on_finding,
                deep=self._is_deep,
                is_closed=is_closed,
            )
            self.logs[topic_partition] = check.run()
            if self._known is not None and topic_partition not in self._known:
                is_deleted = check.topic_id in self._deleted_topics
                remedy = REMOVED if is_deleted else None
                self._find(name, "the metadata knows no such partition", remedy)
        for name in _OFFSET_CHECKPOINTS:
            if name in present:
                self._check_offsets(name)
        self._check_names(present)

    def _is_partition(self, name: str) -> bool:
        return names.parse_partition_directory(name) is not None and os.path.isdir(
            os.path.join(self.path, name)
        )

    def _find(self, name: str, problem: str, remedy: str | None = None) -> None:
        self._on_finding(Finding(os.path.join(self.path, name), problem, remedy=remedy))

    def _check_properties(self, *, has_logs: bool) -> None:
        path = os.path.join(self.path, names.META_PROPERTIES)
        if not os.path.lexists(path):
            if has_logs:
                self._find(names.META_PROPERTIES, "it is missing", REPLACED)
            return
        try:
            self.properties = checkpoints.parse_meta_properties(read_bytes(path))
        except UnreadableFile as error:
            self._find(names.META_PROPERTIES, error.problem)
            return
        except CorruptCheckpoint as error:
            self._find(names.META_PROPERTIES, str(error))
            return
        node_id = self.properties.get("node.id", self.properties.get("broker.id", ""))
        if not self.properties.get("cluster.id"):
            self._find(names.META_PROPERTIES, "it does not name the cluster")
        if not node_id.removeprefix("-").isdecimal():
            self._find(names.META_PROPERTIES, "it does not name the broker")
        try:
            checkpoints.decode_uuid(self.properties.get("directory.id", _NO_ID))
        except CorruptCheckpoint as error:
            self._find(names.META_PROPERTIES, f"directory.id: {error}")

    def _check_offsets(self, name: str) -> None:
        try:
            data = read_bytes(os.path.join(self.path, name))
            # Kafka makes the cleaner's empty and fills it after the first compaction.
            offsets = checkpoints.parse_offsets(data) if data or name != _CLEANER_CHECKPOINT else {}
        except UnreadableFile as error:
            self._find(name, error.problem, REPLACED)
            return
        except CorruptCheckpoint as error:
            self._find(name, str(error), REPLACED)
            return
        for topic_partition, offset in offsets.items():
            log = self.logs.get(topic_partition)
            # A partition that was deleted a moment before a crash may still be listed.
            if log is not None and not 0 <= offset <= log.end_offset:
                problem = f"{topic_partition} has {offset}, its log ends at {log.end_offset}"
                self._find(name, problem, "the next start takes the log's end instead")

    def _check_names(self, present: Sequence[str]) -> None:
        for name in present:
            is_directory = os.path.isdir(os.path.join(self.path, name))
            if is_directory and name in _EMPTY_FILES:
                self._find(name, "there is a directory in its place")
            if name in (*_OFFSET_CHECKPOINTS, *_OTHER_FILES) or name.startswith(_OWN_PREFIX):
                continue
            if is_directory and (self._is_partition(name) or names.is_deleted_directory(name)):
                continue
            if is_directory and names.is_stray_directory(name):
                self._find(name, "a log that was set aside: of another topic, or of no replica")
                continue
            if name.endswith(_LEFTOVERS):
                self._find(name, "a write that a crash interrupted", "it is overwritten in time")
            else:
                kind = "directory" if is_directory else "file"
                self._find(name, f"this {kind} does not belong to a log directory")


class PartitionCheck:
    """The check of one partition's directory."""

    def __init__(
        self,
        path: str,
        known: KnownPartition | None,
        on_finding: OnFinding,
        *,
        deep: bool = False,
        is_closed: bool = False,
    ) -> None:
        self._path: Final = path
        self._known: Final = known
        self._on_finding: Final = on_finding
        self._is_deep: Final = deep
        # Whether the directory was closed in order: a crash leaves the last indexes longer.
        self._is_closed: Final = is_closed
        self._is_complete: Final = known is not None and not known.is_compacted
        self._producers = ProducerCheck(0, is_complete=False)
        self._epochs = EpochCheck(is_complete=False)
        # Those that the walk of the log has not reached.
        self._snapshots: list[int] = []
        self._is_damaged = False
        # As `partition.metadata` has it.
        self.topic_id: UUID | None = None

    def run(self) -> CheckedLog:
        """Checks every file of the partition."""
        try:
            present = sorted(os.listdir(self._path))
        except OSError as error:
            self._on_finding(Finding(self._path, reason_of(error)))
            return CheckedLog(0, 0, 0)
        files = [parsed for name in present if (parsed := names.parse_segment_file(name))]
        bases = [base for base, suffix in files if suffix == names.LOG_SUFFIX]
        self._snapshots = [base for base, suffix in files if suffix == names.SNAPSHOT_SUFFIX]
        self._producers = ProducerCheck(min(bases, default=0), is_complete=self._is_complete)
        self._epochs = EpochCheck(is_complete=self._is_complete)
        log = self._check_segments(bases, set(present))
        self._check_topic_id(names.PARTITION_METADATA in present)
        self._check_epochs(names.LEADER_EPOCH_CHECKPOINT in present, log)
        self._check_snapshots(log.end_offset)
        for offset in self._snapshots:
            problem = f"it speaks of offset {offset}, the log ends at {log.end_offset}"
            self._find(f"{offset:020d}{names.SNAPSHOT_SUFFIX}", problem, remedy=REMOVED)
        for base, suffix in files:
            if suffix not in (names.LOG_SUFFIX, names.SNAPSHOT_SUFFIX) and base not in bases:
                self._find(f"{base:020d}{suffix}", "there is no log beside it", remedy=REMOVED)
        self._check_names(present)
        return log

    def _find(
        self,
        name: str,
        problem: str,
        position: int | None = None,
        offset: int | None = None,
        remedy: str | None = None,
    ) -> None:
        path = os.path.join(self._path, name)
        self._on_finding(Finding(path, problem, position, offset, remedy))

    # Segments.

    def _check_segments(self, bases: Sequence[int], present: set[str]) -> CheckedLog:
        if not bases:
            return CheckedLog(0, 0, 0)
        expected = bases[0]
        size_bytes = 0
        for index, base in enumerate(bases):
            is_last = index + 1 == len(bases)
            name = f"{base:020d}{names.LOG_SUFFIX}"
            if base < expected:
                problem = f"it begins at {base}, the segment before it ends at {expected - 1}"
                self._find(name, problem, offset=base)
            elif base > expected:
                self._check_gap(name, 0, expected, base)
            for suffix in (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX):
                if f"{base:020d}{suffix}" not in present:
                    self._find(f"{base:020d}{suffix}", "it is missing", remedy=REBUILT)
            end_offset, end_position = self._check_segment(base, present, is_last=is_last)
            expected = max(base, end_offset)
            size_bytes += end_position
        return CheckedLog(bases[0], expected, size_bytes)

    def _check_segment(self, base: int, present: set[str], *, is_last: bool) -> tuple[int, int]:
        """Walks a segment; returns the offset and the position where its valid part ends."""
        name = f"{base:020d}{names.LOG_SUFFIX}"
        is_trimmed = self._is_closed or not is_last
        offset_index = OffsetIndexCheck(self._index(base, present, is_trimmed=is_trimmed))
        time_index = TimeIndexCheck(self._time_index(base, present, is_trimmed=is_trimmed))
        self._producers.begin_segment()
        expected, position = base, 0
        try:
            with LogFile(os.path.join(self._path, name)) as log:
                for batch in log.batches():
                    if not self._check_batch(name, batch, base, expected):
                        self._is_damaged = True
                        return expected, position
                    self._check_snapshots(batch.header.base_offset)
                    self._producers.see(batch)
                    self._epochs.see(batch.header)
                    expected = batch.header.last_offset + 1
                    position = batch.position + batch.header.size_bytes
                    offset_index.see(batch)
                    time_index.see(batch)
                self._check_tail(name, log.size_bytes, position, expected, is_last=is_last)
        except UnreadableFile as error:
            self._is_damaged = True
            self._find(name, error.problem, error.position, expected, CUT)
            return expected, position
        offset_index.end(position)
        time_index.end()
        for suffix, problems in (
            (names.INDEX_SUFFIX, offset_index.problems),
            (names.TIME_INDEX_SUFFIX, time_index.problems),
        ):
            for problem in problems:
                self._find(f"{base:020d}{suffix}", problem.text, problem.position, problem.offset)
        self._check_aborted(base, expected, present)
        return expected, position

    def _check_batch(self, name: str, batch: FoundBatch, base: int, expected: int) -> bool:
        """Whether the log continues after this batch."""
        header = batch.header
        problem = batch.problem()
        if problem is None and self._is_deep:
            problem = _read_problem(batch)
        if problem is not None:
            text = problem.replace(" at position 0", "")
            self._find(name, text, batch.position, header.base_offset, CUT)
            return False
        first = header.base_offset
        if header.magic < 2:
            try:
                first = first_offset(batch.data, header)
            except BrokerError as error:
                self._find(name, error.message, batch.position, first, CUT)
                return False
        if first < expected or header.last_offset < first:
            text = f"offset {first} to {header.last_offset} where {expected} or more should follow"
            if first < base:
                text += "; the file's name says that it begins later"
            self._find(name, text, batch.position, first, CUT)
            return False
        if first > expected:
            self._check_gap(name, batch.position, expected, first)
        return True

    def _check_gap(self, name: str, position: int, expected: int, found: int) -> None:
        if self._known is not None and not self._known.is_compacted:
            self._find(name, f"offsets {expected} to {found - 1} are missing", position, found)

    def _check_tail(
        self, name: str, size_bytes: int, position: int, expected: int, *, is_last: bool
    ) -> None:
        torn = size_bytes - position
        if torn > 0:
            self._is_damaged = True
            problem = f"{torn} bytes at the end are no whole batch"
            remedy = CUT if is_last else f"{CUT} and drops the segments behind it"
            self._find(name, problem, position, expected, remedy)

    # The files beside the records.

    def _index(self, base: int, present: set[str], *, is_trimmed: bool) -> list[tuple[int, int]]:
        name = f"{base:020d}{names.INDEX_SUFFIX}"
        if name not in present:
            return []
        try:
            return read_offset_index(os.path.join(self._path, name), is_trimmed=is_trimmed)
        except UnreadableFile as error:
            self._find(name, error.problem, error.position, remedy=REBUILT)
            return []

    def _time_index(
        self, base: int, present: set[str], *, is_trimmed: bool
    ) -> list[tuple[int, int]]:
        name = f"{base:020d}{names.TIME_INDEX_SUFFIX}"
        if name not in present:
            return []
        try:
            return read_time_index(os.path.join(self._path, name), is_trimmed=is_trimmed)
        except UnreadableFile as error:
            self._find(name, error.problem, error.position, remedy=REBUILT)
            return []

    def _check_aborted(self, base: int, end_offset: int, present: set[str]) -> None:
        name = f"{base:020d}{names.TXN_INDEX_SUFFIX}"
        check_name = f"{base:020d}{names.TXN_CHECK_SUFFIX}"
        path = os.path.join(self._path, name)
        try:
            data = read_bytes(path) if name in present else b""
            entries = [entry for _, entry in read_transaction_index(path)] if data else []
        except UnreadableFile as error:
            self._find(name, error.problem, error.position, remedy=REBUILT)
            return
        problem = malformed(data, base, end_offset)
        if problem is not None:
            self._find(name, problem, remedy=REBUILT)
            return
        problems = [] if self._is_damaged else self._producers.compare_aborted(entries)
        for offset, text in problems:
            self._find(name, text, offset=offset, remedy=REBUILT)
        if check_name in present and not problems:
            self._check_check(check_name, data)

    def _check_check(self, name: str, data: bytes) -> None:
        try:
            if read_bytes(os.path.join(self._path, name)) != encode_check(data):
                self._find(name, "it is not what the transaction index holds", remedy=REBUILT)
        except UnreadableFile as error:
            self._find(name, error.problem)

    def _check_snapshots(self, offset: int) -> None:
        """Checks those that are due before the batch that begins at `offset`."""
        while self._snapshots and self._snapshots[0] <= offset:
            due = self._snapshots.pop(0)
            name = f"{due:020d}{names.SNAPSHOT_SUFFIX}"
            try:
                states = read_producer_snapshot(os.path.join(self._path, name))
            except UnreadableFile as error:
                self._find(name, error.problem, remedy=WITHOUT)
                continue
            problem = None if self._is_damaged else self._producers.compare_snapshot(due, states)
            if problem is not None:
                self._find(name, problem, remedy=WITHOUT)

    def _check_topic_id(self, is_present: bool) -> None:
        name = names.PARTITION_METADATA
        if not is_present:
            # A broker on ZooKeeper before Kafka 2.8 knew no topic ids.
            if self._known is not None:
                self._find(name, "it is missing", remedy=REPLACED)
            return
        try:
            self.topic_id = checkpoints.parse_partition_metadata(
                read_bytes(os.path.join(self._path, name))
            )
        except UnreadableFile as error:
            self._find(name, error.problem, remedy=REPLACED)
            return
        except CorruptCheckpoint as error:
            self._find(name, str(error), remedy=REPLACED)
            return
        if self._known is not None and self.topic_id != self._known.topic_id:
            problem = (
                f"the topic id is {uuid_text(self.topic_id)}, "
                f"the metadata says {uuid_text(self._known.topic_id)}"
            )
            self._find(name, problem, remedy="the next start takes it for a deleted topic's")

    def _check_epochs(self, is_present: bool, log: CheckedLog) -> None:
        name = names.LEADER_EPOCH_CHECKPOINT
        if not is_present:
            if log.size_bytes > 0 and self._known is not None:
                self._find(name, "it is missing", remedy=REBUILT)
            return
        try:
            epochs = checkpoints.parse_epochs(read_bytes(os.path.join(self._path, name)))
        except UnreadableFile as error:
            self._find(name, error.problem, remedy=REBUILT)
            return
        except CorruptCheckpoint as error:
            self._find(name, str(error), remedy=REBUILT)
            return
        if self._is_damaged:
            return
        for offset, problem in self._epochs.compare(epochs, log.start_offset, log.end_offset):
            self._find(name, problem, offset=offset, remedy=REBUILT)

    def _check_names(self, present: Sequence[str]) -> None:
        whole = {names.PARTITION_METADATA, names.LEADER_EPOCH_CHECKPOINT, *_QUORUM_FILES}
        undone = _first_undone(present)
        for name in present:
            if name in whole or names.parse_segment_file(name) is not None:
                continue
            if name.endswith(_PASSED_OVER):
                continue
            if name.endswith(names.SWAP_SUFFIX) and names.leading_offset(name) < undone:
                self._find(name, "work that a crash interrupted", remedy=SWAPPED)
            elif name.endswith(_LEFTOVERS):
                self._find(name, "work that a crash interrupted", remedy=REMOVED)
            else:
                self._find(name, "this file does not belong to a partition")


def _first_undone(present: Sequence[str]) -> int:
    """The offset from which on compaction's work goes, as `swap` has it."""
    cleaned = [name for name in present if name.endswith(names.CLEANED_SUFFIX)]
    return min([names.leading_offset(name) for name in cleaned], default=1 << 63)


def _read_problem(batch: FoundBatch) -> str | None:
    try:
        records = read_batch(batch.data, batch.header)
    except BrokerError as error:
        return error.message
    offsets = [record.offset for record in records]
    rising = all(low < high for low, high in pairwise(offsets))
    inside = not offsets or offsets[-1] <= batch.header.last_offset
    return None if rising and inside else "the offsets of its records do not rise as they should"


def log_directories(paths: Sequence[str]) -> Iterator[str]:
    """The directories without repetitions, however they are spelled."""
    seen: set[str] = set()
    for path in paths:
        real = os.path.realpath(path)
        if real not in seen:
            seen.add(real)
            yield path
