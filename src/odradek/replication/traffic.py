"""`Traffic`: the bytes and records that clients write and read, by topic and in total; Kafka's
`BrokerTopicMetrics`.

Appends and fetches add to plain numbers of their topic; once a second these are added to the meters
(`fold`). A topic has them from its first use until it is deleted, not for a leadership: a count
must not fall.

A refusal that a client has to expect, for example NOT_LEADER_OR_FOLLOWER or records that are too
large, is no failure: Kafka's `Failed...PerSec` are about the broker.
"""

from collections.abc import Iterator
from typing import Final

from odradek.clock import Clock
from odradek.errors import ErrorCode
from odradek.metrics import Meter, Sample

_GROUP: Final = "kafka.server"
_TYPE: Final = "BrokerTopicMetrics"
_NAMES: Final = (
    "BytesInPerSec",
    "BytesOutPerSec",
    "MessagesInPerSec",
    "TotalProduceRequestsPerSec",
    "TotalFetchRequestsPerSec",
    "FailedProduceRequestsPerSec",
    "FailedFetchRequestsPerSec",
)
_EXPECTED: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_EXPECTED_OF_PRODUCE: Final = frozenset(
    (
        *_EXPECTED,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
)
_EXPECTED_OF_FETCH: Final = frozenset(
    (
        *_EXPECTED,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)


class TopicTraffic:
    """The counts of a topic since the last fold, and its meters, in the order of the names."""

    def __init__(self, now_ms: int) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_in = 0
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0
        self.is_changed = False
        self.meters = [Meter(now_ms) for _ in _NAMES]

    def fold(self, now_ms: int, whole: list[Meter]) -> None:
        """Marks the topic's meters and the total ones."""
        counts = (
            self.bytes_in,
            self.bytes_out,
            self.records_in,
            self.produces,
            self.fetches,
            self.failed_produces,
            self.failed_fetches,
        )
        self.bytes_in = self.bytes_out = self.records_in = 0
        self.produces = self.fetches = self.failed_produces = self.failed_fetches = 0
        self.is_changed = False
        for position, count in enumerate(counts):
            if count:
                self.meters[position].mark(now_ms, count)
                whole[position].mark(now_ms, count)


class Traffic:
    """The meters of a broker. Nothing is counted before `begin`."""

    def __init__(self, clock: Clock) -> None:
        self.is_counted = False
        self._clock = clock
        self._topics: dict[str, TopicTraffic] = {}
        self._changed: list[TopicTraffic] = []
        self._begin()

    def _begin(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._whole = TopicTraffic(now_ms)
        self._unknown = TopicTraffic(now_ms)
        self._replicated_out = Meter(now_ms)

    def begin(self) -> None:
        """Counts from now on."""
        self.is_counted = True
        self._begin()

    def appended(self, topic: str, size_bytes: int, record_count: int) -> None:
        """Counts written records."""
        own = self._topics.get(topic)
        if own is None:
            own = self._new_topic(topic)
        own.produces += 1
        own.bytes_in += size_bytes
        own.records_in += record_count
        if not own.is_changed:
            own.is_changed = True
            self._changed.append(own)

    def refused(self, topic: str, error_code: int) -> None:
        """Counts refused records; a topic without traffic gets no meters for it."""
        own = self._topics.get(topic, self._unknown)
        own.produces += 1
        own.failed_produces += error_code not in _EXPECTED_OF_PRODUCE
        self._change(own)

    def fetched(self, topic: str, size_bytes: int) -> None:
        """Counts a consumer's response for a partition."""
        own = self._topics.get(topic)
        if own is None:
            own = self._new_topic(topic)
        own.fetches += 1
        own.bytes_out += size_bytes
        if not own.is_changed:
            own.is_changed = True
            self._changed.append(own)

    def not_fetched(self, topic: str, error_code: int) -> None:
        """Counts a refused fetch of a partition."""
        own = self._topics.get(topic, self._unknown)
        own.fetches += 1
        own.failed_fetches += error_code not in _EXPECTED_OF_FETCH
        self._change(own)

    def replicated_out(self, size_bytes: int) -> None:
        """Counts a follower's response."""
        self._replicated_out.mark(self._clock.monotonic_ms(), size_bytes)

    def forget(self, topic: str) -> None:
        """Drops the meters of a deleted topic."""
        self._topics.pop(topic, None)

    def fold(self, now_ms: int) -> None:
        """Adds the counts to the meters."""
        changed, self._changed = self._changed, []
        for own in changed:
            own.fold(now_ms, self._whole.meters)

    def samples(self) -> Iterator[Sample]:
        """All meters under Kafka's names."""
        self.fold(self._clock.monotonic_ms())
        for name, meter in zip(_NAMES, self._whole.meters, strict=True):
            yield Sample(_GROUP, _TYPE, name, meter)
        yield Sample(_GROUP, _TYPE, "ReplicationBytesOutPerSec", self._replicated_out)
        for topic, traffic in tuple(self._topics.items()):
            for name, meter in zip(_NAMES, traffic.meters, strict=True):
                yield Sample(_GROUP, _TYPE, name, meter, (("topic", topic),))

    def _change(self, own: TopicTraffic) -> None:
        if not own.is_changed:
            own.is_changed = True
            self._changed.append(own)

    def _new_topic(self, topic: str) -> TopicTraffic:
        own = self._topics[topic] = TopicTraffic(self._clock.monotonic_ms())
        return own
