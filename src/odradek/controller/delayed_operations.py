"""The waits of the controller: a change of topics until it is complete, elections until the leaders
lead, any other change until it is answered, and a new broker of a cluster until it has received the
metadata.

The first two are woken by the publication of an image that touches their topics. All give up after
the request's time-out, also when the metadata store has not answered by then: in a cluster nobody
may be there to take a new topic up. On one node the first look finds everything done.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from odradek.background import ignore
from odradek.metadata.cache import MetadataCache
from odradek.model import NO_LEADER, TopicPartition
from odradek.purgatory import DelayedOperation

T = TypeVar("T")


class TopicKey(NamedTuple):
    """Waiting for something about a topic."""

    name: str


class BrokerKey(NamedTuple):
    """Waiting for something about this broker."""

    broker_id: int


class _Awaited(Generic[T]):
    """Things that must be ready all at once. A check begins with the one that was not ready at the
    last check: otherwise each of many that become ready one by one would cost a check of all of
    them."""

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
        self._ready_count = 0  # one that was ready may not be so any more
        return not self.not_ready()

    def not_ready(self) -> frozenset[T]:
        """Finds those that are missing; a look at all."""
        return frozenset(each for each in self._things if not self._is_ready(each))


class DelayedTopicChange(DelayedOperation):
    """Waits until a change of topics is stored, and every partition of them has a leader.

    A partition whose replicas are all offline is not waited for: its log directory failed,
    and time will not mend that. `on_done` gets the names that are not ready, none of them
    unless the time is over.
    """

    def __init__(
        self, timeout_ms: int, cache: MetadataCache, on_done: Callable[[frozenset[str]], None]
    ) -> None:
        super().__init__(timeout_ms)
        self._topics: _Awaited[str] | None = None
        self._cache = cache
        self._on_done = on_done

    def on_stored(self, topics: Sequence[str]) -> None:
        """The change is made; from here on only leaders of these topics are waited for."""
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
        """These were chosen; from here on only that they lead is waited for."""
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
        """There is an answer. The purgatory may keep this for a while, but not the request."""
        self._on_late = ignore
        self.force_complete()

    def try_complete(self) -> bool:
        """Only the code that answers knows."""
        return False

    def on_complete(self) -> None:
        """The answer has left, or `on_expiration` makes one."""

    def on_expiration(self) -> None:
        """Answers that time is over."""
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
        """Goes on, with whatever is known by now."""
        self._on_done()

    def on_expiration(self) -> None:
        """The caller looks at what is known."""

    def missing(self) -> str:
        """The controller's word."""
        return "the controller's metadata"
