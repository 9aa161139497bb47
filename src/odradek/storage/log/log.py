"""`Log`: one replica's records, and the offsets that it guarantees to readers.

    log start offset        high watermark         log end offset
          |                       |                      |
    [ segment 0 ][ segment 4711 ][ segment 9200, active  )

A log consists of parts, and code that needs only one of them gets that one: the `appender` checks
records and gives them offsets, `local` has the files and the log's two ends, `reader` finds records
in them, `producers` and `leader_epochs` keep what follows from the records. `Log` itself has the
high watermark, and what involves several parts: bounds of reads, retention, truncation and closing.

An accepted record is in the page cache: it survives the death of the process. It is on the disk
when `local.recovery_point` has passed it. A log belongs to the event loop and has no lock; blocking
work runs in the background. Failures of the disk come out as BrokerError with KAFKA_STORAGE_ERROR.
Opening and recovery are in `loading`.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from odradek.background import note_refusal
from odradek.config.topic import LogConfig
from odradek.errors import BrokerError, ErrorCode
from odradek.storage.errors import half_done
from odradek.storage.leases import Holding
from odradek.storage.log.appender import LogAppender
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.log.local_log import LocalLog
from odradek.storage.log.offset_metadata import LogOffsetMetadata, LogReadInfo, TimestampOffset
from odradek.storage.log.retention import segments_to_delete, without_held
from odradek.storage.log.segment import LogSegment
from odradek.storage.producers.producer_state import ProducerStateManager
from odradek.storage.producers.replay import remove_snapshots, replay_producers, take_snapshot

SLICE_LOGS: Final = 200
"""How many logs one turn of the loop looks at."""


class Log:
    """The records of one replica of a partition.

    `log_start_offset <= high_watermark <= log_end_offset`; consumers see what lies between
    the first two, of committed data what lies below `last_stable_offset`.
    """

    def __init__(
        self,
        local: LocalLog,
        topic_id: UUID,
        leader_epochs: LeaderEpochCache,
        producers: ProducerStateManager,
    ) -> None:
        self.local: Final = local
        self.leader_epochs: Final = leader_epochs
        self.producers: Final = producers
        self.appender: Final = LogAppender(local, producers, leader_epochs)
        self.topic_partition: Final = local.topic_partition
        self.log_directory: Final = local.log_directory
        self.segments: Final = local.segments
        self.reader: Final = local.reader
        self.config = local.config
        self.topic_id = topic_id
        self.high_watermark = local.log_start_offset
        # Everything below has been compacted, if that is the log's policy.
        self.cleaned_offset = 0
        # Whether records have gone by a truncation, and the disk has refused what follows from it.
        self.is_half_truncated = False
        self.held_from_compaction: Final = Holding()
        self._held_from_retention: Final = Holding()
        # The offset from which on a schedule topic has pending records, set by its leader.
        self.first_needed_offset: Callable[[], int] | None = None

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers are shown."""
        return self.local.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.local.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of the records for readers of committed data."""
        unstable = self.producers.first_unstable_offset
        if unstable < 0 or unstable > self.high_watermark:
            return self.high_watermark
        return max(unstable, self.local.log_start_offset)

    def update_config(self, config: LogConfig) -> None:
        """Takes new settings; they hold from the next append on."""
        self.config = config
        self.local.update_config(config)
        self.appender.update_config(config)

    # Reading.

    def read(
        self, fetch_offset: int, max_bytes: int, upper_offset: int, min_one_message: bool
    ) -> LogReadInfo:
        """The log from the batch that holds `fetch_offset` on, below `upper_offset`.

        At most `max_bytes`, from one segment; the last batch may be cut short, which every
        client allows for, since Kafka does the same. If not even the first batch fits, it is
        returned whole with `min_one_message`, otherwise nothing is.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        log_end_offset = self.local.log_end_offset
        if fetch_offset > log_end_offset or fetch_offset < self.local.log_start_offset:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: offset {fetch_offset} is not between "
                f"{self.local.log_start_offset} and {log_end_offset}",
            )
        upper_offset = min(upper_offset, log_end_offset)
        if fetch_offset >= upper_offset:
            place = self.convert_offset(fetch_offset)
            return LogReadInfo(place or LogOffsetMetadata(fetch_offset), [], 0)
        return self.reader.read(
            fetch_offset, max_bytes, upper_offset, log_end_offset, min_one_message
        )

    def convert_offset(self, offset: int) -> LogOffsetMetadata | None:
        """The place of an offset, None when the log does not hold it (any more).

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        local = self.local
        if offset == local.log_end_offset:
            active = self.segments.active
            return LogOffsetMetadata(offset, active.base_offset, active.size_bytes)
        if offset > local.log_end_offset or offset < local.log_start_offset:
            return None
        return self.reader.place_of(offset)

    def fetch_offset_by_timestamp(self, timestamp: int, upper: int) -> TimestampOffset | None:
        """The first record below `upper` whose timestamp is not older, None when there is none.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        found = self.reader.find_timestamp(timestamp, self.local.log_start_offset)
        return found if found is not None and found.offset < upper else None

    # The high watermark, and the start.

    def update_high_watermark(self, offset: int) -> None:
        """Sets the high watermark, kept between log start and log end."""
        local = self.local
        self.high_watermark = max(local.log_start_offset, min(offset, local.log_end_offset))
        self.producers.on_high_watermark(self.high_watermark)

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Forgets the records below `offset`; returns whether anything changed.

        Segments that lie below entirely go with the next retention.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE, the offset is above the high watermark.
        """
        if offset > self.high_watermark:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: the log cannot start at {offset}, "
                f"above the high watermark {self.high_watermark}",
            )
        self.log_directory.check()
        if offset <= self.local.log_start_offset:
            return False
        self._start_at(offset)
        return True

    # Shrinking, and the end.

    def truncate_to(self, offset: int) -> bool:
        """Drops the batches that reach to `offset` or beyond; returns whether there were any.

        Also does what the disk has refused to an earlier attempt, once its records had gone.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        local = self.local
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        if offset < local.log_end_offset:
            self._cut_end(offset)
            self.is_half_truncated = True
        if not self.is_half_truncated:
            # An epoch in which this replica led and wrote nothing is no part of the history.
            self._end_epochs()
            return False
        self.finish_truncation()
        return True

    def try_to_finish_truncation(self) -> None:
        """Like `finish_truncation`, but a refusal is only logged: it is done with a later attempt,
        with the next records at the latest."""
        try:
            self.finish_truncation()
        except BrokerError as error:
            note_refusal(f"the truncation of {self.topic_partition} is finished later", error)

    def finish_truncation(self) -> None:
        """Does what the disk has refused to a truncation whose records have gone, if it has.

        Called before records follow a truncation: the cut itself is not due any more.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        if self.is_half_truncated:
            self._follow_cut()
            self.is_half_truncated = False

    def _cut_end(self, offset: int) -> None:
        local = self.local
        try:
            local.cut_end(offset)
        except OSError as error:
            raise self.log_directory.storage_error(error, f"truncating {local.path}") from error

    def _follow_cut(self) -> None:
        """Brings what follows from the records to the log end, where they have gone already.

        First what no disk can refuse, so that it is true whatever happens to the rest.
        """
        local = self.local
        self.update_high_watermark(self.high_watermark)
        self.limit_cleaned_offset(local.log_end_offset)
        local.listener.on_truncated(local)
        # A full disk must not stop this half-way: other files would still have the truncated
        # records.
        self._end_epochs()
        self._replay_producers()
        self._keep_end()

    def _replay_producers(self) -> None:
        local = self.local
        try:
            replay_producers(
                self.log_directory.file_system,
                local.path,
                self.segments,
                self.producers,
                local.log_end_offset,
            )
        except OSError as error:
            # Appends would be checked against producers of other records.
            failure = half_done(local.path, error)
            raise self.log_directory.storage_error(failure, f"truncating {local.path}") from error
        self.producers.on_high_watermark(self.high_watermark)

    def limit_cleaned_offset(self, offset: int) -> None:
        """Notes that nothing from `offset` on is compacted."""
        if offset < self.cleaned_offset:
            self.cleaned_offset = offset
            self.local.is_overstated = True

    def _keep_end(self) -> None:
        """Begins a segment at the log end if compaction has left no batch in front of it: the next
        start takes the end of the last batch, or the base of the last segment, for the log end.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        local = self.local
        try:
            end_offset = self.segments.active.next_offset()
        except OSError as error:
            raise self.log_directory.storage_error(error, f"reading {local.path}") from error
        if end_offset < local.log_end_offset:
            self.appender.roll()

    def _end_epochs(self) -> None:
        """Forgets the epochs that begin at the log end; the file may be written later."""
        local = self.local
        self.log_directory.attempt(
            lambda: self.leader_epochs.truncate_from_end(local.log_end_offset),
            f"writing in {local.path}",
        )

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops all records; the next one gets `offset`: for a follower left far behind.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        local = self.local
        try:
            # First: producers of dropped records must not be the start of a replay.
            remove_snapshots(self.log_directory.file_system, local.path)
            local.start_over(offset)
            self.log_directory.attempt(self.leader_epochs.clear, f"writing in {local.path}")
        except OSError as error:
            raise self.log_directory.storage_error(error, f"emptying {local.path}") from error
        self.producers.load([], offset)
        self.limit_cleaned_offset(offset)
        self.cleaned_offset = offset
        self.update_high_watermark(offset)
        local.listener.on_truncated(local)
        self.is_half_truncated = False

    def delete_old_segments(self, now_ms: int) -> int:
        """Drops the segments that retention does not keep; returns how many.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        local = self.local
        try:
            doomed = segments_to_delete(
                self.segments,
                self.config,
                local.log_start_offset,
                self.high_watermark,
                local.log_end_offset,
                now_ms,
            )
            doomed = self._without_needed(doomed)
            if doomed:
                held = self._held_from_retention.offset(
                    self.log_directory.file_system, local.path, now_ms
                )
                doomed = without_held(doomed, self.segments, local.log_start_offset, held)
            else:
                self._held_from_retention.end()
            if not doomed:
                return 0
            if len(doomed) == len(self.segments):
                # The active one is deleted too: its successor has to exist first, and so does a
                # snapshot of the producers.
                self.appender.roll()
            local.remove_segments(doomed)
        except OSError as error:
            raise self.log_directory.storage_error(error, f"retention of {local.path}") from error
        self._start_at(max(local.log_start_offset, self.segments.first.base_offset))
        return len(doomed)

    def _without_needed(self, doomed: list[LogSegment]) -> list[LogSegment]:
        """The first segments without pending schedules; a follower leaves that to the leader, whose
        log start it follows."""
        if not self.config.is_schedule or not doomed:
            return doomed
        start, needed = self.local.log_start_offset, self.first_needed_offset
        return without_held(doomed, self.segments, start, start if needed is None else needed())

    def _start_at(self, offset: int) -> None:
        self.local.log_start_offset = offset
        self.log_directory.attempt(
            lambda: self.leader_epochs.truncate_from_start(offset), f"writing in {self.local.path}"
        )
        self.local.listener.on_log_start_offset(self.local)

    def close(self) -> None:
        """Leaves the files as the next start expects them; the log cannot be used after it.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; the next start recovers the log.
        """
        local = self.local
        if local.is_closed:
            return
        local.is_closed = True
        # First, since it opens files.
        local.flush()
        try:
            take_snapshot(self.log_directory.file_system, local.path, self.producers)
            self.leader_epochs.flush_if_changed()
            local.close_segments()
        except OSError as error:
            raise self.log_directory.storage_error(error, f"closing {local.path}") from error
