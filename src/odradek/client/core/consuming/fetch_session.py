"""A fetch session with one broker (KIP-227): after the first request only changes are sent.

The broker remembers which partitions are read and from where, and answers with those alone that
have news. When it does not know the session, or the numbers do not match, everything is sent again.
"""

from typing import Final, NamedTuple
from uuid import UUID

from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.fetch import FetchPartition, FetchTopic, ForgottenTopic

_INITIAL_EPOCH: Final = 0
_LARGEST_EPOCH: Final = 0x7FFFFFFF


class Wanted(NamedTuple):
    """From where a partition is read, and what is known of its leader and its topic."""

    offset: int
    leader_epoch: int
    topic_id: UUID | None


class SessionRequest(NamedTuple):
    """What a request says: its session, what is new or changed, what is read no more."""

    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class FetchSession:
    """The session with one broker. One request at a time: `request`, then `on_response`."""

    def __init__(self, partition_max_bytes: int) -> None:
        self._partition_max_bytes = partition_max_bytes
        self._session_id = 0
        self._epoch = _INITIAL_EPOCH
        self._session_partitions: dict[TopicPartition, Wanted] = {}

    def request(self, wanted: dict[TopicPartition, Wanted], *, by_id: bool) -> SessionRequest:
        """What to send so that these partitions are read."""
        is_full = self._epoch == _INITIAL_EPOCH
        # A topic that was made anew has another id: the old one is forgotten first.
        gone = [
            partition
            for partition, known in self._session_partitions.items()
            if partition not in wanted or wanted[partition].topic_id != known.topic_id
        ]
        forgotten = [] if is_full else self._forgotten(gone, by_id)
        changed = {
            partition: each
            for partition, each in wanted.items()
            if is_full or self._session_partitions.get(partition) != each
        }
        self._session_partitions = dict(wanted)
        return SessionRequest(
            self._session_id, self._epoch, self._topics(changed, by_id), forgotten
        )

    def on_response(self, error_code: int, session_id: int) -> None:
        """Takes note of an answer."""
        if error_code:
            # A session that is not known cannot be ended; any other is ended by a new one.
            unknown = error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            self._session_id = 0 if unknown else self._session_id
            self._epoch = _INITIAL_EPOCH
        elif session_id == 0:
            self._session_id, self._epoch = 0, _INITIAL_EPOCH
        elif session_id != self._session_id:
            self._session_id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == _LARGEST_EPOCH else self._epoch + 1

    def reset(self) -> None:
        """No answer came: nobody knows what the broker has taken note of."""
        self._epoch = _INITIAL_EPOCH

    def _topics(self, wanted: dict[TopicPartition, Wanted], by_id: bool) -> list[FetchTopic]:
        topics: dict[str, FetchTopic] = {}
        for partition, each in wanted.items():
            topic = topics.get(partition.topic)
            if topic is None:
                name = None if by_id else partition.topic
                topic = FetchTopic(name, each.topic_id if by_id else None, [])
                topics[partition.topic] = topic
            topic.partitions.append(
                FetchPartition(
                    partition.partition,
                    each.offset,
                    self._partition_max_bytes,
                    each.leader_epoch,
                )
            )
        return list(topics.values())

    def _forgotten(self, partitions: list[TopicPartition], by_id: bool) -> list[ForgottenTopic]:
        topics: dict[str, ForgottenTopic] = {}
        for partition in partitions:
            topic = topics.get(partition.topic)
            if topic is None:
                name = None if by_id else partition.topic
                topic_id = self._session_partitions[partition].topic_id if by_id else None
                topic = topics[partition.topic] = ForgottenTopic(name, topic_id, [])
            topic.partitions.append(partition.partition)
        return list(topics.values())
