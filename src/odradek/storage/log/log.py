"""`Log`: one replica's records, and what the replica may promise about them.

    log start offset        high watermark         log end offset
          |                       |                      |
    [ segment 0 ][ segment 4711 ][ segment 9200, active  )

Offsets are given here and nowhere else. Appending takes everything that one read of a socket
brought for this partition and writes it at once; each produce request gets its own answer,
and none is accepted whose bytes are not in the file. An accepted record is in the page cache:
it survives the death of the process. It is on the disk when `recovery_point` has passed it.

A log belongs to the event loop and has no lock; what blocks is handed to the background.
Failures of the disk come out as BrokerError with KAFKA_STORAGE_ERROR, and the `LogDirectory`
decides whether it was the disk's last word. What a record must be is decided in
`records.validate`, what is remembered of producers in `producer_state`, how the files are kept
in `local_log`, opening and recovery in `loading`.
"""

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from mypy_extensions import mypyc_attr

from odradek.config.topic import LogConfig
from odradek.errors import BrokerError, ErrorCode
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.batch import BatchHeader, Buffer, split_batches
from odradek.records.errors import CorruptRecords
from odradek.records.validate import (
    Batches,
    BatchRules,
    PreparedRecords,
    ValidRecords,
    validate_produced,
)
from odradek.storage import names
from odradek.storage.index.transaction_index import AbortedEntry
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.log.local_log import LocalLog
from odradek.storage.log.offset_metadata import (
    AbortedTransaction,
    LogAppendInfo,
    LogOffsetMetadata,
    LogReadInfo,
    TimestampOffset,
)
from odradek.storage.log.recovery import check_batch
from odradek.storage.log.retention import segments_to_delete
from odradek.storage.log.roll_rules import segment_ms
from odradek.storage.log.segments import LogSegments
from odradek.storage.log.staging import Staged
from odradek.storage.log_directory import LogDirectory
from odradek.storage.producers.end_marker import parse_end_marker
from odradek.storage.producers.producer_snapshot import encode_snapshot
from odradek.storage.producers.producer_state import BatchMetadata, ProducerStateManager
from odradek.storage.producers.replay import replay_producers

AppendResult = LogAppendInfo | BrokerError

# Durations and counts are this large when they are not meant.
NEVER_MS: Final = 2**63 - 1


_CLIENT: Final = AppendOrigin.CLIENT
_REPLICATION: Final = AppendOrigin.REPLICATION


@mypyc_attr(allow_interpreted_subclasses=True)
class LogListener:
    """What a log tells whoever looks after it: five occasions for housekeeping, taken by none."""

    def on_unflushed(self, log: "Log") -> None:
        """The first record waits for the disk, and `flush.ms` is set."""

    def on_flush_due(self, log: "Log") -> None:
        """`flush.messages` records wait for the disk."""

    def on_rolled(self, log: "Log") -> None:
        """A segment has been closed, and should be on the disk soon."""

    def on_log_start_offset(self, log: "Log") -> None:
        """The log start offset has moved, and should be written down."""

    def on_truncated(self, log: "Log") -> None:
        """The end was cut: what was written down of the log may claim too much."""


class Log(LocalLog):
    """The records of one replica of a partition.

    `log_start_offset <= high_watermark <= log_end_offset`; consumers see what lies between
    the first two, of committed data what lies below `last_stable_offset`.
    """

    def __init__(
        self,
        directory: LogDirectory,
        path: str,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        segments: LogSegments,
        log_start_offset: int,
        recovery_point: int,
        log_end_offset: int,
        leader_epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        snapshot_offset: int,
    ) -> None:
        super().__init__(
            directory, path, topic_partition, config, segments, recovery_point, log_end_offset
        )
        self.topic_id = topic_id
        self.log_start_offset = log_start_offset
        self.high_watermark = log_start_offset
        # Everything below has been compacted, as far as that is this log's policy.
        self.cleaned_offset = 0
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.listener = LogListener()
        self._take_config()
        # The offset of the latest producer snapshot on the disk.
        self._snapshot_offset = snapshot_offset
        # Nothing was ever written here.
        self._is_new = log_end_offset == 0

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed data see what lies below."""
        unstable = self.producers.first_unstable_offset
        if unstable < 0 or unstable > self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def update_config(self, config: LogConfig) -> None:
        """Takes new settings; they hold from the next append on."""
        self.config = config
        self._take_config()
        self.segments.active.index_interval_bytes = config.index_interval_bytes

    def _take_config(self) -> None:
        """What every append asks of the settings, kept where compiled code reads it directly."""
        config = self.config
        self._rules = BatchRules.from_config(config)
        self._segment_bytes = config.segment_bytes
        self._segment_ms = segment_ms(self.topic_partition, config)
        self._flush_messages = config.flush_messages
        self._has_flush_messages = config.flush_messages < NEVER_MS
        self._has_flush_ms = config.flush_ms < NEVER_MS

    # Appending.

    def append_as_leader(
        self,
        batches: Sequence[Batches],
        leader_epoch: int,
        origin: AppendOrigin = _CLIENT,
        transaction_version: int = 0,
    ) -> list[AppendResult]:
        """Appends the records of many produce requests; one result for each, in order.

        Every view is one request's records, writable and valid until this returns: offsets,
        leader epoch and (by topic) timestamps are stamped in place. A refused one does not
        hold up the others. Never raises a BrokerError: errors are values here. End markers are
        checked by the rules of the `transaction_version` that their coordinator names.
        """
        failure = self._unusable()
        if failure is not None:
            return [failure for _ in batches]
        results: list[AppendResult] = []
        now_ms = self.log_directory.clock.wall_ms()
        staged = Staged(self.log_end_offset)
        for records in batches:
            try:
                valid = self._validate(records, now_ms, origin)
                duplicate = self._check_producer(valid, origin, transaction_version)
                if duplicate is None and self._make_room(staged, valid, now_ms, results):
                    # The disk may have refused the batch that this one follows.
                    duplicate = self._check_producer(valid, origin, transaction_version)
                if duplicate is None:
                    results.append(self._stage(staged, valid, leader_epoch))
                else:
                    results.append(self._duplicate_info(duplicate))
            except BrokerError as error:
                results.append(error)
        self._settle(staged, now_ms, results)
        return results

    @property
    def rules(self) -> BatchRules:
        """What is demanded of records now; another object after a change of the settings."""
        return self._rules

    def _validate(self, records: Batches, now_ms: int, origin: AppendOrigin) -> ValidRecords:
        if isinstance(records, PreparedRecords):
            if records.rules is self._rules:
                return records.valid
            records = records.source
        return validate_produced(records, self._rules, now_ms, origin)

    def append_as_follower(self, records: memoryview) -> LogAppendInfo:
        """Appends what the leader's log holds, offsets and epochs as they are.

        A partial batch at the end, as Fetch answers may have, is left out.

        Raises:
            BrokerError: CORRUPT_MESSAGE, or KAFKA_STORAGE_ERROR; nothing, or only whole
                segments before the failure, were appended.
        """
        failure = self._unusable()
        if failure is not None:
            raise failure
        now_ms = self.log_directory.clock.wall_ms()
        headers = self._replicated_headers(records)
        info = LogAppendInfo(self.log_end_offset, self.log_end_offset - 1, self.log_start_offset)
        staged = Staged(self.log_end_offset)
        for header in headers:
            batch = records[header.position : header.end_position]
            if self._should_roll(staged, header, header.size_bytes, now_ms):
                self._write(staged, now_ms)
                staged.clear(self.log_end_offset, 0)
                self.roll()
            staged.add(header)
            staged.add_buffer(batch)
            self._take_in(header, batch, staged)
            info.last_offset = header.last_offset
            info.record_count += max(header.record_count, 1)
            info.size_bytes += header.size_bytes
            info.max_timestamp = max(info.max_timestamp, header.max_timestamp)
        self._write(staged, now_ms)
        return info

    def _unusable(self) -> BrokerError | None:
        if not self.is_closed and self.log_directory.failure is None:
            return None
        return BrokerError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{self.topic_partition}: the log in {self.log_directory.path} is offline",
        )

    def _check_producer(
        self, valid: ValidRecords, origin: AppendOrigin, transaction_version: int
    ) -> BatchMetadata | None:
        """What `ProducerStateManager.check` says of a batch that has a producer.

        Raises:
            BrokerError: as there.
        """
        header = valid.batches[0]
        if header.producer_id < 0:
            return None
        if not header.is_control:
            return self.producers.check(header, origin, self._is_new)
        marker = parse_end_marker(valid.data)
        if marker is not None:
            self.producers.check_marker(
                header, marker.coordinator_epoch, origin, transaction_version
            )
        return None

    def _duplicate_info(self, batch: BatchMetadata) -> LogAppendInfo:
        return LogAppendInfo(
            batch.first_offset,
            batch.last_offset,
            self.log_start_offset,
            log_append_time_ms=batch.timestamp,
            max_timestamp=batch.timestamp,
            duplicate=True,
        )

    def _make_room(
        self, staged: Staged, valid: ValidRecords, now_ms: int, results: list[AppendResult]
    ) -> bool:
        """Rolls the segment if the records do not belong into it; writes what waits first.

        Returns whether it had to: what waited is in the log then, or was refused.

        Raises:
            BrokerError: RECORD_LIST_TOO_LARGE; KAFKA_STORAGE_ERROR, the new segment could not
                be made, the last one not be read, or the directory has failed.
        """
        size_bytes = valid.size_bytes
        if size_bytes > self._segment_bytes:
            raise BrokerError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{self.topic_partition}: {size_bytes} bytes of records do not fit into a "
                f"segment of {self._segment_bytes}",
            )
        header = valid.batches[0]
        if not self._should_roll(staged, header, size_bytes, now_ms):
            return False
        self._settle(staged, now_ms, results)
        staged.clear(self.log_end_offset, len(results))
        self.log_directory.check()
        # Not if the disk has just refused what would have filled it.
        if self._should_roll(staged, header, size_bytes, now_ms):
            self.roll()
        return True

    def _should_roll(
        self, staged: Staged, header: BatchHeader, size_bytes: int, now_ms: int
    ) -> bool:
        try:
            return self.segments.active.should_roll(
                staged.size_bytes,
                size_bytes,
                staged.end_offset + header.last_offset_delta,
                header.max_timestamp,
                now_ms,
                self._segment_bytes,
                self._segment_ms,
            )
        except OSError as error:
            raise self.log_directory.storage_error(error, f"appending to {self.path}") from error

    def _stage(self, staged: Staged, valid: ValidRecords, leader_epoch: int) -> LogAppendInfo:
        """Gives the records their offsets and puts them in the row for the next write."""
        first_offset = staged.end_offset
        valid.assign(first_offset, leader_epoch)
        for header in valid.batches:
            staged.add(header)
            self._take_in(header, valid.data, staged)
        staged.add_buffer(valid.data)
        offset_of_max = first_offset + valid.max_timestamp_index
        return LogAppendInfo(
            first_offset,
            staged.end_offset - 1,
            self.log_start_offset,
            valid.record_count,
            valid.size_bytes,
            valid.log_append_time_ms,
            valid.max_timestamp,
            offset_of_max if valid.max_timestamp_index >= 0 else -1,
        )

    def _take_in(self, header: BatchHeader, batch: Buffer, staged: Staged) -> None:
        """Lets the producer state know of a batch that has its offsets."""
        if header.producer_id < 0:
            return
        if not header.is_control:
            self.producers.update(header)
            return
        marker = parse_end_marker(batch)
        if marker is not None:
            completed = self.producers.complete(header, marker.is_commit, marker.coordinator_epoch)
            if completed is not None and completed.is_aborted:
                # Asked now: what follows in the row may decide or begin other transactions.
                stable = self.producers.last_stable_offset(completed)
                staged.aborted.append(
                    AbortedEntry(
                        completed.producer_id, completed.first_offset, completed.last_offset, stable
                    )
                )

    def _replicated_headers(self, records: memoryview) -> list[BatchHeader]:
        headers = split_batches(records, drop_partial_tail=True)
        expected = self.log_end_offset
        for header in headers:
            check_batch(records, header)
            if header.last_offset < expected:
                raise CorruptRecords(
                    f"{self.topic_partition}: the leader sent offset {header.last_offset} "
                    f"where {expected} is due"
                )
            expected = header.last_offset + 1
        return headers

    def _settle(self, staged: Staged, now_ms: int, results: list[AppendResult]) -> None:
        """Writes what is staged; if the disk refuses it, its results become errors."""
        try:
            self._write(staged, now_ms)
        except BrokerError as failure:
            for index in range(staged.first_result, len(results)):
                # Those of duplicates too: what they repeat may be what was refused.
                if isinstance(results[index], LogAppendInfo):
                    results[index] = failure

    def _write(self, staged: Staged, now_ms: int) -> None:
        """Writes what is staged.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; nothing was written.
        """
        if staged.size_bytes == 0:
            return
        segment = self.segments.active
        position = segment.size_bytes
        try:
            segment.append(staged.buffers, staged.headers, staged.size_bytes, staged.aborted)
        except OSError as error:
            self.producers.rollback()
            doing = f"appending to {segment.file.path}"
            raise self.log_directory.storage_error(error, doing) from error
        segment.appended_ms = now_ms
        self.producers.commit()
        self.log_end_offset = staged.end_offset
        self.producers.map_end_offset = staged.end_offset
        self._is_new = False
        self.reader.remember_positions(staged.headers, position)
        self._note_epochs(staged.headers)
        self._note_unflushed(staged.record_count, now_ms)

    def _note_epochs(self, headers: list[BatchHeader]) -> None:
        for header in headers:
            if header.partition_leader_epoch > self.leader_epochs.latest_epoch:
                self.assign_epoch(header.partition_leader_epoch, header.base_offset)

    def _note_unflushed(self, record_count: int, now_ms: int) -> None:
        if self.unflushed_records == 0:
            self.first_unflushed_ms = now_ms
            if self._has_flush_ms:
                self.listener.on_unflushed(self)
        self.unflushed_records += record_count
        if self._has_flush_messages and self.unflushed_records >= self._flush_messages:
            self.listener.on_flush_due(self)

    # Reading.

    def read(
        self, fetch_offset: int, max_bytes: int, upper_offset: int, min_one_message: bool
    ) -> LogReadInfo:
        """The log from the batch that holds `fetch_offset` on, below `upper_offset`.

        At most `max_bytes`, from one segment; the last batch may be cut short, which every
        client allows for, since Kafka does the same. If not even the first batch fits, it is
        returned whole with `min_one_message`, and else nothing is.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        if fetch_offset > self.log_end_offset or fetch_offset < self.log_start_offset:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: offset {fetch_offset} is not between "
                f"{self.log_start_offset} and {self.log_end_offset}",
            )
        upper_offset = min(upper_offset, self.log_end_offset)
        if fetch_offset >= upper_offset:
            place = self.convert_offset(fetch_offset)
            return LogReadInfo(place or LogOffsetMetadata(fetch_offset), [], 0)
        return self.reader.read(
            fetch_offset, max_bytes, upper_offset, self.log_end_offset, min_one_message
        )

    def aborted_transactions(
        self, fetch_offset: int, upper_offset: int
    ) -> list[AbortedTransaction]:
        """The aborted transactions with records in [fetch offset, upper offset).

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        return self.reader.aborted_transactions(fetch_offset, upper_offset)

    def convert_offset(self, offset: int) -> LogOffsetMetadata | None:
        """The place of an offset, None when the log does not hold it (any more).

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        if offset == self.log_end_offset:
            return self.log_end_offset_metadata
        if offset > self.log_end_offset or offset < self.log_start_offset:
            return None
        return self.reader.place_of(offset)

    def fetch_offset_by_timestamp(self, timestamp: int, upper: int) -> TimestampOffset | None:
        """The first record below `upper` whose timestamp is not older, None when there is none.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        found = self.reader.find_timestamp(timestamp, self.log_start_offset)
        return found if found is not None and found.offset < upper else None

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first of the records with the largest timestamp; None without timestamps.

        Of all that the segments hold: as in Kafka it may lie below the log's start.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        return self.reader.find_max_timestamp()

    # Watermarks and epochs.

    def update_high_watermark(self, offset: int) -> int:
        """Sets the high watermark, kept between log start and log end; returns it."""
        self.high_watermark = max(self.log_start_offset, min(offset, self.log_end_offset))
        self.producers.on_high_watermark(self.high_watermark)
        return self.high_watermark

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
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self._guarded(lambda: self.leader_epochs.truncate_from_start(offset))
        self.listener.on_log_start_offset(self)
        return True

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Notes that a leader's epoch begins at `start_offset`.

        The batches name their epoch too, so a full disk is no reason to fail: the file is
        written again with the next epoch and when the log is closed.
        """
        self._guarded(lambda: self.leader_epochs.assign(epoch, start_offset))

    # Rolling and shrinking.

    def roll(self) -> None:
        """Begins a new segment at the log end; nothing happens if the last one is empty.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; the old segment stays the active one.
        """
        try:
            self.roll_segment()
            self.write_snapshot()
        except OSError as error:
            raise self.log_directory.storage_error(error, f"rolling {self.path}") from error
        self.listener.on_rolled(self)

    def truncate_to(self, offset: int) -> bool:
        """Drops the batches that reach to `offset` or beyond; returns whether there were any.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        if offset >= self.log_end_offset:
            # An epoch in which this replica led and wrote nothing is no part of the history.
            self._guarded(lambda: self.leader_epochs.truncate_from_end(self.log_end_offset))
            return False
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        try:
            self.cut_end(offset)
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            self._rebuild_producers()
        except OSError as error:
            raise self.log_directory.storage_error(error, f"truncating {self.path}") from error
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self.cleaned_offset = min(self.cleaned_offset, self.log_end_offset)
        self.update_high_watermark(self.high_watermark)
        self.listener.on_truncated(self)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops all records; the next one gets `offset`: for a follower left far behind.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        try:
            self.start_over(offset)
            self.leader_epochs.clear()
        except OSError as error:
            raise self.log_directory.storage_error(error, f"emptying {self.path}") from error
        self.producers.load([], offset)
        self._snapshot_offset = offset
        self.log_start_offset = offset
        self.cleaned_offset = offset
        self.update_high_watermark(offset)
        self.listener.on_truncated(self)

    def delete_old_segments(self, now_ms: int) -> int:
        """Drops the segments that retention does not keep; returns how many.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        try:
            doomed = segments_to_delete(
                self.segments,
                self.config,
                self.log_start_offset,
                self.high_watermark,
                self.log_end_offset,
                now_ms,
            )
            if not doomed:
                return 0
            if len(doomed) == len(self.segments):
                # The active one goes too: its successor has to be there first.
                self.roll_segment()
            self.remove_segments(doomed)
        except OSError as error:
            raise self.log_directory.storage_error(error, f"retention of {self.path}") from error
        self.log_start_offset = max(self.log_start_offset, self.segments.first.base_offset)
        self._guarded(lambda: self.leader_epochs.truncate_from_start(self.log_start_offset))
        self.listener.on_log_start_offset(self)
        return len(doomed)

    def write_snapshot(self) -> None:
        """Writes down the producers as they are at the log end.

        Raises:
            OSError: there is no new snapshot; the old ones are as they were.
        """
        if self._snapshot_offset == self.log_end_offset:
            return
        path = names.segment_file(self.path, self.log_end_offset, names.SNAPSHOT_SUFFIX)
        data = encode_snapshot(self.producers.active())
        self.log_directory.file_system.replace(path, data, sync=False)
        self._snapshot_offset = self.log_end_offset

    def close(self) -> None:
        """Leaves the files as the next start expects them; the log cannot be used after it.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; recovery will do what could not be done.
        """
        if self.is_closed:
            return
        self.is_closed = True
        # First, since it opens files.
        self.flush()
        try:
            self.write_snapshot()
            self.leader_epochs.flush_if_changed()
            self.close_segments()
        except OSError as error:
            raise self.log_directory.storage_error(error, f"closing {self.path}") from error

    def abandon(self) -> None:
        """Lets go of all files as they are: the log is being deleted or its disk has failed."""
        self.is_closed = True
        self.release_files()

    def _rebuild_producers(self) -> None:
        self._snapshot_offset = replay_producers(
            self.log_directory.file_system,
            self.path,
            self.segments,
            self.producers,
            self.log_end_offset,
        )

    def _guarded(self, change: Callable[[], None]) -> None:
        """Does what can be made up for later; a failing disk is noticed all the same."""
        try:
            change()
        except OSError as error:
            self.log_directory.storage_error(error, f"writing in {self.path}")
