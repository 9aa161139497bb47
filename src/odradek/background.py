"""Where blocking work goes: fsync, metadata commits, removing large files.

The broker's rules run on one event loop, and what blocks for milliseconds must not run
there. A floor that has such work is handed a `Background` and gets the outcome by callback
on the loop again, so it needs no lock. `InlineBackground` does the work at once: it is what
unit tests and offline tools use, and it keeps them deterministic.

`Workers` are for the start and the end of a broker, when the loop itself has nothing else to do:
they do many independent pieces of work side by side, and the caller waits for the results.
"""

from collections.abc import Callable, Iterator, Sequence
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

    def defer(self, action: Callable[[], None]) -> None:
        """Calls `action` on the owner's loop, after what waits there already."""
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

    def defer(self, action: Callable[[], None]) -> None:
        """Calls `action` now: nothing waits."""
        action()


# A piece of work; what it hands to its argument comes out at the caller's, in that order.
Work = Callable[[Callable[[T], None]], None]


class Workers(Protocol):
    """Does independent pieces of blocking work side by side."""

    def run(self, rows: Sequence[Sequence[Work[T]]], threads: int) -> Iterator[T]:
        """What the work hands over, as it comes; the iterator ends when all of it is done.

        Up to `threads` pieces of each row are under way at once, rows do not wait for each
        other. What a piece raises is raised here, and no further one is begun.
        """
        ...


class InlineWorkers:
    """Does one piece after the other, on the caller's thread."""

    def run(self, rows: Sequence[Sequence[Work[T]]], threads: int) -> Iterator[T]:  # noqa: ARG002
        """Results of a piece come when it is done."""
        for row in rows:
            for work in row:
                results: list[T] = []
                work(results.append)
                yield from results
