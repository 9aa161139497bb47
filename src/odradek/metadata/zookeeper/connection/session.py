"""`KazooSession`: the port to ZooKeeper on kazoo, whose threads hand over to the broker's loop.

kazoo keeps the connection, pings, and begins another session when one has expired. It calls back on
its own threads; every callback is put into one queue and taken out of it on the loop, so the code
above needs no lock. At most `max_in_flight` requests are under way at once, as kazoo would lose
some of many thousands; the others wait here.

A process that was paused continues with its old state. If its loop has not turned for most of the
session's time-out, the ensemble may have expired the session, so the session is treated as lost
before anything else is done, whatever kazoo receives. A silent *ensemble* is no loss: no other
broker can be elected without it, or the epochs fence this one.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kazoo import exceptions
from kazoo.client import KazooState, TransactionRequest
from kazoo.handlers.threading import KazooTimeoutError

from odradek.clock import Clock
from odradek.metadata.fail_stop import OnBroken, attempt, fail
from odradek.metadata.store import MetadataStoreError
from odradek.metadata.zookeeper.client import (
    Check,
    Create,
    Created,
    Delete,
    Failure,
    Node,
    OnChanged,
    OnChildren,
    OnCommitted,
    OnNode,
    Operation,
    Refusal,
    SetData,
    ZooKeeperClient,
    ZooKeeperSettings,
    unexpected,
)
from odradek.metadata.zookeeper.connection.connecting import (
    connect_to_root,
    is_refused,
    new_client,
    node_acl,
)
from odradek.timer import PeriodicTask, Timer, TimerTask

logger = logging.getLogger(__name__)

LOOKS_PER_TIMEOUT: Final = 12
# ZooKeeper closes the connection at a request above its jute.maxbuffer, by default 1 MiB.
DEFAULT_JUTE_MAXBUFFER: Final = 0xFFFFF
OVERSIZE_ATTEMPTS: Final = 3
UNREADABLE_MS: Final = 5_000
_FAILURES: Final[tuple[tuple[type[Exception], Failure], ...]] = (
    (exceptions.NoNodeError, Failure.NO_NODE),
    (exceptions.NodeExistsError, Failure.NODE_EXISTS),
    (exceptions.BadVersionError, Failure.BAD_VERSION),
    (exceptions.NotEmptyError, Failure.NOT_EMPTY),
    (exceptions.SessionExpiredError, Failure.SESSION_LOST),
    (exceptions.ConnectionClosedError, Failure.SESSION_LOST),
)
_OTHERS_FAILED: Final = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)


class _Aim(NamedTuple):
    """The node of a request, and its action: permissions to read and to write differ."""

    action: str
    path: str


class _Request(NamedTuple):
    """`begin` returns kazoo's asynchronous result, `finish` converts it. `aim` is its action and
    its node. `size` counts the bytes that it writes, `losses` the connections that broke while it
    was under way."""

    begin: Callable[[], Any]
    finish: Callable[[Any], None]
    aim: _Aim
    size: int = 0
    losses: int = 0


class _Unsent(NamedTuple):
    """The outcome of a request that was not sent, in place of kazoo's result."""

    exception: Exception
    value: None = None


class _Refusals:
    """Logs refusals of the ensemble when they begin or have another reason. Each is tried again
    every few seconds, perhaps for weeks: repetitions are logged at the level DEBUG."""

    def __init__(self) -> None:
        self._told: Final[dict[_Aim, str]] = {}

    def note(self, aim: _Aim, reason: str) -> None:
        """Logs a refusal."""
        level = logging.DEBUG if self._told.get(aim) == reason else logging.ERROR
        self._told[aim] = reason
        logger.log(level, "ZooKeeper refuses to %s %s: %s", *aim, reason)

    def end(self, aim: _Aim) -> None:
        """Ends the refusals of an action that has succeeded."""
        self._told.pop(aim, None)


class KazooSession(ZooKeeperClient):
    """A session by kazoo. `call_soon_threadsafe` runs a callback on the broker's loop, `on_broken`
    ends the broker if one raises."""

    def __init__(
        self,
        settings: ZooKeeperSettings,
        timer: Timer,
        clock: Clock,
        call_soon_threadsafe: Callable[[Callable[[], None]], object],
        on_broken: OnBroken = fail,
    ) -> None:
        self._settings: Final = settings
        self._timer: Final = timer
        self._clock: Final = clock
        self._call_soon_threadsafe: Final = call_soon_threadsafe
        self._on_broken: Final = on_broken
        self._client: Final = new_client(settings)
        self._client.add_listener(self._on_state)
        self._inbox: Final[deque[Callable[[], None]]] = deque()
        self._is_woken = False
        self._waiting: Final[deque[_Request]] = deque()
        self._lost: Final[list[_Request]] = []
        self._in_flight = 0
        self._refusals: Final = _Refusals()
        self._is_between_sessions = False
        self._listeners: Final[list[Callable[[], None]]] = []
        self._look: PeriodicTask | None = None
        self._last_look_ms = 0
        # Before its first ephemeral node no other broker depends on this session.
        self._stands_for_something = False
        self._closed = False

    def start(self) -> None:
        """See `ZooKeeperClient`."""
        connect_to_root(self._client, self._settings)
        self._last_look_ms = self._clock.monotonic_ms()
        interval_ms = max(1, self._settings.session_timeout_ms // LOOKS_PER_TIMEOUT)
        self._look = PeriodicTask(self._timer, lambda: interval_ms, self._look_at_clock)

    def close(self) -> None:
        """See `ZooKeeperClient`."""
        if self._closed:
            return
        self._closed = True
        if self._look is not None:
            self._look.cancel()
        self._client.remove_listener(self._on_state)
        self._client.stop()
        self._client.close()
        waiting = [*self._lost, *self._waiting]
        self._waiting.clear()
        self._lost.clear()
        for request in waiting:
            request.finish(Failure.SESSION_LOST)
        while self._inbox:
            self._take_handed_over()

    @property
    def session_id(self) -> int:
        """See `ZooKeeperClient`."""
        client_id = self._client.client_id
        return 0 if client_id is None else int(client_id[0])

    def on_session_lost(self, listener: Callable[[], None]) -> None:
        """See `ZooKeeperClient`."""
        self._listeners.append(listener)

    def get(self, path: str, on_done: OnNode, on_changed: OnChanged | None = None) -> None:
        """See `ZooKeeperClient`."""
        aim = _Aim("read", path)

        def finish(outcome: Any) -> None:
            if isinstance(outcome, Failure) and outcome is not Failure.NO_NODE:
                self._on_unread(path, outcome, on_changed)
                on_done(outcome)
                return
            self._refusals.end(aim)
            if outcome is not Failure.NO_NODE:
                on_done(_node(outcome))
            elif on_changed is None:
                on_done(None)
            else:
                self._await_creation(path, on_done, on_changed)

        watch = self._watch(on_changed)
        self._submit(lambda: self._client.get_async(path, watch=watch), finish, aim)

    def children(self, path: str, on_done: OnChildren, on_changed: OnChanged | None = None) -> None:
        """See `ZooKeeperClient`."""
        aim = _Aim("list", path)

        def finish(outcome: Any) -> None:
            if isinstance(outcome, Failure):
                self._on_unread(path, outcome, on_changed)
                on_done(outcome)
            else:
                self._refusals.end(aim)
                on_done(tuple(outcome))

        watch = self._watch(on_changed)
        self._submit(lambda: self._client.get_children_async(path, watch=watch), finish, aim)

    def commit(self, operations: Sequence[Operation], on_done: OnCommitted) -> None:
        """See `ZooKeeperClient`."""

        def finish(outcome: Any) -> None:
            if isinstance(outcome, Failure):
                on_done(Refusal(0, outcome))
            else:
                on_done(self._transacted(operations, outcome))

        if any(isinstance(each, Create) and each.ephemeral for each in operations):
            self._stands_for_something = True
        self._submit(
            lambda: self._transaction(operations).commit_async(),
            finish,
            _Aim("write", operations[0].path),
            _size(operations),
        )

    def read_now(self, paths: Sequence[str]) -> Mapping[str, Node | None]:
        """See `ZooKeeperClient`."""
        found: dict[str, Node | None] = {}
        for start in range(0, len(paths), self._settings.max_in_flight):
            some = paths[start : start + self._settings.max_in_flight]
            for path, promise in [(path, self._client.get_async(path)) for path in some]:
                try:
                    found[path] = _node(self._await(promise))
                except exceptions.NoNodeError:
                    found[path] = None
        return found

    def children_now(self, path: str) -> tuple[str, ...]:
        """See `ZooKeeperClient`."""
        return tuple(self._await(self._client.get_children_async(path)))

    def commit_now(self, operations: Sequence[Operation]) -> Created | Refusal:
        """See `ZooKeeperClient`."""
        outcomes = self._await(self._transaction(operations).commit_async())
        return self._transacted(operations, outcomes)

    def _await(self, promise: Any) -> Any:
        try:
            return promise.get(timeout=self._settings.connection_timeout_ms / 1000)
        except exceptions.NoNodeError:
            raise
        except (exceptions.ZookeeperError, KazooTimeoutError) as error:
            raise MetadataStoreError(
                f"ZooKeeper at {self._settings.connect} does not answer: {error!r}"
            ) from error

    def _await_creation(self, path: str, on_done: OnNode, on_changed: OnChanged) -> None:
        """Watches for the creation of a missing node, which only an exists call can do."""

        def finish(outcome: Any) -> None:
            if isinstance(outcome, Failure):
                self._on_unread(path, outcome, on_changed)
            if outcome is None or isinstance(outcome, Failure):
                on_done(outcome)
            else:
                self.get(path, on_done, on_changed)

        watch = self._watch(on_changed)
        aim = _Aim("read", path)
        self._submit(lambda: self._client.exists_async(path, watch=watch), finish, aim)

    def _on_unread(self, path: str, failure: Failure, on_changed: OnChanged | None) -> None:
        """Repeats a failed read after a while: the ensemble does not watch a node that was not
        read."""
        if on_changed is None or failure is Failure.SESSION_LOST:
            return
        if failure is Failure.NO_NODE:
            self._refusals.note(_Aim("list", path), "it is not there")
        again = partial(attempt, on_changed, self._on_broken)
        self._timer.add(TimerTask(UNREADABLE_MS, lambda: None if self._closed else again()))

    def _watch(self, on_changed: OnChanged | None) -> Callable[[object], None] | None:
        """A watcher for kazoo, which calls it on its own thread."""
        if on_changed is None:
            return None
        return lambda _event: self._hand_over(on_changed)

    def _transaction(self, operations: Sequence[Operation]) -> TransactionRequest:
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case Create(path, data, ephemeral, sequential):
                    acl = node_acl(self._settings, path)
                    transaction.create(path, data, acl, ephemeral, sequential)
                case SetData(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Check(path, version):
                    transaction.check(path, version)
        return transaction

    def _transacted(
        self, operations: Sequence[Operation], outcomes: Sequence[Any]
    ) -> Created | Refusal:
        outcome = _transacted(operations, outcomes)
        if not isinstance(outcome, Refusal):
            for each in operations:
                self._refusals.end(_Aim("write", each.path))
        elif outcome.failure is Failure.REFUSED:
            aim = _Aim("write", operations[outcome.place].path)
            self._refusals.note(aim, repr(outcomes[outcome.place]))
        return outcome

    # The way to kazoo and back

    def _submit(
        self, begin: Callable[[], Any], finish: Callable[[Any], None], aim: _Aim, size: int = 0
    ) -> None:
        self._waiting.append(_Request(begin, finish, aim, size))
        self._send()

    def _send(self) -> None:
        """Sends as many as may be under way. Operations that were lost with a connection go first,
        in their order."""
        if self._is_between_sessions:
            return
        if self._lost:
            if self._in_flight:
                return
            self._waiting.extendleft(reversed(self._lost))
            self._lost.clear()
        while self._waiting and self._in_flight < self._settings.max_in_flight:
            request = self._waiting.popleft()
            self._in_flight += 1
            try:
                promise = request.begin()
            except ValueError as error:
                # kazoo sends no path with `.` or `..`, which names of clients may be.
                self._hand_over(partial(self._finish, request, _Unsent(error)))
                continue
            promise.rawlink(
                lambda promise, request=request: self._hand_over(
                    partial(self._finish, request, promise)
                )
            )

    def _finish(self, request: _Request, promise: Any) -> None:
        self._in_flight -= 1
        error = promise.exception
        if isinstance(error, exceptions.ConnectionLoss) and not self._closed:
            # It is unknown whether it was done.
            request = request._replace(losses=request.losses + 1)
            if not _is_hung_up_on(request):
                self._lost.append(request)
                self._send()
                return
            error = _TooLarge(request.size)
        self._send()
        request.finish(promise.value if error is None else self._failure(request.aim, error))

    def _failure(self, aim: _Aim, error: Exception) -> Failure:
        failure = _failure(error)
        if failure is Failure.REFUSED:
            self._refusals.note(aim, str(error) if isinstance(error, _TooLarge) else repr(error))
        return failure

    def _hand_over(self, action: Callable[[], None]) -> None:
        """Called on kazoo's threads. One wake-up of the loop serves all callbacks that came
        meanwhile."""
        self._inbox.append(action)
        self._wake()

    def _wake(self) -> None:
        if self._is_woken or self._closed:
            return
        self._is_woken = True
        try:
            self._call_soon_threadsafe(self._take_handed_over)
        except RuntimeError:
            return  # the loop is closed

    def _take_handed_over(self) -> None:
        """Calls what was handed over before this turn of the loop: answers bring new requests, and
        kazoo may answer as fast as the loop asks."""
        self._is_woken = False  # first: what comes from here on wakes the loop again
        for _ in range(len(self._inbox)):
            if self._inbox:  # `close` takes the rest; a watcher may be called after it
                attempt(self._inbox.popleft(), self._on_broken)

    # The end of a session

    def _on_state(self, state: Any) -> None:
        if state == KazooState.SUSPENDED:
            lost = "The connection to ZooKeeper is lost; nothing is decided meanwhile"
            self._log_state(logging.WARNING, lost)
        elif state == KazooState.CONNECTED:
            self._log_state(logging.INFO, "Connected to ZooKeeper")
            self._hand_over(self._go_on)
        elif state == KazooState.LOST:
            self._hand_over(self._expire)

    def _log_state(self, level: int, message: str) -> None:
        logger.log(logging.DEBUG if is_refused(self._client) else level, message)

    def _expire(self) -> None:
        """Expires the session. kazoo would refuse requests until it has begun another session."""
        self._is_between_sessions = True
        self._lose("it has expired")

    def _go_on(self) -> None:
        self._is_between_sessions = False
        self._send()

    def _look_at_clock(self) -> None:
        now_ms = self._clock.monotonic_ms()
        away_ms = now_ms - self._last_look_ms
        self._last_look_ms = now_ms
        is_long = 3 * away_ms >= 2 * self._settings.session_timeout_ms
        if is_long and self._stands_for_something:
            reason = f"this process stood still for {away_ms} ms"
            attempt(lambda: self._lose(reason), self._on_broken)

    def _lose(self, reason: str) -> None:
        if self._closed:
            return
        self._stands_for_something = False
        logger.warning("The ZooKeeper session has ended: %s", reason)
        for listener in tuple(self._listeners):
            listener()


def generate_broker_id(settings: ZooKeeperSettings, reserved_max_id: int) -> int:
    """A number that no broker has had, above those that may be configured; blocks.

    Raises:
        MetadataStoreError: nobody answers.
    """
    client = new_client(settings)
    try:
        connect_to_root(client, settings)
        client.ensure_path("/brokers/seqid")
        return reserved_max_id + int(client.set("/brokers/seqid", b"").version)
    except exceptions.ZookeeperError as error:
        raise unexpected(repr(error)) from error
    finally:
        client.stop()
        client.close()


class _TooLarge(Exception):
    """A request that is so large that the ensemble closes its connection."""

    def __str__(self) -> str:
        return (
            f"it closed {OVERSIZE_ATTEMPTS} connections on a request of {self.args[0]} bytes; "
            "jute.maxbuffer of the ensemble bounds requests"
        )


def _is_hung_up_on(request: _Request) -> bool:
    return request.size > DEFAULT_JUTE_MAXBUFFER and request.losses >= OVERSIZE_ATTEMPTS


def _size(operations: Sequence[Operation]) -> int:
    return sum(
        len(each.path) + len(each.data) for each in operations if isinstance(each, Create | SetData)
    )


def _node(outcome: Any) -> Node:
    data, stat = outcome
    return Node(data or b"", stat.version, stat.creation_transaction_id, stat.owner_session_id or 0)


def _transacted(operations: Sequence[Operation], outcomes: Sequence[Any]) -> Created | Refusal:
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, Exception) and not isinstance(outcome, _OTHERS_FAILED):
            return Refusal(index, _failure(outcome))
    return tuple(
        outcome
        for operation, outcome in zip(operations, outcomes, strict=True)
        if isinstance(operation, Create)
    )


def _failure(error: Exception) -> Failure:
    for kind, failure in _FAILURES:
        if isinstance(error, kind):
            return failure
    if isinstance(error, exceptions.ConnectionLoss):
        return Failure.SESSION_LOST
    return Failure.REFUSED
