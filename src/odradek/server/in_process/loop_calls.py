"""How the calls of `odradek.Broker` and `odradek.Cluster` get to the loop of their brokers."""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from weakref import WeakSet

from odradek.event_loop import LoopThread
from odradek.server.broker import BrokerServer
from odradek.server.faults import FaultBoard
from odradek.server.in_process.calls.broker_helpers import BrokerHelpers
from odradek.server.in_process.last_errors import LastErrors
from odradek.server.in_process.report import explain_here, report_on
from odradek.server.in_process.shown import as_html

if TYPE_CHECKING:
    from odradek.server.explain.answers import Explanation

T = TypeVar("T")

REPORT_PATIENCE_S: Final = 5.0
_MOST_LEFT: Final = 4
_IN_A_TEST: Final = "PYTEST_CURRENT_TEST"
FORKED: Final = (
    "it was started before this process was forked, and runs in the parent: clients reach it there "
    "by its bootstrap_servers, and no other call does"
)
RUNNING: "Final[WeakSet[LoopCalls]]" = WeakSet()
"""The brokers and clusters that run in this process, for the report about a failed test."""
LEFT_BY_ERROR: "Final[deque[tuple[object, str, str]]]" = deque(maxlen=_MOST_LEFT)
"""The error's mark, kind and report of those whose `with` block a test has left with an error: when
pytest reports the test, they have ended."""
MARK: Final = "_odradek_block"
"""An attribute of such an error. To keep the error itself would keep all that its frames hold."""


class LoopCalls:
    """A base class whose subclass has the brokers, and the thread they live in, if any."""

    _own_thread: LoopThread | None = None
    # The process of the brokers. A process that was forked from it has copies that nobody serves.
    _process_id: int | None = None
    _servers: list[BrokerServer]
    _helpers: BrokerHelpers
    _faults: FaultBoard
    _errors: LastErrors

    def _check_running(self) -> None:
        """Raises RuntimeError if no broker runs."""
        raise NotImplementedError

    @property
    def _is_forked(self) -> bool:
        return self._process_id not in (None, os.getpid())

    def check_process(self) -> None:
        """Raises RuntimeError in a process that was forked from the one they run in."""
        if self._is_forked:
            raise RuntimeError(FORKED)

    @property
    def _thread(self) -> LoopThread | None:
        self.check_process()
        return self._own_thread

    def _thread_for(self, work: Coroutine[Any, Any, object]) -> LoopThread | None:
        if self._is_forked:
            work.close()
        return self._thread

    def _asked(self) -> BrokerHelpers:
        self._check_running()
        return self._helpers

    @property
    def _awaited(self) -> Self:
        """Asked by `waits_for`: the calls that block have twins here, with `_async`."""
        return self

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it on the brokers' thread, and waits."""
        thread = self._thread_for(work)
        if thread is None:
            work.close()
            self._check_running()
            raise RuntimeError(f"on the brokers' own loop, use `await {_awaitable_of(work)}(...)`")
        return thread.run(work)

    def _repr_html_(self) -> str:
        kind = f"odradek.{type(self).__name__}"
        return self._now(lambda: as_html(kind, self._servers, self._helpers))

    def report(self) -> str:
        """Describes the brokers for a failed test: topics with their end offsets, groups with their
        states and lag, waiting operations, the last error responses, the active faults. From any
        thread; a broker that does not answer within seconds is reported as such."""

        async def see() -> str:
            return report_on(self._servers, self._helpers, self._errors, self._faults)

        if self._is_forked:
            return FORKED
        thread = self._thread
        if thread is None or thread.is_current:
            return report_on(self._servers, self._helpers, self._errors, self._faults)
        try:
            return thread.run_within(see(), REPORT_PATIENCE_S)
        except TimeoutError:
            return "the broker's loop does not answer: something holds it up"

    def report_or_reason(self) -> str:
        """Returns `report`, or why there is none: a failed test is reported in any case."""
        try:
            return self.report()
        except Exception as error:  # noqa: BLE001 - a user's clock is asked
            return f"no report can be made: {error!r}"

    def _on_left(self, error: BaseException | None) -> None:
        """The `with` block ends; with an error pytest is going to ask what has been here."""
        if error is not None and self._servers and _IN_A_TEST in os.environ:
            mark = vars(error).setdefault(MARK, object())
            LEFT_BY_ERROR.append((mark, type(self).__name__, self.report_or_reason()))

    def explain(
        self,
        group: str | None = None,
        *,
        topic: str | None = None,
        client: str | None = None,
        transaction: str | None = None,
    ) -> "Explanation":
        """Why does nothing come? For a group, a topic, a client id or a transactional id: the
        causes known to the brokers that keep its records from being read, the likeliest first. From
        any thread.

        Raises:
            ValueError: it is asked about none of them, or more than one.
        """
        from odradek.server.explain.answers import Explanation, asked_about

        question = asked_about(group=group, topic=topic, client=client, transaction=transaction)
        self._check_running()

        def look() -> Explanation:
            return explain_here(self._servers, self._errors, self._faults, question)

        return self._now(look)

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits what the brokers' loop does, whichever loop this is."""
        thread = self._thread_for(work)
        if thread is None or thread.is_current:
            return await work
        return await asyncio.wrap_future(thread.submit(work))

    async def _seen(self, look: Callable[[], T]) -> T:
        """Evaluates it on the brokers' loop, whichever loop this is."""

        async def see() -> T:
            return look()

        return await self._there(see())

    def _now(self, function: Callable[[], T]) -> T:
        """Calls it on the brokers' loop at once: from any thread, and from the loop itself."""
        thread = self._thread
        if thread is None or thread.is_current:
            return function()

        async def call() -> T:
            return function()

        return thread.run(call())


def _awaitable_of(work: Coroutine[Any, Any, object]) -> str:
    name: str = getattr(work, "__name__", "")
    return name if name.endswith("_async") else "..._async"
