"""Opens a `Log` from a directory of files, in whatever state the last broker left it.

After an orderly end only names, sizes, the last index entries and the newest snapshot are looked
at. After a crash everything from the recovery point on is read: batches are checked, the log is cut
at the first invalid one, and indexes, leader epochs and producers are rebuilt. Files that can be
rebuilt are, whatever their damage; a file of records is only ever truncated at its end.

Leftovers are removed: `.deleted` and temporary files, indexes without a log.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final
from uuid import UUID

from odradek.config.topic import LogConfig
from odradek.model import UNKNOWN_OFFSET, TopicPartition
from odradek.records.batch import BatchHeader, Buffer
from odradek.records.errors import CorruptRecords
from odradek.storage import names
from odradek.storage.checkpoints import (
    CorruptCheckpoint,
    encode_partition_metadata,
    parse_epochs,
    parse_partition_metadata,
)
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.log.local_log import LocalLog
from odradek.storage.log.log import Log
from odradek.storage.log.recovery import recover_segment, walk_segment
from odradek.storage.log.segment import LogSegment
from odradek.storage.log.segments import LogSegments
from odradek.storage.log.swap import finish_replacements
from odradek.storage.log_directory import LogDirectory
from odradek.storage.manager.epoch_check import contradiction
from odradek.storage.manager.transaction_check import find_damage, rebuild
from odradek.storage.producers.producer_state import ProducerStateManager
from odradek.storage.producers.replay import replay_producers, snapshot_offsets

_LITTER: Final = (names.DELETED_SUFFIX, names.TEMPORARY_SUFFIX)

# Called with a description of the damage, as one line for the broker's log.
OnFinding = Callable[[str], None]
# Called with the bytes that have been checked since the last call.
OnBytes = Callable[[int], None]


class LogLoadParameters:
    """The known facts about a log before it is opened, and the callbacks of its loading."""

    def __init__(
        self,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        high_watermark: int = 0,
        cleaned_offset: int = 0,
        was_clean: bool = True,
        on_finding: OnFinding | None = None,
        on_bytes: OnBytes | None = None,
    ) -> None:
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        self.high_watermark = high_watermark
        self.cleaned_offset = cleaned_offset
        self.was_clean = was_clean
        # The log end after a clean shutdown, if the records contradict it; -1: unknown.
        self.closed_at = UNKNOWN_OFFSET
        self.on_finding = on_finding
        self.on_bytes = on_bytes

    def report(self, finding: str) -> None:
        """Passes the description of the damage on."""
        if self.on_finding is not None:
            self.on_finding(finding)


def create_log(
    directory: LogDirectory,
    topic_partition: TopicPartition,
    topic_id: UUID,
    config: LogConfig,
    path: str | None = None,
    start_offset: int = 0,
) -> Log:
    """A new, empty log, in the partition's directory unless there is a `path`.

    Raises:
        OSError: the disk failed; the files are removed unless that fails too.
    """
    path = path or directory.file_path(names.partition_directory(topic_partition))
    was_there = directory.file_system.is_directory(path)
    try:
        directory.file_system.make_directory(path)
        write_topic_id(directory, path, topic_id)
        parameters = LogLoadParameters(log_start_offset=start_offset, recovery_point=start_offset)
        log = open_log(directory, topic_partition, topic_id, config, parameters, path)
    except OSError:
        # The log may be made in another directory next: it would lie in both.
        if not was_there:
            with suppress(OSError):
                directory.file_system.remove_tree(path)
        raise
    # The checkpoints may have entries of an earlier log of that name.
    log.local.is_overstated = log.local.is_start_overstated = True
    return log


def write_topic_id(directory: LogDirectory, path: str, topic_id: UUID) -> None:
    """Writes `partition.metadata`. Not synced: the metadata store knows the id too."""
    data = encode_partition_metadata(topic_id)
    directory.file_system.replace(f"{path}/{names.PARTITION_METADATA}", data, sync=False)


def read_topic_id(directory: LogDirectory, path: str) -> UUID | None:
    """The id in `partition.metadata`, None when it is missing or cannot be read."""
    file = f"{path}/{names.PARTITION_METADATA}"
    if directory.file_system.size(file) < 0:
        return None
    try:
        return parse_partition_metadata(directory.file_system.read_bytes(file))
    except CorruptCheckpoint:
        return None


def open_log(
    directory: LogDirectory,
    topic_partition: TopicPartition,
    topic_id: UUID,
    config: LogConfig,
    parameters: LogLoadParameters,
    path: str | None = None,
) -> Log:
    """Opens the log in the partition's directory, or at `path`; recovers it if necessary.

    Raises:
        OSError: the disk failed.
        CorruptRecords: a log that was closed in order has a damaged end.
    """
    path = path or directory.file_path(names.partition_directory(topic_partition))
    loader = _Loader(directory, path, config, parameters)
    segments = loader.load_segments()
    log_end_offset = loader.find_log_end(segments)
    epochs = loader.load_epochs(segments, log_end_offset)
    log_start_offset = max(parameters.log_start_offset, segments.first.base_offset)
    log_start_offset = min(log_start_offset, log_end_offset)
    # A crash may have interrupted the removal of segments before that of their epochs.
    epochs.truncate_from_start(log_start_offset)
    producers = ProducerStateManager(str(topic_partition))
    replay_producers(
        directory.file_system,
        path,
        segments,
        producers,
        log_end_offset,
        loader.recovered_from,
    )
    loader.mend_transaction_indexes(segments, log_end_offset)
    loader.remove_stray_snapshots(segments, log_end_offset)
    recovery_point = min(parameters.recovery_point, log_end_offset)
    local = LocalLog(
        directory,
        path,
        topic_partition,
        config,
        segments,
        log_start_offset,
        log_end_offset if parameters.was_clean else recovery_point,
        log_end_offset,
    )
    log = Log(local, topic_id, epochs, producers)
    local.is_overstated = parameters.recovery_point > log_end_offset
    local.is_start_overstated = parameters.log_start_offset > log_end_offset
    log.cleaned_offset = parameters.cleaned_offset
    # The active segment never is.
    log.limit_cleaned_offset(segments.active.base_offset)
    log.update_high_watermark(parameters.high_watermark)
    return log


class _Loader:
    """Opens one log."""

    def __init__(
        self, directory: LogDirectory, path: str, config: LogConfig, parameters: LogLoadParameters
    ) -> None:
        self._directory = directory
        self._file_system = directory.file_system
        self._path = path
        self._config = config
        self._parameters = parameters
        # (epoch, start offset) by the recovered records.
        self._seen_epochs: list[tuple[int, int]] = []
        # The base offset of the first segment that was recovered, -1 for none.
        self.recovered_from = UNKNOWN_OFFSET
        self._present: set[str] = set()
        # The base offsets of segments that lacked an index.
        self._mended: set[int] = set()

    def load_segments(self) -> LogSegments:
        """The segments of the files; an empty one if there are none."""
        offsets: list[int] = []
        others: list[tuple[int, str]] = []
        present = self._file_system.list_directory(self._path)
        if finish_replacements(self._file_system, self._path, present):
            self._parameters.report(f"{self._path}: compaction was interrupted, mended")
            present = self._file_system.list_directory(self._path)
        for name in present:
            if name.endswith(_LITTER):
                self._file_system.remove(f"{self._path}/{name}")
                continue
            parsed = names.parse_segment_file(name)
            if parsed is None:
                continue
            if parsed[1] == names.LOG_SUFFIX:
                offsets.append(parsed[0])
            elif parsed[1] != names.SNAPSHOT_SUFFIX:
                others.append(parsed)
        self._remove_orphans(offsets, others)
        if not offsets:
            return LogSegments([self._segment(self._parameters.log_start_offset, create=True)])
        segments = LogSegments([self._segment(offset) for offset in sorted(offsets)])
        self._present = set(present)
        self._mend_missing_indexes(segments)
        return segments

    def find_log_end(self, segments: LogSegments) -> int:
        """The log end offset, after recovery where that is needed."""
        if self._parameters.was_clean:
            active = segments.active
            if not active.indexes_are_sane():
                self._parameters.report(f"{active.file.path}: the indexes are damaged, rebuilding")
                active.rebuild_indexes()
            log_end_offset = active.next_offset()
            self._check_log_end(active, log_end_offset)
            return log_end_offset
        return self._recover(segments)

    def _check_log_end(self, active: LogSegment, log_end_offset: int) -> None:
        """Compares the end with where the log was closed.

        Raises:
            CorruptRecords: the last batch has an offset that it cannot have.
        """
        closed_at = self._parameters.recovery_point
        if log_end_offset < closed_at:
            self._parameters.report(
                f"{active.file.path}: it ends at offset {log_end_offset}, the log was closed "
                f"at {closed_at}: records are missing"
            )
        # The checkpoint alone may be an old one; a snapshot is written at an orderly end too.
        if (
            log_end_offset > closed_at
            and f"{closed_at:020d}{names.SNAPSHOT_SUFFIX}" in self._present
            and f"{log_end_offset:020d}{names.SNAPSHOT_SUFFIX}" not in self._present
        ):
            self._parameters.closed_at = closed_at
            raise CorruptRecords(
                f"{active.file.path}: it ends at offset {log_end_offset}, the log was closed "
                f"at {closed_at}"
            )

    def load_epochs(self, segments: LogSegments, log_end_offset: int) -> LeaderEpochCache:
        """The leader epochs of the checkpoint and the recovered records, or of all records."""
        file = f"{self._path}/{names.LEADER_EPOCH_CHECKPOINT}"
        cache = LeaderEpochCache(self._file_system, file)
        try:
            cache.restore(self._read_epochs(file, segments, log_end_offset))
        except CorruptCheckpoint as error:
            self._parameters.report(f"{file}: {error}, rebuilding it from the log")
            self._collect_epochs(segments)
            cache.restore([])
        if not self._parameters.was_clean:
            cache.truncate_from_end(log_end_offset)
        for epoch, start_offset in self._seen_epochs:
            if start_offset < log_end_offset:
                cache.note(epoch, start_offset)
        cache.flush_if_changed()
        return cache

    def mend_transaction_indexes(self, segments: LogSegments, log_end_offset: int) -> None:
        """Rebuilds transaction indexes that contradict the records, or may be missing as another
        index is; recovery has already done so."""
        for segment in segments.all():
            stem = f"{segment.base_offset:020d}"
            files = {stem + names.TXN_INDEX_SUFFIX, stem + names.TXN_CHECK_SUFFIX}
            is_mended = segment.base_offset in self._mended
            is_recovered = 0 <= self.recovered_from <= segment.base_offset
            if is_recovered or not (files & self._present or is_mended):
                continue
            following = segments.following(segment)
            end_offset = log_end_offset if following is None else following.base_offset
            problem = None if is_mended else find_damage(segment, end_offset)
            if problem is not None:
                path = segment.transactions.path
                self._parameters.report(f"{path}: {problem}, rebuilding it from the log")
            if problem is not None or is_mended:
                rebuild(self._file_system, segments, segment, end_offset)

    def remove_stray_snapshots(self, segments: LogSegments, log_end_offset: int) -> None:
        """Keeps the snapshots at segments' beginnings and the newest one."""
        kept = {segment.base_offset for segment in segments.all()}
        kept.add(log_end_offset)
        for offset in snapshot_offsets(self._file_system, self._path):
            if offset not in kept:
                self._file_system.remove(
                    names.segment_file(self._path, offset, names.SNAPSHOT_SUFFIX)
                )

    def _segment(self, base_offset: int, *, create: bool = False) -> LogSegment:
        return LogSegment(
            self._file_system,
            self._path,
            base_offset,
            self._config.index_interval_bytes,
            self._config.segment_index_bytes,
            self._directory.clock.wall_ms() if create else -1,
            create=create,
            initial_file_bytes=self._config.initial_file_bytes,
        )

    def _remove_orphans(self, offsets: list[int], others: list[tuple[int, str]]) -> None:
        with_log = set(offsets)
        for offset, suffix in others:
            if offset not in with_log:
                self._file_system.remove(names.segment_file(self._path, offset, suffix))

    def _mend_missing_indexes(self, segments: LogSegments) -> None:
        """Rebuilds the indexes of old segments of which a file is missing.

        Existing ones are checked when they are used. Recovery rebuilds its own.
        """
        old = segments.all()
        if not self._parameters.was_clean:
            old = old[: max(segments.index_of(self._parameters.recovery_point), 0)]
        for segment in old:
            stem = f"{segment.base_offset:020d}"
            missing = [
                suffix
                for suffix in (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)
                if stem + suffix not in self._present
            ]
            if missing:
                self._parameters.report(f"{segment.file.path}: {missing} missing, rebuilding")
                self._mended.add(segment.base_offset)
                segment.rebuild_indexes()
                if segment is not segments.active:
                    segment.seal()
                segment.release()

    def _check_last_closed(self, segment: LogSegment) -> None:
        """Checks the time index of the last closed segment: its records were synced while it was
        active, its indexes perhaps never."""
        if segment.indexes_are_sane():
            # Compares the end of the time index with the records, and mends it.
            _ = segment.max_timestamp
            return
        self._parameters.report(f"{segment.file.path}: the indexes are damaged, rebuilding")
        segment.rebuild_indexes()
        segment.seal()

    def _recover(self, segments: LogSegments) -> int:
        """Checks the records that may not have reached the disk; cuts the log at the first invalid
        one."""
        first = max(segments.index_of(self._parameters.recovery_point), 0)
        if first > 0:
            self._check_last_closed(segments.at(first - 1))
        unchecked = segments.all()[first:]
        next_offset = unchecked[0].base_offset
        self.recovered_from = next_offset
        for index, segment in enumerate(unchecked):
            size_bytes = segment.size_bytes
            following = segments.following(segment)
            end_offset = following.base_offset if following is not None else None
            if following is None and self._parameters.closed_at >= 0:
                end_offset = self._parameters.closed_at
            end = recover_segment(segment, next_offset, end_offset, self._note_epoch)
            next_offset = end.next_offset
            if self._parameters.on_bytes is not None:
                self._parameters.on_bytes(size_bytes)
            if end.reason is not None:
                dropped = size_bytes - segment.size_bytes
                self._parameters.report(
                    f"{segment.file.path}: {end.reason}; cut there, {dropped} bytes dropped"
                )
                if following is None or next_offset < following.base_offset:
                    self._drop(segments, unchecked[index + 1 :])
                    break
            if index + 1 < len(unchecked):
                segment.seal()
                segment.release()
        return max(next_offset, segments.active.base_offset)

    def _drop(self, segments: LogSegments, doomed: list[LogSegment]) -> None:
        for segment in doomed:
            self._parameters.report(f"{segment.file.path}: dropped, it lies behind a damaged one")
            segments.remove(segment)
            segment.release()
            segment.rename_files(names.DELETED_SUFFIX)
            for path in segment.paths():
                self._file_system.remove(path)

    def _note_epoch(self, header: BatchHeader, _: Buffer) -> None:
        epoch = header.partition_leader_epoch
        if epoch >= 0 and (not self._seen_epochs or self._seen_epochs[-1][0] < epoch):
            self._seen_epochs.append((epoch, header.base_offset))

    def _collect_epochs(self, segments: LogSegments) -> None:
        self._seen_epochs = []
        for segment in segments.all():
            walk_segment(segment, self._note_epoch, check=False)
            segment.release()

    def _read_epochs(
        self, file: str, segments: LogSegments, log_end_offset: int
    ) -> list[tuple[int, int]]:
        if self._file_system.size(file) < 0:
            if log_end_offset > 0:
                raise CorruptCheckpoint("it is missing")
            return []
        epochs = parse_epochs(self._file_system.read_bytes(file))
        log_start_offset = max(self._parameters.log_start_offset, segments.first.base_offset)
        problem = contradiction(epochs, segments, log_start_offset, log_end_offset)
        if problem is not None:
            raise CorruptCheckpoint(problem)
        return epochs
