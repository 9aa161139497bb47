"""`LocalLog`: the records of a replica on the disk, without their state in the cluster.

It has the segments, the log start and end offsets, and the recovery point. It writes, rolls,
flushes, and cuts at either end; `segment_reader` reads. `Log` has the other offsets (high
watermark, leaders, producers).

A segment to delete is renamed first, file by file with the log last, and removed after
`file.delete.delay.ms`; a reader that has it open can read on.
"""

from collections.abc import Callable, Sequence
from typing import Final

from mypy_extensions import mypyc_attr

from odradek.config.topic import LogConfig
from odradek.model import TopicPartition
from odradek.storage import names
from odradek.storage.errors import half_done
from odradek.storage.files import FileSystem
from odradek.storage.log.segment import LogSegment
from odradek.storage.log.segment_reader import SegmentReader
from odradek.storage.log.segments import LogSegments
from odradek.storage.log.staging import Staged
from odradek.storage.log.swap import end_replacement, put_in_place
from odradek.storage.log_directory import LogDirectory
from odradek.storage.producers.replay import remove_snapshots

# Durations and counts from this value on mean "never".
NEVER_MS: Final = 2**63 - 1


@mypyc_attr(allow_interpreted_subclasses=True)
class LogListener:
    """A log's events for housekeeping; by default none has an effect."""

    def on_unflushed(self, log: "LocalLog") -> None:
        """Called when the first record waits for the disk, and `flush.ms` is set."""

    def on_flush_due(self, log: "LocalLog") -> None:
        """Called when `flush.messages` records wait for the disk."""

    def on_rolled(self, log: "LocalLog") -> None:
        """Called when a segment was closed, and should be on the disk soon."""

    def on_log_start_offset(self, log: "LocalLog") -> None:
        """Called when the log start offset has moved, and should be written to the checkpoint."""

    def on_truncated(self, log: "LocalLog") -> None:
        """Called when the log was truncated: its checkpoints may be too high."""


class LocalLog:
    """The segments of one replica. There is always an active one, the last.

    It holds the records from `log_start_offset`, below which nothing is shown any more, up to
    `log_end_offset`, the offset of the next one. `recovery_point` is the offset up to which
    everything is on the disk.
    """

    def __init__(
        self,
        directory: LogDirectory,
        path: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        segments: LogSegments,
        log_start_offset: int,
        recovery_point: int,
        log_end_offset: int,
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.log_directory: Final = directory
        self.path = path
        self.segments: Final = segments
        self.reader: Final = SegmentReader(segments, directory)
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        self.log_end_offset = log_end_offset
        self.unflushed_records = 0
        self.is_closed = False
        self.listener = LogListener()
        # Whether a flush has synced the log's directory itself.
        self._is_listed = False
        # Whether a segment has been closed since the last flush.
        self._has_closed_segment = False
        # The lowest end since a copy of this log was cut to it (see `alter_log_dirs`).
        self.lowest_end_offset = log_end_offset
        # The offset below which the log still has the records that a flush under way syncs.
        self._flushing_to = 0
        # How often the log was truncated: a task that is reading its records has to start again.
        self.cuts = 0
        # Whether the log was cut below what its directory's checkpoints may say of it; of its start
        # this has to be put right before records follow.
        self.is_overstated = False
        self.is_start_overstated = False
        self.update_config(config)

    @property
    def is_usable(self) -> bool:
        """True unless the log is closed or its log directory has failed."""
        return not self.is_closed and self.log_directory.failure is None

    def update_config(self, config: LogConfig) -> None:
        """Takes new settings."""
        self.config = config
        self.segments.active.index_interval_bytes = config.index_interval_bytes
        self._flush_messages = config.flush_messages
        self._has_flush_messages = config.flush_messages < NEVER_MS
        self._has_flush_ms = config.flush_ms < NEVER_MS

    # Growing.

    def append(self, staged: Staged, now_ms: int) -> None:
        """Writes batches that have their offsets.

        Raises:
            OSError: nothing was written.
        """
        if self.is_start_overstated:
            self._correct_log_start()
        segment = self.segments.active
        position = segment.size_bytes
        segment.append(staged.buffers, staged.headers, staged.size_bytes, staged.aborted)
        segment.appended_ms = now_ms
        self.log_end_offset = staged.end_offset
        self.reader.remember_positions(staged.headers, position)

    def roll(self) -> None:
        """Closes the active segment and begins one at the log end.

        Raises:
            OSError: the old segment stays the active one.
        """
        active = self.segments.active
        if active.base_offset == self.log_end_offset:
            assert active.size_bytes == 0, (
                f"{self.path}: segment {active.base_offset} holds {active.size_bytes} bytes "
                f"and the log ends at {self.log_end_offset}"
            )
            return
        if self.is_overstated:
            self._correct_checkpoints()
        # Sealed first: a crash between the two leaves no half-filled index behind.
        active.seal()
        self._has_closed_segment = True
        segment = self._new_segment(self.log_end_offset)
        self.segments.add(segment)
        self.reader.forget_positions()

    def _correct_checkpoints(self) -> None:
        """Lowers what the checkpoints say of this log, which was cut.

        They are corrected in the background after a cut, but what they say of the active segment
        has no effect: a start recovers all of it, and has none of it compacted.
        """
        limits = {
            names.RECOVERY_POINT_CHECKPOINT: self.recovery_point,
            names.CLEANER_CHECKPOINT: self.segments.active.base_offset,
        }
        for name, offset in limits.items():
            self.log_directory.limit_offset(name, self.topic_partition, offset)
        self.is_overstated = False

    def _correct_log_start(self) -> None:
        """Lowers what the checkpoint says of the start of this log, which was cut below it.

        As long as the log ends there a start corrects it by the end; of records that follow it
        would hide the first.
        """
        self.log_directory.limit_offset(
            names.LOG_START_OFFSET_CHECKPOINT, self.topic_partition, self.log_start_offset
        )
        self.is_start_overstated = False

    def _new_segment(self, base_offset: int) -> LogSegment:
        try:
            return LogSegment(
                self.log_directory.file_system,
                self.path,
                base_offset,
                self.config.index_interval_bytes,
                self.config.segment_index_bytes,
                self.log_directory.clock.wall_ms(),
                create=True,
                initial_file_bytes=self.config.initial_file_bytes,
            )
        except OSError as error:
            self._remove_new_segment(base_offset, error)
            raise

    def _remove_new_segment(self, base_offset: int, cause: OSError) -> None:
        """An empty file with this name would pass for the log's end at the next start."""
        try:
            for suffix in names.SEGMENT_SUFFIXES:
                path = names.segment_file(self.path, base_offset, suffix)
                self.log_directory.file_system.remove(path)
        except OSError:
            raise half_done(self.path, cause) from cause

    # Flushing.

    def note_unflushed(self, record_count: int) -> None:
        """Counts records that wait for the disk, and calls the listener when a flush is due."""
        if self.unflushed_records == 0 and self._has_flush_ms:
            self.listener.on_unflushed(self)
        self.unflushed_records += record_count
        if self._has_flush_messages and self.unflushed_records >= self._flush_messages:
            self.listener.on_flush_due(self)

    @property
    def needs_flush(self) -> bool:
        """Whether records, or their indexes, may not be on the disk."""
        return self.recovery_point < self.log_end_offset or self._has_closed_segment

    def prepare_flush(self) -> tuple[int, Callable[[], None]]:
        """The files to sync, as work for another thread, and the offset that becomes durable by it.

        Call `on_flushed` with the offset when the work is done.
        """
        target = self.log_end_offset
        # One further back when there is a segment that was closed after its last record was synced.
        start = self.recovery_point - 1 if self._has_closed_segment else self.recovery_point
        unflushed = self.segments.between(start, target)
        self._has_closed_segment = False
        self._flushing_to = target
        handles = [segment.file.duplicate() for segment in unflushed if segment.size_bytes > 0]
        # Below the recovery point an index is trusted; the active one is always recovered.
        closed = [segment for segment in unflushed if segment is not self.segments.active]
        indexes = [path for segment in closed for path in segment.paths()[1:]]
        file_system = self.log_directory.file_system
        # A new segment survives a power failure only if its directory is synced, and a new log only
        # if the one above is.
        directories = [self.path] if self._is_listed else [self.path, self.log_directory.path]

        def work() -> None:
            try:
                # First: names that a truncation has taken must not come back beside what was
                # written since, as if they followed it.
                for directory in directories:
                    file_system.sync(directory)
                for handle in handles:
                    handle.sync()
            finally:
                for handle in handles:
                    handle.close()
            for index in indexes:
                _sync_if_there(file_system, index)

        return target, work

    def on_flushed(self, offset: int) -> None:
        """Moves the recovery point: everything below `offset` is on the disk.

        Records that were written again after a truncation were not part of the flush.
        """
        self._is_listed = True
        offset = min(offset, self._flushing_to)
        if offset > self.recovery_point:
            self.recovery_point = offset
        if self.recovery_point >= self.log_end_offset:
            self.unflushed_records = 0

    def flush(self) -> None:
        """Syncs the log and waits for it: for tools, tests and the end of the broker.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        if not self.needs_flush:
            return
        self.log_directory.check()
        try:
            target, work = self.prepare_flush()
            work()
        except OSError as error:
            # The kernel may have dropped the pages: the result of the next sync means nothing.
            self.log_directory.fail(error)
            raise self.log_directory.storage_error(error, f"syncing {self.path}") from error
        self.on_flushed(target)

    # Shrinking.

    def remove_segments(self, doomed: Sequence[LogSegment]) -> None:
        """Takes segments out of the log and their files out of the way.

        Raises:
            OSError: EIO, a file could not be renamed; the segments are out of the log, and the
                next start may find some of them.
        """
        paths: list[str] = []
        for segment in doomed:
            self.segments.remove(segment)
        try:
            for segment in doomed:
                segment.release()
                segment.rename_files(names.DELETED_SUFFIX)
                paths.extend(segment.paths())
                snapshot = names.segment_file(self.path, segment.base_offset, names.SNAPSHOT_SUFFIX)
                self.log_directory.file_system.remove(snapshot)
        except OSError as error:
            raise half_done(self.path, error) from error
        self.log_directory.delete_later(paths, self.config.file_delete_delay_ms)

    def replace_segments(self, old: list[LogSegment]) -> None:
        """Replaces `old` segments by the cleaned one beside them, which has the base offset of the
        first of them and is on the disk.

        A crash at any point leaves the old ones or the new one (`swap`).

        Raises:
            OSError: the disk refused; the contents of the files are unknown then.
        """
        following = self.segments.following(old[-1])
        assert following is not None, (
            f"{self.path}: segment {old[-1].base_offset} is being appended to"
        )
        new = LogSegment(
            self.log_directory.file_system,
            self.path,
            old[0].base_offset,
            self.config.index_interval_bytes,
            self.config.segment_index_bytes,
            old[-1].created_ms,
            suffix=names.CLEANED_SUFFIX,
        )
        new.appended_ms = old[-1].appended_ms
        file_system = self.log_directory.file_system
        new.rename_files(names.SWAP_SUFFIX)
        self.segments.replace(old, new)
        old[0].release()
        paths = put_in_place(file_system, self.path, new.base_offset)
        new.renamed("")
        # Its replacement has all their records: another process that reads the files finds them
        # there.
        for segment in old[1:]:
            segment.release()
            segment.rename_files(names.DELETED_SUFFIX)
            paths.extend(segment.paths())
        # A replay begins at the beginning of a cleaned segment, or behind it: nowhere within.
        remove_snapshots(file_system, self.path, new.base_offset, following.base_offset)
        end_replacement(file_system, self.path, new.base_offset)
        self.log_directory.delete_later(paths, self.config.file_delete_delay_ms)

    def cut_end(self, offset: int) -> None:
        """Drops everything from `offset` on, which is in the log.

        Only whole batches are dropped: if `offset` is within a batch, the log ends below it.

        Raises:
            OSError: the disk refused.
        """
        active = self.segments.floor(offset)
        assert active is not None, f"{self.path} begins behind {offset}"
        self.cuts += 1
        # Before any change: a full disk may refuse the look-up.
        place = active.locate(offset)
        # The last one first: a crash in between must leave no gap in front of what is left.
        cut_off = [s for s in self.segments.all() if s.base_offset > active.base_offset]
        self.remove_segments(cut_off[::-1])
        if place is not None:
            offset = min(offset, place.base_offset)
            try:
                active.cut(place.position, offset)
            except OSError as error:
                raise half_done(active.file.path, error) from error
        self.log_end_offset = offset
        self._limit_log_start(offset)
        self._limit_recovery_point(offset)
        self._flushing_to = min(self._flushing_to, offset)
        self.lowest_end_offset = min(self.lowest_end_offset, offset)
        self.reader.forget_positions()

    def start_over(self, offset: int) -> None:
        """Drops everything; the next record gets `offset`.

        Raises:
            OSError: the disk refused.
        """
        self.cuts += 1
        self.remove_segments(self.segments.all())
        try:
            self.segments.add(self._new_segment(offset))
        except OSError as error:
            raise half_done(self.path, error) from error
        self._limit_log_start(offset)
        self.log_start_offset = offset
        self.log_end_offset = offset
        self._limit_recovery_point(offset)
        self.recovery_point = offset
        self._flushing_to = min(self._flushing_to, offset)
        self.lowest_end_offset = min(self.lowest_end_offset, offset)
        self.reader.forget_positions()

    def _limit_log_start(self, offset: int) -> None:
        if offset < self.log_start_offset:
            self.log_start_offset = offset
            self.is_start_overstated = True

    def _limit_recovery_point(self, offset: int) -> None:
        if offset < self.recovery_point:
            self.recovery_point = offset
            self.is_overstated = True

    def moved(self, path: str) -> None:
        """Notes that the directory has been renamed."""
        self.path = path
        self._is_listed = False
        for segment in self.segments.all():
            segment.moved(path)

    def abandon(self) -> None:
        """Releases all files as they are: the log is being deleted or its disk has failed."""
        self.is_closed = True
        self.release_files()

    def release_files(self) -> None:
        """Gives all descriptors back; the next use takes new ones."""
        for segment in self.segments.all():
            segment.release()

    def close_segments(self) -> None:
        """Leaves the files of all segments as a reader expects them."""
        for segment in self.segments.all():
            segment.close()


def _sync_if_there(file_system: FileSystem, path: str) -> None:
    """Syncs an index. Retention or compaction may remove it at any moment; then it is not needed,
    or its replacement has been synced.
    """
    try:
        if file_system.size(path) > 0:
            file_system.sync(path)
    except FileNotFoundError:
        return
