"""The waits of the controller: a change of topics until it is complete, elections until the leaders
lead, any other change until it is answered, and a new broker of a cluster until it has received the
metadata.

The first two are woken by the publication of an image that touches their topics. All give up after
the request's time-out, also when the metadata store has not answered by then: in a cluster there
may be no broker that takes up a new topic. On a single broker the first check finds everything
done.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from odradek.background import ignore
from odradek.metadata.cache import MetadataCache
from odradek.model import NO_LEADER, TopicPartition
from odradek.purgatory import DelayedOperation

T = TypeVar("T")


class TopicKey(NamedTuple):
    """The key of operations that wait for a topic."""

    name: str


class BrokerKey(NamedTuple):
    """The key of operations that wait for this broker."""

    broker_id: int


class _Awaited(Generic[T]):
    """Items that must all be ready. A check begins with the item that was not ready at the last
    one: otherwise each of many items that become ready one by one would cost a check of all."""

    def __init__(self, things: Sequence[T], is_ready: Callable[[T], bool]) -> None:
        self._things: Final = things
        self._is_ready: Final = is_ready
        self._ready_count = 0

    def are_ready(self) -> bool:
        """Whether none is missing."""
        while self._ready_count < len(self._things):
            if not self._is_ready(self._things[self._ready_count]):
                return False
            self._ready_count += 1
        self._ready_count = 0  # an earlier one may not be ready any more
        return not self.not_ready()

    def not_ready(self) -> frozenset[T]:
        """Checks all items, and returns those that are not ready."""
        return frozenset(each for each in self._things if not self._is_ready(each))


class DelayedTopicChange(DelayedOperation):
    """Waits until a change of topics is stored, and every partition of them has a leader.

    A partition whose replicas are all offline is not waited for: its log directory has failed, and
    waiting does not help. `on_done` gets the names that are not ready: none, except at the
    time-out.
    """

    def __init__(
        self, timeout_ms: int, cache: MetadataCache, on_done: Callable[[frozenset[str]], None]
    ) -> None:
        super().__init__(timeout_ms)
        self._topics: _Awaited[str] | None = None
        self._cache = cache
        self._on_done = on_done

    def on_stored(self, topics: Sequence[str]) -> None:
        """Waits only for the leaders of these topics from here on: the change is stored."""
        self._topics = _Awaited(topics, self._is_ready)
        self.safe_try_complete()

    def try_complete(self) -> bool:
        """Completes when every topic is ready."""
        return self._topics is not None and self._topics.are_ready() and self.force_complete()

    def on_complete(self) -> None:
        """Answers with what is not there yet: nothing, unless the time is over."""
        self._on_done(self._not_ready())

    def on_expiration(self) -> None:
        """The answer names what was not ready."""

    def missing(self) -> str:
        """The store's answer, or the leaders that are not there yet."""
        if self._topics is None:
            return "the metadata store's answer"
        return f"leaders of {', '.join(sorted(self._not_ready()))}"

    def _not_ready(self) -> frozenset[str]:
        return frozenset() if self._topics is None else self._topics.not_ready()

    def _is_ready(self, name: str) -> bool:
        topic = self._cache.image.topic(name)
        return topic is not None and all(
            partition.leader != NO_LEADER or len(partition.offline) == len(partition.replicas)
            for partition in topic.partitions
        )


class DelayedElectLeader(DelayedOperation):
    """Waits until an election is stored, and the chosen leaders lead in the published image.

    `on_done` gets the partitions that do not yet have theirs when the time is over.
    """

    def __init__(
        self,
        timeout_ms: int,
        cache: MetadataCache,
        on_done: Callable[[frozenset[TopicPartition]], None],
    ) -> None:
        super().__init__(timeout_ms)
        self._expected: dict[TopicPartition, int] = {}
        self._partitions: _Awaited[TopicPartition] | None = None
        self._cache = cache
        self._on_done = on_done

    def on_stored(self, expected: dict[TopicPartition, int]) -> None:
        """Waits only for these chosen leaders from here on: the election is stored."""
        self._expected = expected
        self._partitions = _Awaited(list(expected), self._leads)
        self.safe_try_complete()

    def try_complete(self) -> bool:
        """Completes when every chosen leader leads."""
        awaited = self._partitions
        return awaited is not None and awaited.are_ready() and self.force_complete()

    def on_complete(self) -> None:
        """Answers with what is not there yet: nothing, unless the time is over."""
        self._on_done(self._not_ready())

    def on_expiration(self) -> None:
        """The answer names the partitions that were not ready."""

    def missing(self) -> str:
        """The store's answer, or the leaders that are not there yet."""
        if self._partitions is None:
            return "the metadata store's answer"
        return f"leaders of {', '.join(sorted(map(str, self._not_ready())))}"

    def _not_ready(self) -> frozenset[TopicPartition]:
        return frozenset() if self._partitions is None else self._partitions.not_ready()

    def _leads(self, topic_partition: TopicPartition) -> bool:
        partition = self._cache.image.partition(topic_partition)
        return partition is not None and partition.leader == self._expected[topic_partition]


class DelayedAnswer(DelayedOperation):
    """Waits until a request is answered; `on_late` answers when the time is over."""

    def __init__(self, timeout_ms: int, on_late: Callable[[], None]) -> None:
        super().__init__(timeout_ms)
        self._on_late = on_late

    def on_answered(self) -> None:
        """Completes with the answer. The purgatory may keep this object for a while, but not the
        request."""
        self._on_late = ignore
        self.force_complete()

    def try_complete(self) -> bool:
        """False: only `on_answered` completes it."""
        return False

    def on_complete(self) -> None:
        """Does nothing: the answer has been sent, or `on_expiration` makes one."""

    def on_expiration(self) -> None:
        """Answers with a time-out."""
        self._on_late()

    def missing(self) -> str:
        """The store's answer."""
        return "the metadata store's answer"


class DelayedMetadata(DelayedOperation):
    """Waits until this broker has received the cluster's metadata, or the time is over."""

    def __init__(self, timeout_ms: int, cache: MetadataCache, on_done: Callable[[], None]) -> None:
        super().__init__(timeout_ms)
        self._cache = cache
        self._on_done = on_done

    def try_complete(self) -> bool:
        """Completes when the image has come from a controller."""
        return self._cache.is_told and self.force_complete()

    def on_complete(self) -> None:
        """Continues, with the metadata known by now."""
        self._on_done()

    def on_expiration(self) -> None:
        """Does nothing: the caller looks at the known metadata."""

    def missing(self) -> str:
        """The metadata from the controller."""
        return "the controller's metadata"
