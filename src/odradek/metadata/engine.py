"""`MetadataEngine`: applies the changes of metadata, for any store.

    plan > commit > act by stage > publish > answer

One queue, one change at a time. A change is planned on the image of the change before it and
committed: in SQL, in a transaction of ZooKeeper, or nowhere when it was read from there. Then the
listeners of all brokers act on it, stage by stage, clients see it, and the requester is answered. A
change that begins in a callback waits its turn: changes do not nest.

If the loop has to turn meanwhile, listeners act on a change of many partitions slice by slice:
opening ten thousand logs takes longer than a session time-out. The controller's listeners, and
clients, see the change when all of it is done, in a turn of its own; the next change has another. A
broker that opens its view between two slices would see a change of which it gets the rest only: the
slices that are left come first then.
"""

from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.changes import Change, difference
from odradek.metadata.fail_stop import OnBroken, attempt, fail
from odradek.metadata.image import MetadataDelta, MetadataImage
from odradek.metadata.store import ListenerStage, MetadataListener, OnDone
from odradek.model import TopicPartition

T = TypeVar("T")
Plan: TypeAlias = Callable[[MetadataImage], Change[T]]
"""Image in, delta and result out; may raise a BrokerError, which is the answer then."""
OnCommitted: TypeAlias = Callable[[Change[Any] | BrokerError], None]
Commit: TypeAlias = Callable[[Change[Any], OnCommitted], None]
"""Stores a change; calls back once, with the stored part of it or with the error."""
Defer: TypeAlias = Callable[[Callable[[], None]], None]
"""Runs something at the loop's next turn."""

SLICE_PARTITIONS: Final = 20
# The controller decides on the whole change.
_SLICED: Final = tuple(stage for stage in ListenerStage if stage is not ListenerStage.CONTROLLER)


class _Step(NamedTuple):
    """A change in the queue."""

    view: "BrokerView"
    plan: Plan[Any]
    on_done: OnDone[Any]
    commit: Commit | None

    def answer(self, outcome: object) -> None:
        self.view.attempt(lambda: self.on_done(outcome))

    def end(self, error: Exception) -> None:
        """Answers the requester. An exception ends its broker: otherwise its queue might wait for
        ever."""
        self.answer(BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
        self.view.on_broken(error)


def _rest(_acting: "_Acting") -> None:
    """The change is through: what comes next begins with a turn of its own."""


class _Acting:
    """A committed change that listeners act on: its next slice, the image after the last one, and
    the replicas that each broker cannot serve. `go_on` continues with it."""

    def __init__(self, step: _Step, result: object, delta: MetadataDelta) -> None:
        self.step: Final = step
        self.result: Final = result
        self.delta: Final = delta
        # None when no slice is to wait for a turn.
        self.defer = step.view.defer
        self.slices: Final = (
            iter([delta]) if self.defer is None else delta.in_slices(SLICE_PARTITIONS)
        )
        self.next: MetadataDelta | None = None
        self.go_on: Callable[[_Acting], None] = _rest
        self.acted = delta.previous
        self.unserved: Final[dict[int, list[TopicPartition]]] = {}
        self.is_long = False
        self.is_published = False


class MetadataEngine:
    """Holds the image, and carries out its changes for the `BrokerView`s on it."""

    def __init__(self) -> None:
        self.image = MetadataImage("")
        self.views: Final[list[BrokerView]] = []
        self._queue: deque[_Step] = deque()
        # At most one of these three is set: the change under way.
        self._committing: _Step | None = None
        self._acting: _Acting | None = None
        self._resume: Callable[[], None] | None = None
        self._draining = False
        # Set while a change is cut short.
        self._refusal: BrokerError | None = None

    @property
    def is_committing(self) -> bool:
        """Whether a change is being committed."""
        return self._committing is not None

    def submit(self, step: _Step) -> None:
        """Carries out a change in its turn."""
        self._queue.append(step)
        self._drain()

    def refuse_commits(self, error: BrokerError) -> None:
        """Refuses the change that is being committed, whatever its outcome, and those that wait for
        a commit. Changes without a commit continue."""
        refused = [step for step in self._queue if step.commit is not None]
        self._queue = deque(step for step in self._queue if step.commit is None)
        if self._committing is not None:
            refused.insert(0, self._committing)
            self._committing = None
        for step in refused:
            step.answer(error)
        self._drain()

    def act_on_rest(self) -> None:
        """Makes listeners act at once on the slices that are left, of changes that wait too."""
        while self._acting is not None:
            acting, self._acting = self._acting, None
            acting.defer = None
            self._go_on(acting.go_on, acting)

    def cut_short(self, error: BrokerError) -> None:
        """Refuses changes that are still to be committed, also those that listeners request
        meanwhile, ends a change with slices left, and carries out the others at once: the image has
        only what listeners have acted on."""
        self._refusal = error
        try:
            self._cut_short(error)
        finally:
            self._refusal = None

    def _cut_short(self, error: BrokerError) -> None:
        self.refuse_commits(error)
        while self._acting is not None:
            acting, self._acting = self._acting, None
            if acting.is_published:
                self._drain()
            else:
                before, are_deleted = acting.delta.previous, acting.delta.are_deleted
                acted = difference(before, acting.acted, are_deleted=are_deleted)
                self._go_on(self._publish, acting, acted)
            self.refuse_commits(error)

    def close(self) -> None:
        """Drops the remaining changes; none takes effect any more."""
        self._queue.clear()
        self._committing = self._acting = self._resume = None

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        try:
            while self._take_turn():
                pass
        finally:
            self._draining = False

    def _take_turn(self) -> bool:
        resume, self._resume = self._resume, None
        if resume is not None:
            resume()
        elif self._queue and self._committing is None and self._acting is None:
            self._begin(self._queue.popleft())
        else:
            return False
        return True

    def _go_on(self, continuation: Callable[..., None], *arguments: object) -> None:
        """Continues the current change, before any other."""
        self._resume = lambda: continuation(*arguments)
        self._drain()

    def _begin(self, step: _Step) -> None:
        if self._refusal is not None and step.commit is not None:
            step.answer(self._refusal)
            return
        try:
            change = step.plan(self.image)
            if step.commit is not None:
                self._committing = step
                step.commit(change, lambda outcome: self._on_committed(step, outcome))
                return
        except BrokerError as error:
            self._committing = None
            step.answer(error)
            return
        except Exception as error:  # noqa: BLE001 - see `_Step.end`
            self._committing = None
            step.end(error)
            return
        self._act(step, change)

    def _on_committed(self, step: _Step, outcome: Change[Any] | BrokerError) -> None:
        if self._committing is step:  # it was not refused meanwhile
            self._committing = None
            self._go_on(self._act, step, outcome)

    def _act(self, step: _Step, outcome: Change[Any] | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            step.answer(outcome)
        elif outcome.delta is None:
            step.answer(outcome.result)
        else:
            self.image = outcome.delta.image
            self._act_slice(_Acting(step, outcome.result, outcome.delta))

    def _act_slice(self, acting: _Acting) -> None:
        try:
            self._act_stages(acting)
        except Exception as error:  # noqa: BLE001 - see `_Step.end`
            acting.step.end(error)
            return
        if acting.next is not None:
            acting.is_long = True
            self._await_turn(acting, self._act_slice)
        elif acting.is_long:
            self._await_turn(acting, self._publish_long)
        else:
            self._publish(acting, acting.delta)

    def _publish_long(self, acting: _Acting) -> None:
        self._publish(acting, acting.delta)
        self._await_turn(acting, _rest)

    def _await_turn(self, acting: _Acting, go_on: Callable[[_Acting], None]) -> None:
        """Continues with a change at the loop's next turn, if it has to turn."""
        acting.go_on = go_on
        if acting.defer is None:
            self._go_on(go_on, acting)
        else:
            self._acting = acting
            acting.defer(partial(self._next_turn, acting))

    def _next_turn(self, acting: _Acting) -> None:
        if self._acting is acting:  # it has not come to its end meanwhile
            self._acting = None
            self._go_on(acting.go_on, acting)

    def _act_stages(self, acting: _Acting) -> None:
        """Acts on one slice, and makes the next one."""
        delta = acting.next or next(acting.slices)
        acting.acted = delta.image
        for stage in _SLICED:
            delta = self._act_stage(stage, delta, acting)
        acting.next = next(acting.slices, None)

    def _act_stage(
        self, stage: ListenerStage, delta: MetadataDelta, acting: _Acting
    ) -> MetadataDelta:
        for view in tuple(self.views):
            unserved = view.act(stage, delta)
            if unserved:
                acting.unserved.setdefault(view.broker_id, []).extend(unserved)
                delta = delta.without_replicas(unserved, view.broker_id)
        return delta

    def _publish(self, acting: _Acting, delta: MetadataDelta) -> None:
        """Publishes the outcome of a change, and answers."""
        acting.is_published = True
        try:
            for broker_id, unserved in acting.unserved.items():
                delta = delta.without_replicas(unserved, broker_id)
            delta = self._act_stage(ListenerStage.CONTROLLER, delta, acting)
            self.image = delta.image
            for view in tuple(self.views):
                view.show(delta)
        except Exception as error:  # noqa: BLE001 - any exception here ends the requester's broker
            acting.step.view.on_broken(error)
        finally:
            acting.step.answer(acting.result)


class BrokerView:
    """A broker's view of an engine: its listeners, the cache that its clients see, and its requests
    for changes. `on_broken` ends this broker when its code raises. With `defer` the listeners of
    all brokers act in slices on the changes that this one requests."""

    def __init__(
        self,
        engine: MetadataEngine,
        cache: MetadataCache,
        broker_id: int,
        on_broken: OnBroken = fail,
        defer: Defer | None = None,
    ) -> None:
        self.engine: Final = engine
        self.cache: Final = cache
        self.broker_id = broker_id
        self.on_broken: Final = on_broken
        self.defer: Final = defer
        self._listeners: Final[dict[ListenerStage, list[MetadataListener]]] = {
            stage: [] for stage in ListenerStage
        }
        self._followers: Final[list[Callable[[MetadataDelta], None]]] = []

    @property
    def image(self) -> MetadataImage:
        """The image after the last change."""
        return self.engine.image

    def subscribe(self, stage: ListenerStage, listener: MetadataListener) -> None:
        """See `MetadataStore`."""
        self._listeners[stage].append(listener)

    def follow(self, follower: Callable[[MetadataDelta], None]) -> None:
        """Calls `follower` with every published change."""
        self._followers.append(follower)

    def submit(self, plan: Plan[T], on_done: OnDone[T], commit: Commit | None = None) -> None:
        """Submits a change; without a `commit` it is not stored."""
        self.engine.submit(_Step(self, plan, on_done, commit))

    def publish(
        self,
        change: Callable[[MetadataImage], MetadataDelta | None],
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Submits a change that is not stored; calls `then` after it in any case."""
        self.submit(lambda image: Change(None, change(image)), lambda _: then())

    def attempt(self, step: Callable[[], None]) -> None:
        """Takes a step; if it raises, this broker ends."""
        attempt(step, self.on_broken)

    def attempt_later(self, step: Callable[[], None]) -> None:
        """Takes a step at the loop's next turn, or now if nothing is to wait for a turn; see
        `attempt`."""
        action = partial(self.attempt, step)
        if self.defer is None:
            action()
        else:
            self.defer(action)

    def act(self, stage: ListenerStage, delta: MetadataDelta) -> Collection[TopicPartition]:
        """Calls the listeners of a stage; returns the replicas that they cannot serve."""
        unserved: list[TopicPartition] = []

        def call_listeners() -> None:
            for listener in tuple(self._listeners[stage]):
                unserved.extend(listener(delta))

        self.attempt(call_listeners)
        return unserved

    def show(self, delta: MetadataDelta) -> None:
        """Publishes a change to the broker's clients and followers."""

        def call_followers() -> None:
            self.cache.publish(delta)
            for follower in self._followers:
                follower(delta)

        self.attempt(call_followers)
