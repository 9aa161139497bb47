"""`LogAppender`: appends records to a log: checks them, assigns offsets, writes.

Only this module assigns offsets. An append takes all records for this partition from one read of a
socket and writes them at once; each produce request gets its own answer, and is accepted only if
its bytes are in the file. `records.validate` checks records, `producer_state` checks producers;
`LocalLog` has the files.

Failures of the disk come out as BrokerError with KAFKA_STORAGE_ERROR, and the `LogDirectory`
decides whether it goes offline.
"""

from collections.abc import Sequence
from typing import Final

from odradek.config.topic import LogConfig
from odradek.errors import BrokerError, ErrorCode
from odradek.model import AppendOrigin
from odradek.records.batch import BatchHeader, Buffer, split_batches
from odradek.records.errors import CorruptRecords
from odradek.records.validate import (
    Batches,
    BatchRules,
    PreparedRecords,
    ValidRecords,
    validate_produced,
)
from odradek.storage.index.transaction_index import AbortedEntry
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.log.local_log import LocalLog
from odradek.storage.log.offset_metadata import LogAppendInfo
from odradek.storage.log.recovery import check_batch
from odradek.storage.log.roll_rules import segment_ms
from odradek.storage.log.staging import Staged
from odradek.storage.producers.end_marker import parse_end_marker
from odradek.storage.producers.producer_state import BatchMetadata, ProducerStateManager
from odradek.storage.producers.replay import replay_marker, take_snapshot

AppendResult = LogAppendInfo | BrokerError

_CLIENT: Final = AppendOrigin.CLIENT


class LogAppender:
    """Appends to one log, as its leader or as a follower; keeps its producers and epochs in step.

    `rules` are the present rules for records; a change of the settings makes another object.
    """

    def __init__(
        self, local: LocalLog, producers: ProducerStateManager, leader_epochs: LeaderEpochCache
    ) -> None:
        self._local: Final = local
        self._directory: Final = local.log_directory
        self._producers: Final = producers
        self._leader_epochs: Final = leader_epochs
        self.update_config(local.config)

    def update_config(self, config: LogConfig) -> None:
        """Takes new settings; keeps those that every append reads as native attributes."""
        self.rules = BatchRules.from_config(config)
        self._segment_bytes = config.segment_bytes
        self._segment_ms = segment_ms(self._local.topic_partition, config)

    def append_as_leader(
        self,
        batches: Sequence[Batches],
        leader_epoch: int,
        origin: AppendOrigin = _CLIENT,
        transaction_version: int = 0,
    ) -> list[AppendResult]:
        """Appends the records of many produce requests; one result for each, in order.

        Every view is one request's records, writable and valid until this returns: offsets,
        leader epoch and (by topic) timestamps are stamped in place. A refused request does not
        affect the others. Never raises a BrokerError: errors are values here. End markers are
        checked by the rules of the `transaction_version` that their coordinator names.
        """
        failure = self._unusable()
        if failure is not None:
            return [failure for _ in batches]
        results: list[AppendResult] = []
        now_ms = self._directory.clock.wall_ms()
        staged = Staged(self._local.log_end_offset)
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
        self._write_or_refuse(staged, now_ms, results)
        return results

    def _validate(self, records: Batches, now_ms: int, origin: AppendOrigin) -> ValidRecords:
        if isinstance(records, PreparedRecords):
            if records.rules is self.rules:
                return records.valid
            records = records.source
        return validate_produced(records, self.rules, now_ms, origin)

    def append_as_follower(self, records: memoryview) -> LogAppendInfo:
        """Appends batches of the leader's log, with their offsets and epochs.

        A partial batch at the end, as Fetch answers may have, is left out.

        Raises:
            BrokerError: CORRUPT_MESSAGE, or KAFKA_STORAGE_ERROR; nothing, or only whole
                segments before the failure, were appended.
        """
        failure = self._unusable()
        if failure is not None:
            raise failure
        now_ms = self._directory.clock.wall_ms()
        headers = self._replicated_headers(records)
        info = LogAppendInfo(
            self._local.log_end_offset, self._local.log_end_offset - 1, self._local.log_start_offset
        )
        staged = Staged(self._local.log_end_offset)
        for header in headers:
            batch = records[header.position : header.end_position]
            if self._should_roll(staged, header, header.size_bytes, now_ms):
                self._write(staged, now_ms)
                staged.clear(self._local.log_end_offset, 0)
                self.roll()
            staged.add(header)
            staged.buffers.append(batch)
            if header.producer_id >= 0:
                self._take_in(header, batch, staged)
            info.last_offset = header.last_offset
            info.record_count += max(header.record_count, 1)
            info.size_bytes += header.size_bytes
            info.max_timestamp = max(info.max_timestamp, header.max_timestamp)
        self._write(staged, now_ms)
        return info

    def _unusable(self) -> BrokerError | None:
        if not self._local.is_closed and self._directory.failure is None:
            return None
        return BrokerError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{self._local.topic_partition}: the log in {self._directory.path} is offline",
        )

    def _check_producer(
        self, valid: ValidRecords, origin: AppendOrigin, transaction_version: int
    ) -> BatchMetadata | None:
        """Applies `ProducerStateManager.check` to a batch that has a producer.

        Raises:
            BrokerError: as there.
        """
        header = valid.batches[0]
        if header.producer_id < 0:
            return None
        if not header.is_control:
            return self._producers.check(header, origin)
        marker = parse_end_marker(valid.data)
        if marker is not None:
            self._producers.check_marker(
                header, marker.coordinator_epoch, origin, transaction_version
            )
        return None

    def _duplicate_info(self, batch: BatchMetadata) -> LogAppendInfo:
        return LogAppendInfo(
            batch.first_offset,
            batch.last_offset,
            self._local.log_start_offset,
            log_append_time_ms=batch.timestamp,
            max_timestamp=batch.timestamp,
            duplicate=True,
        )

    def _make_room(
        self, staged: Staged, valid: ValidRecords, now_ms: int, results: list[AppendResult]
    ) -> bool:
        """Rolls the segment if the records do not fit into it, after writing the staged batches.

        Returns whether it had to: the staged batches are in the log then, or were refused.

        Raises:
            BrokerError: RECORD_LIST_TOO_LARGE; KAFKA_STORAGE_ERROR, the new segment could not
                be made, the last one not be read, or the directory has failed.
        """
        size_bytes = valid.size_bytes
        if size_bytes > self._segment_bytes:
            raise BrokerError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{self._local.topic_partition}: {size_bytes} bytes of records do not fit into a "
                f"segment of {self._segment_bytes}",
            )
        header = valid.batches[0]
        if not self._should_roll(staged, header, size_bytes, now_ms):
            return False
        self._write_or_refuse(staged, now_ms, results)
        staged.clear(self._local.log_end_offset, len(results))
        self._directory.check()
        # Not if the disk has just refused the batches that would have filled it.
        if self._should_roll(staged, header, size_bytes, now_ms):
            self.roll()
        return True

    def _should_roll(
        self, staged: Staged, header: BatchHeader, size_bytes: int, now_ms: int
    ) -> bool:
        try:
            return self._local.segments.active.should_roll(
                staged.size_bytes,
                size_bytes,
                staged.end_offset + header.last_offset_delta,
                header.max_timestamp,
                now_ms,
                self._segment_bytes,
                self._segment_ms,
            )
        except OSError as error:
            raise self._directory.storage_error(
                error, f"appending to {self._local.path}"
            ) from error

    def _stage(self, staged: Staged, valid: ValidRecords, leader_epoch: int) -> LogAppendInfo:
        """Assigns offsets and stages the records for the next write."""
        first_offset = staged.end_offset
        valid.assign(first_offset, leader_epoch)
        for header in valid.batches:
            staged.add(header)
            if header.producer_id >= 0:
                self._take_in(header, valid.data, staged)
        staged.buffers.append(valid.data)
        offset_of_max = first_offset + valid.max_timestamp_index
        return LogAppendInfo(
            first_offset,
            staged.end_offset - 1,
            self._local.log_start_offset,
            valid.record_count,
            valid.size_bytes,
            valid.log_append_time_ms,
            valid.max_timestamp,
            offset_of_max if valid.max_timestamp_index >= 0 else -1,
        )

    def _take_in(self, header: BatchHeader, batch: Buffer, staged: Staged) -> None:
        """Updates the producer state by a batch that has its offsets."""
        if not header.is_control:
            self._producers.update(header)
            return
        completed = replay_marker(self._producers, header, batch)
        if completed is not None and completed.is_aborted:
            # Computed now: later batches of this write may decide or begin other transactions.
            stable = self._producers.last_stable_offset(completed)
            staged.aborted.append(
                AbortedEntry(
                    completed.producer_id, completed.first_offset, completed.last_offset, stable
                )
            )

    def _replicated_headers(self, records: memoryview) -> list[BatchHeader]:
        headers = split_batches(records, drop_partial_tail=True)
        expected = self._local.log_end_offset
        for header in headers:
            check_batch(records, header)
            if header.last_offset < expected:
                raise CorruptRecords(
                    f"{self._local.topic_partition}: the leader sent offset {header.last_offset} "
                    f"where {expected} is due"
                )
            expected = header.last_offset + 1
        return headers

    def _write_or_refuse(self, staged: Staged, now_ms: int, results: list[AppendResult]) -> None:
        """Writes the staged batches; if the disk refuses them, their results become errors."""
        try:
            self._write(staged, now_ms)
        except BrokerError as failure:
            for index in range(staged.first_result, len(results)):
                # Those of duplicates too: they may repeat a refused batch.
                if isinstance(results[index], LogAppendInfo):
                    results[index] = failure

    def _write(self, staged: Staged, now_ms: int) -> None:
        """Writes the staged batches.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; nothing was written.
        """
        if staged.size_bytes == 0:
            return
        local = self._local
        try:
            local.append(staged, now_ms)
        except OSError as error:
            self._producers.rollback()
            doing = f"appending to {local.segments.active.file.path}"
            raise self._directory.storage_error(error, doing) from error
        self._producers.commit()
        self._producers.map_end_offset = staged.end_offset
        for header in staged.headers:
            if header.partition_leader_epoch > self._leader_epochs.latest_epoch:
                self.assign_epoch(header.partition_leader_epoch, header.base_offset)
        local.note_unflushed(staged.record_count)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Notes that a leader's epoch begins at `start_offset`.

        The batches name their epoch too, so a full disk is no reason to fail: the file is
        written again with the next epoch and when the log is closed.
        """
        self._directory.attempt(
            lambda: self._leader_epochs.assign(epoch, start_offset),
            f"writing in {self._local.path}",
        )

    def roll(self) -> None:
        """Begins a new segment at the log end; nothing happens if the last one is empty.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; the old segment stays the active one.
        """
        local = self._local
        try:
            # First: a full disk must leave no segment without the producers at its beginning.
            take_snapshot(self._directory.file_system, local.path, self._producers)
            local.roll()
        except OSError as error:
            raise self._directory.storage_error(error, f"rolling {local.path}") from error
        local.listener.on_rolled(local)
