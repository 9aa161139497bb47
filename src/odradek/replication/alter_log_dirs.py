"""Moves replicas between the log directories of this broker, while they are in use.

A move copies the current log into a future one, batch by batch and step by step on the event loop,
each step so short that others have their turn. Once the future log has caught up it is put on the
disk in the background; then, in the first step that leaves no record behind, what came meanwhile is
put there too, and it takes the place of the current log. Nothing can be appended within a step, so
nothing is lost. A move continues after a restart, with its future log.

    request -> copying -> caught up -> on the disk -> swapped
              |  ^
              v  | every step: cut what the current log has cut, take over its start and watermark

Records that the current log loses meanwhile (by truncation, retention, DeleteRecords) the future
one loses in its next step: a log remembers how low its end has been, and the leader epochs of both
tell what was lost before a move goes on. Compaction of the log waits as long as there is a future
one, since records whose tombstone is gone would come back. While the disk of the future log is
offline nobody knows of it: one that ends below what was compacted, or has other batches than the
current log has left, is copied anew.
"""

import logging
from collections.abc import Callable
from os.path import abspath
from typing import Final

from odradek.clock import LONG_AGO_MS
from odradek.config.broker import BrokerConfig
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.replication.partition import Partition
from odradek.replication.partition_table import PartitionTable
from odradek.storage import names
from odradek.storage.log.log import Log
from odradek.storage.log_directory import LogDirectory
from odradek.storage.manager.log_manager import LogManager
from odradek.timer import Timer, TimerTask

STEP_BYTES: Final = 512 * 1024
# How long others have the loop for themselves after a step.
PAUSE_MS: Final = 1
# After the disk has refused something.
RETRY_MS: Final = 1000

logger: Final = logging.getLogger(__name__)


class ReplicaAlterLogDirsManager:
    """The moves of this broker's replicas. Called on the broker's loop only.

    `on_moved` gets a partition whose log was swapped. `step_bytes` is what a step copies at most.
    """

    def __init__(
        self,
        partitions: PartitionTable,
        log_manager: LogManager,
        config: BrokerConfig,
        timer: Timer,
        on_moved: Callable[[Partition], None],
    ) -> None:
        self._partitions = partitions
        self._logs = log_manager
        self._config = config
        self._timer = timer
        self._on_moved = on_moved
        self.step_bytes = STEP_BYTES
        self._moves: dict[TopicPartition, _Move] = {}
        self._free_at_ms = float(LONG_AGO_MS)
        self._is_stopped = False

    def alter(self, topic_partition: TopicPartition, path: str) -> None:
        """Begins to move a replica to the directory `path`, and gives up a move to another one.

        A replica that this broker gets later is created there.

        Raises:
            BrokerError: INVALID_TOPIC_EXCEPTION, LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR,
                UNKNOWN_TOPIC_OR_PARTITION or, without a replica here, REPLICA_NOT_AVAILABLE.
        """
        if not names.may_have_future(topic_partition):
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic's name is too long")
        directory = self._directory(path)
        current, future = self._logs.get(topic_partition), self._logs.futures.get(topic_partition)
        if future is not None and future.log_directory is not directory:
            self._give_up(topic_partition)
            future = None
        if current is None:
            self._logs.prefer(topic_partition, directory)
        log = self._log_of(topic_partition)
        if log.log_directory is directory or future is not None:
            return
        if self._logs.offline_dirs:
            # The partition may have a future log there.
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "a log directory is offline")
        self._logs.futures.create(directory, log, _first_batch_offset(log))
        logger.info("%s moves from %s to %s", topic_partition, log.log_directory.path, path)
        self._begin(topic_partition)

    def resume(self) -> None:
        """Continues the moves whose replicas are in use, or in use again."""
        if not len(self._logs.futures):
            return
        for future in self._logs.futures.all():
            partition = self._partitions.find(future.topic_partition)
            if partition is None or partition.log is None:
                continue
            if partition.log.topic_id != future.topic_id:
                self._give_up_earlier(future)
            elif future.topic_partition not in self._moves:
                self._begin(future.topic_partition)

    def offset_lag(self, future: Log) -> int:
        """How many offsets a future log is behind the current one."""
        current = self._logs.get(future.topic_partition)
        return 0 if current is None else max(current.log_end_offset - future.log_end_offset, 0)

    def shutdown(self) -> None:
        """Stops after the current step; the next start continues."""
        self._is_stopped = True

    def _directory(self, path: str) -> LogDirectory:
        directory = {abspath(each.path): each for each in self._logs.directories}.get(path)
        if directory is None:
            raise BrokerError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is no log directory")
        directory.check()
        return directory

    def _log_of(self, topic_partition: TopicPartition) -> Log:
        try:
            log = self._partitions.get(topic_partition).log
        except BrokerError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise BrokerError(ErrorCode.REPLICA_NOT_AVAILABLE, error.message) from error
            raise
        if log is None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} is offline")
        return log

    def _give_up(self, topic_partition: TopicPartition) -> None:
        self._logs.futures.delete(topic_partition)
        self._end(topic_partition)

    def _give_up_earlier(self, future: Log) -> None:
        """Gives up the move of an earlier topic of the same name; called again at the next
        change."""
        try:
            self._give_up(future.topic_partition)
        except BrokerError as error:
            logger.warning("the future log of an earlier %s stays: %s", future.topic_id, error)

    def _begin(self, topic_partition: TopicPartition) -> None:
        move = self._moves[topic_partition] = _Move(topic_partition)
        self._after(PAUSE_MS, move)

    def _end(self, topic_partition: TopicPartition) -> None:
        self._moves.pop(topic_partition, None)

    def _after(self, delay_ms: int, move: "_Move") -> None:
        self._timer.add(TimerTask(delay_ms, lambda: self._step(move)))

    def _step(self, move: "_Move") -> None:
        topic_partition = move.topic_partition
        if self._is_stopped or self._moves.get(topic_partition) is not move:
            return
        partition = self._partitions.find(topic_partition)
        future = self._logs.futures.get(topic_partition)
        if partition is None or partition.log is None or future is None:
            self._end(topic_partition)  # deleted, or a disk has failed
            return
        delay_ms = RETRY_MS
        try:
            if not move.is_aligned:
                _align(partition.log, future)
                move.is_aligned = True
            delay_ms = self._advance(move, partition, future)
        except BrokerError as error:
            if str(error) != move.trouble:
                move.trouble = str(error)
                logger.warning("moving %s to %s: %s", topic_partition, future.local.path, error)
        finally:
            if topic_partition in self._moves:
                self._after(delay_ms, move)

    def _advance(self, move: "_Move", partition: Partition, future: Log) -> int:
        """Copies, and swaps if nothing is left behind; returns when the next step is due, in ms."""
        assert partition.log is not None, f"the log of {partition.topic_partition} is moved"
        if move.has_caught_up and self._logs.flusher.is_flushing(future.local):
            return PAUSE_MS  # what is copied meanwhile might make another flush due, and so on
        copied_bytes = follow(partition.log, future, self.step_bytes)
        delay_ms = self._pause_ms(copied_bytes)
        if copied_bytes < self.step_bytes:
            self._maybe_swap(move, partition, future)
        return delay_ms

    def _maybe_swap(self, move: "_Move", partition: Partition, future: Log) -> None:
        """Ends the move if the future log is equal, and puts on the disk what of the current one
        is there."""
        assert partition.log is not None, f"the log of {partition.topic_partition} is moved"
        if future.log_end_offset < partition.log.log_end_offset:
            return
        move.has_caught_up = True
        flusher = self._logs.flusher
        if move.flushes_left and future.local.needs_flush:
            move.flushes_left -= 1
            flusher.flush(future.local)
        if flusher.is_flushing(future.local):
            return
        if future.local.recovery_point < partition.log.local.recovery_point:
            # At once, as it is little: what was on the disk must be so after the swap.
            future.local.flush()
        topic_partition = partition.topic_partition
        partition.log = self._logs.replace_current_with_future(topic_partition)
        self._end(topic_partition)
        flusher.flush(partition.log.local)
        logger.info("%s lies in %s now", topic_partition, future.log_directory.path)
        self._on_moved(partition)

    def _pause_ms(self, copied_bytes: int) -> int:
        """How long to wait so that all moves together keep to their rate."""
        rate = self._config["replica.alter.log.dirs.io.max.bytes.per.second"]
        now_ms = self._timer.now_ms
        self._free_at_ms = max(self._free_at_ms, now_ms) + copied_bytes / max(rate, 1) * 1000
        return max(int(self._free_at_ms - now_ms), PAUSE_MS)


class _Move:
    """One replica's move between directories: a move that was given up and begun again is another
    one."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        # Whether the copy agrees with the log as it was when the move began or went on.
        self.is_aligned = False
        self.has_caught_up = False
        # Flushes since then: one, which may take long, and two of what came meanwhile, ever less.
        self.flushes_left = 3
        # The last error that stopped the move; logged once.
        self.trouble = ""


def _align(current: Log, future: Log) -> None:
    """Takes from a future log what it may not have any more after a restart, or after its directory
    was offline: what the current log has lost since, and everything if tombstones may be gone that
    it has not copied, as compaction did not wait for it."""
    future.truncate_to(agreed_end(current, future))
    is_empty = future.log_end_offset == future.log_start_offset
    if not is_empty and _may_have_missed_tombstones(current, future):
        future.truncate_fully_and_start_at(_first_batch_offset(current))


def _may_have_missed_tombstones(current: Log, future: Log) -> bool:
    """Whether the current log is compacted behind the end of the future one, by its own account; or
    has not the same batches any more, where a kill came before that was noted."""
    start = max(current.segments.first.base_offset, future.segments.first.base_offset)
    end = future.log_end_offset
    sizes = {_bytes_before(log, end) - _bytes_before(log, start) for log in (current, future)}
    return current.cleaned_offset > end or len(sizes) > 1


def _bytes_before(log: Log, offset: int) -> int:
    """The bytes of the batches in front of that of `offset`."""
    place = log.reader.place_of(offset)
    if place is None:
        return log.segments.size_bytes
    whole = [each for each in log.segments.all() if each.base_offset < place.segment_base_offset]
    return sum(each.size_bytes for each in whole) + place.position


def agreed_end(current: Log, future: Log) -> int:
    """Up to where a future log has the history of the current one, by their leader epochs.

    What the current log has lost before a restart is remembered nowhere else.
    """
    end_offset = min(current.log_end_offset, future.log_end_offset)
    for epoch, start_offset in reversed(future.leader_epochs.entries):
        known, known_end = current.leader_epochs.end_offset_for(epoch, current.log_end_offset)
        if known == epoch:
            return min(end_offset, known_end)
        end_offset = min(end_offset, start_offset)
    return end_offset


def follow(current: Log, future: Log, max_bytes: int) -> int:
    """Brings a future log nearer to the current one; returns how many bytes were copied.

    Raises:
        BrokerError: KAFKA_STORAGE_ERROR, or CORRUPT_MESSAGE.
    """
    _truncate_diverged(current, future)
    if future.log_end_offset < current.log_start_offset:
        future.truncate_fully_and_start_at(_first_batch_offset(current))
    copied_bytes = _copy(current, future, max_bytes)
    future.update_high_watermark(current.high_watermark)
    if future.log_start_offset < current.log_start_offset <= future.high_watermark:
        future.maybe_increment_log_start_offset(current.log_start_offset)
    return copied_bytes


def _truncate_diverged(current: Log, future: Log) -> None:
    """Cuts what the current log has lost at its end since the last step.

    What the disk refuses of a cut is still due with the next step.
    """
    lowest = current.local.lowest_end_offset
    if lowest < future.log_end_offset:
        future.truncate_to(lowest)
    future.finish_truncation()
    current.local.lowest_end_offset = current.log_end_offset


def _copy(current: Log, future: Log, max_bytes: int) -> int:
    end_offset = current.log_end_offset
    if future.log_end_offset >= end_offset:
        return 0
    found = current.reader.read(future.log_end_offset, max_bytes, end_offset, end_offset, True)
    if found.size_bytes:
        records = found.records[0] if len(found.records) == 1 else b"".join(found.records)
        future.appender.append_as_follower(memoryview(records))
    else:
        _skip_to(future, end_offset)
    return found.size_bytes


def _skip_to(future: Log, end_offset: int) -> None:
    """Begins a segment at the end of the current log: compaction has left nothing in front of
    it."""
    before = future.log_end_offset
    future.local.log_end_offset = end_offset
    try:
        future.appender.roll()
    except BrokerError:
        future.local.log_end_offset = before
        raise


def _first_batch_offset(log: Log) -> int:
    """The base offset of the batch that contains the log start offset."""
    return min(log.reader.batch_start(log.log_start_offset), log.log_start_offset)
