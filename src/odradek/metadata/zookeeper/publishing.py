"""`ImagePublisher`: one image follows another, and everybody acts on each change in order.

A change is worked out when its turn has come, on the image that the one before it left: listeners
act on it, stage by stage, it is shown to clients, those who follow are told, and then who waits for
something is answered. What is begun from a callback waits its turn.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from odradek.errors import BrokerError
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import MetadataDelta, MetadataImage
from odradek.metadata.store import ListenerStage, MetadataListener, OnDone

T = TypeVar("T")


class _Waiter(NamedTuple):
    """Somebody who waits for the image to come to something; `look` answers None until then."""

    look: Callable[[MetadataImage], object]
    on_done: Callable[[object], None]


class ImagePublisher:
    """Holds the image of broker `broker_id` and shows it in `cache`."""

    def __init__(self, cache: MetadataCache, broker_id: int) -> None:
        self.image = MetadataImage("")
        self._cache: Final = cache
        self._broker_id: Final = broker_id
        self._listeners: Final[dict[ListenerStage, list[MetadataListener]]] = {
            stage: [] for stage in ListenerStage
        }
        self._followers: Final[list[Callable[[MetadataDelta], None]]] = []
        self._waiters: list[_Waiter] = []
        self._queue: Final[deque[Callable[[], None]]] = deque()
        self._draining = False

    def subscribe(self, stage: ListenerStage, listener: MetadataListener) -> None:
        """See `MetadataStore`."""
        self._listeners[stage].append(listener)

    def follow(self, follower: Callable[[MetadataDelta], None]) -> None:
        """Calls `follower` with every change that has been published."""
        self._followers.append(follower)

    def begin(self, delta: MetadataDelta) -> None:
        """Shows the first image, which has no topics yet; nobody has to act on it."""
        self.image = delta.image
        self._cache.is_told = False
        self._cache.publish(delta)

    def complete(self) -> None:
        """Says that the image has come from a controller."""
        self._cache.tell()

    def publish(
        self,
        change: Callable[[MetadataImage], MetadataDelta | None],
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Has a change worked out on the image, acted on and shown, in its turn; `then` comes
        after it, also when there was nothing to change."""
        self._queue.append(partial(self._publish, change, then))
        self._drain()

    def wait(
        self, look: Callable[[MetadataImage], T | BrokerError | None], on_done: OnDone[T]
    ) -> None:
        """Answers what `look` sees in an image, as soon as it is something."""
        waiter = _Waiter(look, on_done)  # type: ignore[arg-type]  # what it sees it answers
        if not self._is_answered(waiter):
            self._waiters.append(waiter)

    def is_waited_for(self, look: Callable[[MetadataImage], object]) -> bool:
        """Whether `look` has seen nothing yet."""
        return any(waiter.look is look for waiter in self._waiters)

    def answer_waiters(self) -> None:
        """Has all look who wait."""
        waiters, self._waiters = self._waiters, []
        self._waiters = [each for each in waiters if not self._is_answered(each)] + self._waiters

    def refuse_waiters(self, error: BrokerError) -> None:
        """What they wait for will not be seen any more."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.on_done(error)

    def _publish(
        self,
        change: Callable[[MetadataImage], MetadataDelta | None],
        then: Callable[[], None],
    ) -> None:
        delta = change(self.image)
        if delta is not None:
            self.image = delta.image
            delta = self._act(delta)
            self.image = delta.image
            self._cache.publish(delta)
            for follower in self._followers:
                follower(delta)
            self.answer_waiters()
        then()

    def _act(self, delta: MetadataDelta) -> MetadataDelta:
        for stage in ListenerStage:
            for listener in tuple(self._listeners[stage]):
                delta = delta.without_replicas(listener(delta), self._broker_id)
        return delta

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        try:
            while self._queue:
                self._queue.popleft()()
        finally:
            self._draining = False

    def _is_answered(self, waiter: _Waiter) -> bool:
        seen = waiter.look(self.image)
        if seen is not None:
            waiter.on_done(seen)
        return seen is not None
