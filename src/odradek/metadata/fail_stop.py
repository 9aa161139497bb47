"""Fail-stop: an exception in code that follows metadata is a broken invariant.

A step that ended half-way leaves an image that not everybody has acted on, or a queue that waits
for it: the broker would be taken for a live one, and hear nothing any more. So it ends.
"""

from collections.abc import Callable
from typing import TypeAlias

OnBroken: TypeAlias = Callable[[Exception], None]
"""Ends the broker; hears what was raised."""


def attempt(step: Callable[[], None], on_broken: OnBroken) -> None:
    """Takes a step; if it raises, the broker ends."""
    try:
        step()
    except Exception as error:  # noqa: BLE001 - of whatever kind, it is the end
        on_broken(error)


def fail(error: Exception) -> None:
    """Lets it through to the caller, where there is no broker to end."""
    raise error
