"""`FetchSession`: the partitions of a reader that a broker knows, so that only changes are sent.

For consumers and followers. The other side of `handlers/fetch_sessions` (KIP-227). A session begins
with a request that names every partition; from then on a request names the changed partitions and
those that are no longer wanted. After any error a new session begins.
"""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.direct.fetch import (
    FetchPartition,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
_LAST_EPOCH: Final = 2**31 - 1
# The key of a partition; without a topic id for brokers that name topics.
Wish = tuple[UUID | None, FetchPartition]


class FetchSession:
    """The partitions that a reader wants, and those that its broker knows. One request at a time:
    `next_request`, then `accept` or `reset`."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._wanted: Final[dict[TopicPartition, Wish]] = {}
        # Changed since the broker was last told.
        self._changed: set[TopicPartition] = set()
        self._forgotten: dict[TopicPartition, UUID | None] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    @property
    def id(self) -> int:
        """The broker's number of the session, 0 before there is one."""
        return self._id

    @property
    def epoch(self) -> int:
        """Counts the requests of the session; 0 begins one."""
        return self._epoch

    def put(
        self, topic_partition: TopicPartition, topic_id: UUID | None, partition: FetchPartition
    ) -> None:
        """Adds a partition, or changes its position."""
        known = self._wanted.get(topic_partition)
        if known is not None and known[0] != topic_id:
            self._forgotten[topic_partition] = known[0]  # the topic was recreated
        self._wanted[topic_partition] = (topic_id, partition)
        self._changed.add(topic_partition)

    def drop(self, topic_partition: TopicPartition) -> None:
        """Removes a partition."""
        found = self._wanted.pop(topic_partition, None)
        self._changed.discard(topic_partition)
        if found is not None:
            self._forgotten[topic_partition] = found[0]

    def want_only(self, wishes: Mapping[TopicPartition, Wish]) -> None:
        """Wants exactly these partitions: removes all others, and adds or changes these."""
        for topic_partition in [each for each in self._wanted if each not in wishes]:
            self.drop(topic_partition)
        for topic_partition, (topic_id, partition) in wishes.items():
            known = self._wanted.get(topic_partition)
            if known is None or known[0] != topic_id or not _is_same(known[1], partition):
                self.put(topic_partition, topic_id, partition)

    def wanted(self, topic_partition: TopicPartition) -> FetchPartition | None:
        """The present position of a partition, if it is wanted."""
        found = self._wanted.get(topic_partition)
        return None if found is None else found[1]

    def has_changed(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition has changed since the last request."""
        return topic_partition in self._changed

    def next_request(self) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """Makes the next request; its content counts as sent from here on."""
        if self._epoch == _FIRST_EPOCH:
            told: Iterable[TopicPartition] = self._wanted
            forgotten: dict[TopicPartition, UUID | None] = {}
        else:
            told = self._changed
            forgotten = {
                topic_partition: topic_id
                for topic_partition, topic_id in self._forgotten.items()
                if self._is_gone(topic_partition, topic_id)
            }
        topics = self._by_topic(told)
        self._changed = set()
        self._forgotten = {}
        return topics, _forgotten_topics(forgotten)

    def accept(self, response: FetchResponse) -> None:
        """Continues the session of an answer, if the broker keeps one."""
        if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = NO_SESSION  # a session whose id is unknown cannot be ended by a new one
            self.reset()
        elif response.error_code != ErrorCode.NONE:
            self.reset()
        elif response.session_id == NO_SESSION:
            self._id = NO_SESSION
            self.reset()
        else:
            is_new = response.session_id != self._id
            self._id = response.session_id
            self._epoch = 1 if is_new else self._epoch % _LAST_EPOCH + 1

    def reset(self) -> None:
        """Starts a new session with the next request, which ends an existing one: the broker's
        state is unknown."""
        self._epoch = _FIRST_EPOCH

    def _is_gone(self, topic_partition: TopicPartition, topic_id: UUID | None) -> bool:
        """A partition that is wanted again meanwhile is sent again, not forgotten."""
        found = self._wanted.get(topic_partition)
        return found is None or found[0] != topic_id

    def _by_topic(self, told: Iterable[TopicPartition]) -> list[FetchTopic]:
        topics: dict[tuple[str, UUID | None], FetchTopic] = {}
        for topic_partition in told:
            topic_id, partition = self._wanted[topic_partition]
            key = (topic_partition.topic, topic_id)
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = FetchTopic(topic_partition.topic, topic_id, [])
            topic.partitions.append(partition)
        return list(topics.values())


def _is_same(one: FetchPartition, other: FetchPartition) -> bool:
    return (
        one.fetch_offset == other.fetch_offset
        and one.current_leader_epoch == other.current_leader_epoch
        and one.partition_max_bytes == other.partition_max_bytes
    )


def _forgotten_topics(forgotten: dict[TopicPartition, UUID | None]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, UUID | None], ForgottenTopic] = {}
    for topic_partition, topic_id in forgotten.items():
        key = (topic_partition.topic, topic_id)
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = ForgottenTopic(topic_partition.topic, topic_id, [])
        topic.partitions.append(topic_partition.partition)
    return list(topics.values())
