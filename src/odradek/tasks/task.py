"""`Task`: a function that can be called by a record."""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec

from odradek.client.core.producing.delivery_time import DeliverAfter, DeliverAt
from odradek.tasks.call import Call

if TYPE_CHECKING:
    from odradek.tasks.app import App

P = ParamSpec("P")

BACKOFFS = ("exponential", "constant")


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a task that raised is tried again, and after what time."""

    count: int = 0
    backoff: str = "exponential"
    delay: timedelta = timedelta(seconds=1)
    longest_delay: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        if self.backoff not in BACKOFFS:
            raise ValueError(f"backoff is one of {', '.join(BACKOFFS)}, not {self.backoff!r}")
        if self.count < 0:
            raise ValueError(f"retries are 0 or more, not {self.count}")
        if self.delay <= timedelta(0):
            raise ValueError(f"a delay is longer than nothing, not {self.delay}")

    def delay_after(self, attempt: int) -> timedelta:
        """How long to wait after an attempt has failed; the first is 0."""
        if self.backoff == "constant":
            return min(self.delay, self.longest_delay)
        doublings = 0
        delay = self.delay
        while doublings < attempt and delay < self.longest_delay:
            delay, doublings = delay * 2, doublings + 1
        return min(delay, self.longest_delay)


@dataclass(frozen=True, slots=True)
class Options:
    """When a call is run, and under which id."""

    countdown: DeliverAfter | None = None
    eta: DeliverAt | None = None
    repeat: str | None = None
    zone: str | None = None
    id: str | None = None

    @property
    def is_put_off(self) -> bool:
        """Whether the options need a broker that delivers later."""
        return not (self.countdown is None and self.eta is None and self.repeat is None)


class Task(Generic[P]):
    """A function of an app. Called as it is, it is the function and nothing else."""

    def __init__(
        self,
        app: "App",
        name: str,
        function: Callable[P, Any],
        retries: Retries,
        options: Options = Options(),
    ) -> None:
        self.name = name
        self.function = function
        self.retries = retries
        self._app = app
        self._options = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Calls the function, here and now."""
        return self.function(*args, **kwargs)

    def options(
        self,
        *,
        countdown: DeliverAfter | None = None,
        eta: DeliverAt | None = None,
        repeat: str | None = None,
        zone: str | None = None,
        id: str | None = None,
    ) -> "Task[P]":
        """The same task, to be sent later: after a `countdown` (`"90s"`, milliseconds, a
        `timedelta`), at an `eta`, or again and again: `repeat="@every 5m"`, or cron, in a `zone`.

        A delayed call can be replaced, by another call under the same `id`, and cancelled
        (`App.cancel`). A call that repeats has the task's name for its id, unless it is given one.
        """
        options = Options(countdown, eta, repeat, zone, id)
        return Task(self._app, self.name, self.function, self.retries, options)

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Sends a call for a worker to run. Returns the call's id once the broker has the call.

        Raises:
            TypeError: the function does not take these arguments, or JSON does not.
            DelaysUnsupported: it is put off, and the broker does not deliver later.
            KafkaError: the broker does not take it.
        """
        call = self._call(args, kwargs)
        await self._app.send(call, self._options)
        return call.id

    async def call(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Sends a call, and waits for the result from the worker that runs it.

        Raises:
            TaskFailed: it has raised, also the last time it was tried.
            ValueError: it repeats: of many results none is the one.
        """
        if self._options.repeat is not None:
            raise ValueError(f"{self.name} repeats: send it, there is no one result to wait for")
        call = self._call(args, kwargs)._replace(wants_result=True)
        return await self._app.send_and_wait(call, self._options)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        inspect.signature(self.function).bind(*args, **kwargs)
        repeats = self._options.repeat is not None
        name = self._options.id or (self.name if repeats else self._app.new_id())
        return Call(name, self.name, args, kwargs, repeats=repeats)

    async def run(self, call: Call) -> Any:
        """Runs it, on a thread if it is no coroutine function, so that the worker keeps sending
        heartbeats."""
        try:
            return await self._run(call)
        except asyncio.CancelledError as error:
            worker = asyncio.current_task()
            if worker is not None and worker.cancelling():
                raise
            # Not the worker was cancelled, which would end without a word.
            raise RuntimeError("a future that the function awaited was cancelled") from error

    async def _run(self, call: Call) -> Any:
        if inspect.iscoroutinefunction(self.function):
            return await self.function(*call.args, **call.kwargs)
        result = await asyncio.to_thread(self._called, call)
        # A plain function around a coroutine function has done nothing yet.
        return await result if inspect.isawaitable(result) else result

    def _called(self, call: Call) -> Any:
        try:
            return self.function(*call.args, **call.kwargs)
        except StopIteration as error:
            # No future can carry it: the code that waits for the thread would wait for ever.
            raise RuntimeError("the function raised StopIteration") from error
