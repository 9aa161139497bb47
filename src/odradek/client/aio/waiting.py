"""The waiting of an event loop: awaits what a generator of the core yields; tells apart the
cancellations of a task."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from odradek.client.core.waits import Gen, Pause

P = ParamSpec("P")
T = TypeVar("T")
Owner = TypeVar("Owner")


async def wait(gen: Gen[T]) -> T:
    """Runs a generator to its end; a cancellation ends it."""
    outcome: Any = None
    failure: BaseException | None = None
    while True:
        try:
            waited = gen.send(outcome) if failure is None else gen.throw(failure)
        except StopIteration as end:
            result: T = end.value
            return result
        outcome = failure = None
        try:
            if isinstance(waited, Pause):
                await asyncio.sleep(waited.wait_ms / 1000)
            else:
                outcome = await waited()
        except BaseException as error:  # noqa: BLE001 - the generator's to handle, or to raise
            failure = error


def is_being_cancelled() -> bool:
    """Whether a CancelledError is meant for this task, and not for something that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def awaits(
    method: Callable[Concatenate[Owner, P], Gen[T]],
) -> Callable[Concatenate[Owner, P], Coroutine[Any, Any, T]]:
    """The twin to await of a method that is a generator, also where that is overridden: the same
    arguments, and documentation."""
    name = method.__name__

    @functools.wraps(method)
    async def awaiting(owner: Owner, /, *args: P.args, **kwargs: P.kwargs) -> T:
        gen: Gen[T] = getattr(owner, name)(*args, **kwargs)
        return await wait(gen)

    return awaiting
