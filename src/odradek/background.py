"""Where blocking work goes: fsync, metadata commits, removing large files.

The broker's rules run on one event loop, and code that blocks for milliseconds must not run there.
A floor that has such work is handed a `Background` and gets the outcome by callback on the loop
again, so it needs no lock. `InlineBackground` does the work at once: it is what unit tests and
offline tools use, and it keeps them deterministic.

Exactly one callback comes, whatever the work raises: the submitter holds a flag or a queue
meanwhile, and would wait for ever without one. An error of the environment (a full disk) is the
submitter's to judge; anything else is a mistake of ours, so it is logged with its traceback
besides. After an `AssertionError` nobody knows what is true any more: the broker ends.

`Workers` are for the start and the end of a broker, when the loop itself has nothing else to do:
they do many independent pieces of work side by side, and the caller waits for the results.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from odradek.errors import BrokerError, EnvironmentFailure

T = TypeVar("T")

logger = logging.getLogger(__name__)


def ignore() -> None:
    """The callback of work that nobody waits for. It takes no argument: an outcome is looked at."""


def note_refusal(what: str, outcome: object) -> None:
    """Logs that something is done later, if its outcome is an error: nobody waits for it."""
    if isinstance(outcome, BrokerError):
        logger.info("%s: %s", what, outcome)


def note_refusals(what: str, outcomes: Iterable[object]) -> None:
    """Logs in one line how many of several outcomes are errors, and which: as `note_refusal`."""
    codes = Counter(each.code.name for each in outcomes if isinstance(each, BrokerError))
    if codes:
        told = ", ".join(f"{count} {name}" for name, count in codes.items())
        logger.info("%s: %s", what, told)


# Errors of the environment; the submitter of the work knows what they mean, and says so.
ENVIRONMENT: Final = (OSError, BrokerError, EnvironmentFailure)


def do_each(items: Iterable[T], work: Callable[[T], object]) -> None:
    """Does something for each item. An item that raises does not stop the others: its error is
    raised after all have had their turn, a broken invariant before any other."""
    failure: Exception | None = None
    for item in items:
        try:
            work(item)
        except Exception as error:  # noqa: BLE001 - of whatever kind, it is raised in the end
            if failure is not None:
                log_mistake(error)
            if failure is None or isinstance(error, AssertionError):
                failure = error
    if failure is not None:
        raise failure


def run_each(steps: Iterable[Callable[[], object]]) -> None:
    """Takes each step; see `do_each`."""
    do_each(steps, lambda step: step())


def do_each_in_turns(
    items: Iterable[T],
    work: Callable[[T], object],
    size: int,
    defer: Callable[[Callable[[], None]], None],
    on_done: Callable[[], object] = ignore,
) -> None:
    """Does something for each item as `do_each` does, but for `size` of them at a time: the first
    now, and the others by `defer`, at the loop's next turns; then it calls `on_done`. A slice that
    raises does not stop the later ones."""
    left = iter(items)

    def take_slice() -> None:
        taken = list(islice(left, size))
        go_on: Callable[[], object] = partial(defer, take_slice) if len(taken) == size else on_done
        run_each([partial(do_each, taken, work), go_on])

    take_slice()


class SlicedRound(Generic[T]):
    """A walk over all `items` that comes round again, `size` of them in a turn of the loop; see
    `do_each_in_turns`. An item may have gone before its turn comes: `work` has to look."""

    def __init__(
        self,
        items: Callable[[], Sequence[T]],
        work: Callable[[T], object],
        size: int,
        defer: Callable[[Callable[[], None]], None],
        on_done: Callable[[], object] = ignore,
    ) -> None:
        self._items: Final = items
        self._work: Final = work
        self._size: Final = size
        self._defer: Final = defer
        self._on_done: Final = on_done
        self._is_under_way = False

    def begin(self) -> None:
        """Begins a round, unless one is under way: those that take longer than their interval
        would become ever more. After the last item `on_done` is called."""
        if self._is_under_way:
            return
        items = self._items()
        self._is_under_way = True
        do_each_in_turns(items, self._work, self._size, self._defer, self._end)

    def _end(self) -> None:
        self._is_under_way = False
        self._on_done()


class Background(Protocol):
    """Runs blocking work off the event loop."""

    def submit(
        self,
        work: Callable[[], T],
        on_done: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Runs `work` elsewhere, then calls exactly one of the callbacks on the owner's loop.

        `on_error` hears of an `AssertionError` too, before the broker ends for it.
        """
        ...

    def defer(self, action: Callable[[], None]) -> None:
        """Calls `action` on the owner's loop, after what waits there already."""
        ...


def log_mistake(error: BaseException) -> None:
    """Logs what work should never raise, with where it came from."""
    if not isinstance(error, ENVIRONMENT):
        logger.error("background work failed unexpectedly", exc_info=error)


class InlineBackground:
    """Runs the work before `submit` returns."""

    def submit(
        self,
        work: Callable[[], T],
        on_done: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Runs `work` now; an `AssertionError` is raised to the caller once `on_error` knows."""
        try:
            result = work()
        except Exception as error:  # the caller's work: exactly one callback, whatever it raises
            log_mistake(error)
            on_error(error)
            if isinstance(error, AssertionError):
                raise
            return
        on_done(result)

    def defer(self, action: Callable[[], None]) -> None:
        """Calls `action` now: nothing waits."""
        action()


# A piece of work; the caller gets what it passes to its argument, in that order.
Work = Callable[[Callable[[T], None]], None]


class Workers(Protocol):
    """Does independent pieces of blocking work side by side."""

    def run(self, rows: Sequence[Sequence[Work[T]]], threads: int) -> Iterator[T]:
        """Yields the results of the work as they come; the iterator ends when all of the work is
        done.

        Up to `threads` pieces of each row are under way at once, rows do not wait for each other.
        If a piece raises, its error is raised here, and no further piece starts.
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
