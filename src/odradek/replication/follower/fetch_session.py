"""`FetchSession`: what a leader was told of a follower's wishes, so that it is told only changes.

The other side of `handlers/fetch_sessions` (KIP-227). A session begins with a request that names
every partition; from then on a request names those whose wish has changed and those that are no
longer wanted. Whatever goes wrong, the answer is a new session.
"""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from odradek.model import TopicPartition
from odradek.protocol.fetch import (
    FetchPartition,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
_LAST_EPOCH: Final = 2**31 - 1


class FetchSession:
    """The partitions that a fetcher wants, and what its leader knows of them."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._wanted: Final[dict[TopicPartition, tuple[UUID, FetchPartition]]] = {}
        # Changed since the leader was last told.
        self._changed: set[TopicPartition] = set()
        self._forgotten: dict[TopicPartition, UUID] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    @property
    def id(self) -> int:
        """The leader's number of the session, 0 before there is one."""
        return self._id

    @property
    def epoch(self) -> int:
        """Counts the requests of the session; 0 begins one."""
        return self._epoch

    def put(
        self, topic_partition: TopicPartition, topic_id: UUID, partition: FetchPartition
    ) -> None:
        """Wants a partition, or wants something else of it."""
        self._wanted[topic_partition] = (topic_id, partition)
        self._changed.add(topic_partition)

    def drop(self, topic_partition: TopicPartition) -> None:
        """Wants a partition no longer."""
        found = self._wanted.pop(topic_partition, None)
        self._changed.discard(topic_partition)
        if found is not None:
            self._forgotten[topic_partition] = found[0]

    def wanted(self, topic_partition: TopicPartition) -> FetchPartition | None:
        """What is wanted of a partition now, if it is wanted."""
        found = self._wanted.get(topic_partition)
        return None if found is None else found[1]

    def has_changed(self, topic_partition: TopicPartition) -> bool:
        """Whether something else is wanted by now than the leader was last told."""
        return topic_partition in self._changed

    def next_request(self) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """What the next request has to say; it counts as said from here on."""
        if self._epoch == _FIRST_EPOCH:
            told: Iterable[TopicPartition] = self._wanted
            forgotten: dict[TopicPartition, UUID] = {}
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
        """Goes on with the session that a successful answer names, if the leader keeps one."""
        if response.session_id == NO_SESSION:
            self.reset()
            return
        self._id = response.session_id
        self._epoch = self._epoch % _LAST_EPOCH + 1

    def reset(self) -> None:
        """Begins anew with the next request: what the leader knows is unknown."""
        self._id = NO_SESSION
        self._epoch = _FIRST_EPOCH

    def _is_gone(self, topic_partition: TopicPartition, topic_id: UUID) -> bool:
        """A partition that is wanted again meanwhile is told anew, not forgotten."""
        found = self._wanted.get(topic_partition)
        return found is None or found[0] != topic_id

    def _by_topic(self, told: Iterable[TopicPartition]) -> list[FetchTopic]:
        topics: dict[UUID, FetchTopic] = {}
        for topic_partition in told:
            topic_id, partition = self._wanted[topic_partition]
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_partition.topic, topic_id, [])
            topic.partitions.append(partition)
        return list(topics.values())


def _forgotten_topics(forgotten: dict[TopicPartition, UUID]) -> list[ForgottenTopic]:
    topics: dict[UUID, ForgottenTopic] = {}
    for topic_partition, topic_id in forgotten.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ForgottenTopic(topic_partition.topic, topic_id, [])
        topic.partitions.append(topic_partition.partition)
    return list(topics.values())
