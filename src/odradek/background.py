"""Where blocking work goes: fsync, metadata commits, removing large files.

The broker's rules run on one event loop, and what blocks for milliseconds must not run
there. A floor that has such work is handed a `Background` and gets the outcome by callback
on the loop again, so it needs no lock. `InlineBackground` does the work at once: it is what
unit tests and offline tools use, and it keeps them deterministic.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Background(Protocol):
    """Runs blocking work off the event loop."""

    def submit(
        self,
        work: Callable[[], T],
        on_done: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Runs `work` elsewhere, then calls exactly one of the callbacks on the owner's loop."""
        ...


class InlineBackground:
    """Runs the work before `submit` returns."""

    def submit(
        self,
        work: Callable[[], T],
        on_done: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Runs `work` now; what it raises goes to `on_error`."""
        try:
            result = work()
        except (OSError, ValueError, RuntimeError, LookupError) as error:
            on_error(error)
            return
        on_done(result)
