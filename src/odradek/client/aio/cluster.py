"""The brokers of a cluster on an event loop: `ClusterCore`, awaited, by many tasks at once.

The common part of producers, consumers and admins. Concurrent callers share one request, or one
connection that is being opened, and its outcome; a caller that gives up does not affect the others.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, NamedTuple, TypeVar

from odradek.client.addresses import Address
from odradek.client.aio.connection import AsyncConnection, open_connection
from odradek.client.aio.waiting import awaits, is_being_cancelled, wait
from odradek.client.apis import ClientApi
from odradek.client.core.cluster import ClusterCore, Decode, Encode
from odradek.client.core.freshness import BROKERS_ALONE, Subject
from odradek.client.core.metadata import ClusterMetadata
from odradek.client.core.network.connections import MAIN_CHANNEL
from odradek.client.core.retries import NO_LIMIT, Rng, TimeLimit
from odradek.client.core.waits import Gen
from odradek.client.errors import ClientClosed, NetworkError
from odradek.client.security import client_security
from odradek.client.settings import ClientSettings
from odradek.clock import Clock, SystemClock
from odradek.errors import BrokerError

T = TypeVar("T")


class _Update(NamedTuple):
    """A request for metadata: its topics, or all, and whether it may create them."""

    kind: tuple[bool, bool]
    subjects: set[Subject]
    task: asyncio.Task[ClusterMetadata]


class ClusterClient(ClusterCore[AsyncConnection]):
    """Asks brokers. Made on the loop it is used on; `close` it."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        kind: str = "adminclient",
        retries: int = NO_LIMIT,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        """Does not connect yet.

        Raises:
            ConfigError: no broker is named, or an address is malformed.
        """
        clock = clock if clock is not None else SystemClock()
        rng = rng if rng is not None else random.Random()
        super().__init__(settings, clock, rng, kind, retries)
        self._security = client_security(settings)
        self._updates: dict[tuple[bool, bool], _Update] = {}
        self._under_way: _Update | None = None
        self._asking = asyncio.Lock()
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in their order, as a set is not
        self._opening: dict[tuple[Address, str], asyncio.Task[AsyncConnection]] = {}

    async def close(self) -> None:
        """Closes every connection; waiting callers get `ClientClosed`."""
        self._is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._connections.close(ClientClosed("the client was closed"))

    @property
    def is_in_use(self) -> bool:
        """Whether a connection is open or being opened."""
        is_ours = not self._is_closed and not self.is_forked
        return is_ours and bool(self._opening or self._connections.open)

    # --- metadata ---------------------------------------------------------------------------

    async def refresh(
        self, names: Iterable[str] | None, *, allow_auto_topic_creation: bool = False
    ) -> ClusterMetadata:
        """Asks any broker for the named topics, or for all; returns its answer, including errors.

        One request is in flight at a time; callers that need the same topics share it, others share
        the next. Topics that were just asked for are asked for again after a pause. `metadata` is
        the merged snapshot afterwards.

        Raises:
            KafkaError: nobody answers.
        """
        subjects: frozenset[Subject] = (
            frozenset([None]) if names is None else frozenset(names) or frozenset([BROKERS_ALONE])
        )
        kind = names is None, allow_auto_topic_creation
        if not self._covers(kind, subjects):
            wait_ms = self._freshness.wait_ms(subjects, self.clock.monotonic_ms())
            if wait_ms:
                await asyncio.sleep(wait_ms / 1000)
        self._check_open()
        under_way = self._under_way
        if under_way is not None and self._covers(kind, subjects):
            return await self._shared(under_way.task)
        update = self._updates.get(kind)
        if update is None or update.task.done():  # cancelled before it began
            update = _Update(kind, set(), self._begin(self._update(kind)))
            self._updates[kind] = update
        update.subjects.update(subjects)
        return await self._shared(update.task)

    def refresh_gen(self, names: Iterable[str]) -> Gen[ClusterMetadata]:
        """Like `refresh`, shared by concurrent callers."""
        answer: ClusterMetadata = yield lambda: self.refresh(names)
        return answer

    def _covers(self, kind: tuple[bool, bool], subjects: frozenset[Subject]) -> bool:
        """Whether the request in flight has all these topics."""
        update = self._under_way
        return update is not None and update.kind == kind and subjects <= update.subjects

    async def _update(self, kind: tuple[bool, bool]) -> ClusterMetadata:
        async with self._asking:
            self._under_way = update = self._updates.pop(kind)
            is_complete, allow_auto_topic_creation = kind
            named = {each for each in update.subjects if isinstance(each, str)}
            try:
                return await wait(
                    self.update_gen(
                        update.subjects,
                        None if is_complete else named,
                        allow_auto_topic_creation=allow_auto_topic_creation,
                    )
                )
            finally:
                self._under_way = None

    ask_metadata = awaits(ClusterCore[AsyncConnection].metadata_gen)

    # --- asking -----------------------------------------------------------------------------

    call = awaits(ClusterCore[AsyncConnection].call_gen)

    async def exchange(
        self,
        node_id: int | None,
        api: ClientApi,
        encode: Encode,
        decode: "Decode[T]",
        *,
        channel: str = MAIN_CHANNEL,
        timeout_ms: int | None = None,
    ) -> T:
        """Asks a broker, or any.

        Raises:
            KafkaError: no answer came.
        """
        return await wait(
            self.exchange_gen(node_id, api, encode, decode, channel=channel, timeout_ms=timeout_ms)
        )

    def time_limit(
        self, setting: str = "default.api.timeout.ms", given_ms: int | None = None
    ) -> TimeLimit:
        """The time limit of a call from now on: its caller's, or that of a setting."""
        if given_ms is None:
            return TimeLimit(self.clock, self.settings.number(setting), setting)
        return TimeLimit(self.clock, given_ms, "timeout_ms")

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], limit: TimeLimit | None = None
    ) -> T:
        """Makes attempts until one succeeds, fails for good, or the time is over, which is
        `default.api.timeout.ms` unless a call has another.

        An attempt that is still waiting then, for a broker that is silent, is given up.

        Raises:
            KafkaError: the error of the last attempt that had one; it names the limit if that has
                ended the attempts.
        """
        limit = self.time_limit() if limit is None else limit
        failures: list[BrokerError] = []
        try:
            async with asyncio.timeout(limit.left_ms / 1000):
                found: T = await wait(self.retrying_gen(attempt, limit, failures))
                return found
        except TimeoutError:
            raise limit.overdue(failures[-1] if failures else None) from None

    # --- whom to ask ------------------------------------------------------------------------

    controller_id = awaits(ClusterCore[AsyncConnection].controller_gen)
    coordinator_id = awaits(ClusterCore[AsyncConnection].coordinator_gen)
    connection = awaits(ClusterCore[AsyncConnection].connection_gen)

    def _connect(
        self, address: Address, setup_timeout_ms: int
    ) -> Coroutine[Any, Any, AsyncConnection]:
        traffic = self._connections.traffic_with(address)
        return open_connection(
            address,
            self._client_id,
            setup_timeout_ms,
            traffic=traffic,
            security=self._security,
        )

    async def _opened(self, address: Address, channel: str) -> AsyncConnection:
        key = (address, channel)
        opening = self._opening.get(key)
        if opening is None:
            opening = self._begin(wait(self._connections.open_gen(address, channel)))
            self._opening[key] = opening
            opening.add_done_callback(lambda _: self._opening.pop(key, None))
        return await self._shared(opening)

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begins a task with many waiters; `close` ends it."""
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled():
            task.exception()  # its callers may be cancelled

    async def _shared(self, task: asyncio.Task[T]) -> T:
        """Awaits a task that others await too: cancelling this wait does not cancel the task."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and not is_being_cancelled():
                self._check_open()
                raise NetworkError("the request was cancelled by somebody else") from None
            raise
