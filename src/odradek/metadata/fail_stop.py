"""Fail-stop: an exception in code that follows metadata is a broken invariant.

A step that ended half-way leaves an image that some listeners have not acted on, or a queue that
waits for it: the broker would seem alive, and get no metadata any more. So it ends.
"""

from collections.abc import Callable
from typing import TypeAlias

OnBroken: TypeAlias = Callable[[Exception], None]
"""Ends the broker; hears what was raised."""


def attempt(step: Callable[[], None], on_broken: OnBroken) -> None:
    """Takes a step; if it raises, the broker ends."""
    try:
        step()
    except Exception as error:  # noqa: BLE001 - any exception here ends the broker
        on_broken(error)


def fail(error: Exception) -> None:
    """Raises the error to the caller, without a broker to end."""
    raise error
