"""`ReplicaFetcher`: keeps the replicas that one leader leads up with it.

It has one request under way at a time, and asks again as soon as the answer has been taken in: the
leader holds a request until it has records, so nothing here polls. A partition that cannot be
fetched now is left out until its back-off is over, on the broker's timer, and the others continue.
If the leader does not know yet that it leads, the first back-offs are short: a producer waits
meanwhile for its acks=all. A partition's response counts only if its role in the metadata and its
log end are still those of the request.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.direct.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from odradek.protocol.fetch_session import FetchSession
from odradek.replication.follower.leader_channel import LeaderChannel
from odradek.replication.follower.local_replica import (
    append_fetched,
    fetch_position,
    truncate_diverged,
    truncate_to_range,
)
from odradek.replication.partition import Partition
from odradek.replication.quota import ReplicationQuota
from odradek.storage.log.log import Log
from odradek.timer import RetryTask, Timer, TimerTask

logger = logging.getLogger(__name__)

_EARLIEST: Final = -2
_LATEST: Final = -1
_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
# Transient errors: one of two brokers knows a change, and the other does not yet.
_AHEAD_OR_BEHIND: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)
# The first back-off after such an error; each further one is twice as long.
_FIRST_RETRY_MS: Final = 20


class FetcherSettings(NamedTuple):
    """How a follower fetches; `replica.fetch.*`."""

    max_wait_ms: int
    min_bytes: int
    response_max_bytes: int
    partition_max_bytes: int
    backoff_ms: int


class _Followed(NamedTuple):
    """A partition that is followed, in which role."""

    partition: Partition
    topic_id: UUID
    leader_epoch: int


class ReplicaFetcher:
    """Fetches from one leader, for partitions that are added and removed. One thread owns it."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: int,
        leader_id: int,
        channel: LeaderChannel,
        timer: Timer,
        settings: FetcherSettings,
        on_readable: Callable[[Partition], None],
        quota: ReplicationQuota,
    ) -> None:
        self.leader_id: Final = leader_id
        self._broker_id: Final = broker_id
        self._broker_epoch: Final = broker_epoch
        self._channel: Final = channel
        self._timer: Final = timer
        self._settings: Final = settings
        self._on_readable: Final = on_readable
        self._quota: Final = quota
        self._followed: Final[dict[TopicPartition, _Followed]] = {}
        self._names: Final[dict[UUID, str]] = {}
        self._session: Final = FetchSession()
        self._backing_off: Final[dict[TopicPartition, TimerTask]] = {}
        # The last back-off of partitions whose leader is ahead of this broker's metadata, or behind
        # it.
        self._retry_ms: Final[dict[TopicPartition, int]] = {}
        self._pause: TimerTask | None = None
        self._is_fetching = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: Partition, topic_id: UUID) -> None:
        """Follows a partition in the role that it has now."""
        topic_partition = partition.topic_partition
        self._stop_backing_off(topic_partition)
        self._followed[topic_partition] = _Followed(partition, topic_id, partition.leader_epoch)
        self._names[topic_id] = topic_partition.topic
        self._want(topic_partition)
        self._maybe_fetch()

    def remove(self, topic_partition: TopicPartition) -> None:
        """Stops following a partition; a response in flight is ignored."""
        self._stop_backing_off(topic_partition)
        self._retry_ms.pop(topic_partition, None)
        self._followed.pop(topic_partition, None)
        self._session.drop(topic_partition)

    def close(self) -> None:
        """Follows nothing any more."""
        self._closed = True
        for topic_partition in list(self._followed):
            self.remove(topic_partition)
        if self._pause is not None:
            self._pause.cancel()
        self._channel.close()

    # Asking

    def _want(self, topic_partition: TopicPartition) -> None:
        """Says in the next request where the replica is now."""
        found = self._current(topic_partition)
        if found is None:
            self.remove(topic_partition)
            return
        followed, log = found
        position = fetch_position(followed.partition, log, self._settings.partition_max_bytes)
        self._session.put(topic_partition, followed.topic_id, position)

    def _current(self, topic_partition: TopicPartition) -> tuple[_Followed, Log] | None:
        """The followed partition, unless its role or its log is another one by now."""
        followed = self._followed.get(topic_partition)
        if followed is None:
            return None
        partition = followed.partition
        log = partition.log
        if log is None or partition.is_leader or partition.leader_epoch != followed.leader_epoch:
            return None
        return followed, log

    def _maybe_fetch(self) -> None:
        idle = self._is_fetching or self._closed or self._pause is not None
        if idle or not len(self._session):
            return
        topics, forgotten = self._session.next_request()
        self._is_fetching = True
        request = FetchRequest(
            self._broker_id,
            self._settings.max_wait_ms,
            self._settings.min_bytes,
            topics,
            max_bytes=self._settings.response_max_bytes,
            session_id=self._session.id,
            session_epoch=self._session.epoch,
            forgotten=forgotten,
            replica_epoch=self._broker_epoch,
        )
        self._channel.fetch(request, self._on_answer)

    # Taking answers in

    def _on_answer(self, outcome: FetchResponse | BrokerError) -> None:
        self._is_fetching = False
        if self._closed:
            return
        if isinstance(outcome, BrokerError):
            self._pause_after(outcome)
        elif outcome.error_code in _SESSION_ERRORS:
            self._session.accept(outcome)
        elif outcome.error_code != ErrorCode.NONE:
            self._pause_after(BrokerError(ErrorCode(outcome.error_code)))
        else:
            self._session.accept(outcome)
            self._take_in(outcome)
        self._maybe_fetch()

    def _take_in(self, response: FetchResponse) -> None:
        for topic in response.topics:
            name = topic.name if topic.topic_id is None else self._names.get(topic.topic_id)
            for answer in topic.partitions:
                if name is not None:
                    self._take_in_partition(TopicPartition(name, answer.index), answer)

    def _take_in_partition(
        self, topic_partition: TopicPartition, answer: FetchPartitionResponse
    ) -> None:
        asked = self._session.wanted(topic_partition)
        found = self._current(topic_partition)
        if asked is None or found is None or self._session.has_changed(topic_partition):
            return  # the answer to an earlier request
        followed, log = found
        if log.log_end_offset != asked.fetch_offset:
            self._want(topic_partition)
            return
        try:
            self._follow(followed, log, asked, answer)
            self._retry_ms.pop(topic_partition, None)
        except BrokerError as error:
            level = logging.INFO if error.code in _AHEAD_OR_BEHIND else logging.ERROR
            text = "%s cannot follow broker %d: %s"
            logger.log(level, text, topic_partition, self.leader_id, error)
            self._back_off(topic_partition, self._delay_after(topic_partition, error))

    def _follow(
        self, followed: _Followed, log: Log, asked: FetchPartition, answer: FetchPartitionResponse
    ) -> None:
        topic_partition = followed.partition.topic_partition
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._return_into_range(topic_partition)
        elif code is not ErrorCode.NONE:
            raise BrokerError(code)
        elif answer.diverging_epoch >= 0:
            truncate_diverged(log, answer.diverging_epoch, answer.diverging_end_offset)
            logger.info("%s was cut to %d", topic_partition, log.log_end_offset)
            self._want(topic_partition)
        else:
            if append_fetched(log, answer):
                self._on_readable(followed.partition)
            if answer.records:
                self._quota.record(topic_partition, sum(map(len, answer.records)))
            is_behind = log.log_end_offset < answer.high_watermark
            if is_behind and not self._may_move(topic_partition):
                self._back_off(topic_partition, may_go_on=self._may_move)
            elif _has_moved(log, asked):
                self._want(topic_partition)

    def _may_move(self, topic_partition: TopicPartition) -> bool:
        """Whether the quota lets a replica that is behind fetch now."""
        return not (self._quota.is_throttled(topic_partition) and self._quota.is_exceeded())

    def _return_into_range(self, topic_partition: TopicPartition) -> None:
        """Asks for the range of the leader's log, and brings the replica's log end into it."""
        self._session.drop(topic_partition)
        epoch = self._followed[topic_partition].leader_epoch
        ends: list[int] = []

        def on_offset(outcome: int | BrokerError) -> None:
            followed = self._followed.get(topic_partition)
            if followed is None or followed.leader_epoch != epoch:
                return
            if isinstance(outcome, BrokerError):
                logger.warning("%s: broker %d: %s", topic_partition, self.leader_id, outcome)
                self._back_off(topic_partition)
                return
            ends.append(outcome)
            if len(ends) == 1:
                self._channel.find_offset(topic_partition, _EARLIEST, epoch, on_offset)
            else:
                self._cut_into_range(topic_partition, leader_end=ends[0], leader_start=ends[1])

        self._channel.find_offset(topic_partition, _LATEST, epoch, on_offset)

    def _cut_into_range(
        self, topic_partition: TopicPartition, leader_end: int, leader_start: int
    ) -> None:
        found = self._current(topic_partition)
        if found is None:
            self.remove(topic_partition)
            return
        log = found[1]
        try:
            if truncate_to_range(log, leader_start, leader_end):
                logger.warning(
                    "%s is at %d now: broker %d has offsets from %d to %d",
                    topic_partition,
                    log.log_end_offset,
                    self.leader_id,
                    leader_start,
                    leader_end,
                )
        except BrokerError as error:
            logger.error("%s cannot be cut: %s", topic_partition, error)
            self._back_off(topic_partition)
            return
        self._want(topic_partition)
        self._maybe_fetch()

    # Backing off

    def _delay_after(self, topic_partition: TopicPartition, error: BrokerError) -> int:
        """The back-off after a leader's refusal, in milliseconds."""
        longest = self._settings.backoff_ms
        if error.code not in _AHEAD_OR_BEHIND:
            return longest
        before = self._retry_ms.get(topic_partition)
        delay_ms = min(_FIRST_RETRY_MS if before is None else 2 * before, longest)
        self._retry_ms[topic_partition] = delay_ms
        return delay_ms

    def _back_off(
        self,
        topic_partition: TopicPartition,
        delay_ms: int | None = None,
        may_go_on: Callable[[TopicPartition], bool] | None = None,
    ) -> None:
        """Leaves a partition out for `replica.fetch.backoff.ms` or `delay_ms`, and again while it
        may not continue."""
        self._session.drop(topic_partition)
        self._stop_backing_off(topic_partition)

        def again() -> None:
            self._backing_off.pop(topic_partition, None)
            if may_go_on is not None and not may_go_on(topic_partition):
                self._back_off(topic_partition, may_go_on=may_go_on)
                return
            self._want(topic_partition)
            self._maybe_fetch()

        task = RetryTask(self._settings.backoff_ms if delay_ms is None else delay_ms, again)
        self._backing_off[topic_partition] = task
        self._timer.add(task)

    def _stop_backing_off(self, topic_partition: TopicPartition) -> None:
        task = self._backing_off.pop(topic_partition, None)
        if task is not None:
            task.cancel()

    def _pause_after(self, error: BrokerError) -> None:
        """Backs off from a leader that cannot be reached, or refuses this broker."""
        logger.info("broker %d cannot be fetched from: %s", self.leader_id, error)
        self._session.reset()

        def again() -> None:
            self._pause = None
            self._maybe_fetch()

        self._pause = RetryTask(self._settings.backoff_ms, again)
        self._timer.add(self._pause)


def _has_moved(log: Log, asked: FetchPartition) -> bool:
    """Whether the leader knows another log end, or another log start: DeleteRecords waits until
    every replica has reported a start behind the records."""
    told = (asked.fetch_offset, asked.log_start_offset)
    return told != (log.log_end_offset, log.log_start_offset)
