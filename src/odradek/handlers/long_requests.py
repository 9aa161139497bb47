"""Long requests give way: others are served while they are decoded, handled and encoded.

A request with 60 000 topics kept the loop busy for half a second. Now only its connection waits, as
for any unanswered request.

- kio's messages are decoded and encoded on a helper thread (`LongWork`): they are plain values that
  no other code has, and interpreted code reads and writes them, so the loop gets the interpreter
  back after 5 ms. The hand-written codecs are compiled: they would keep it.
- A handler reads objects of the loop, so it runs there. It may answer with generators instead of
  lists: their entries are created in slices (`make_slice`), and the loop turns between them. A
  compiled handler may not: mypyc turns a generator expression into a list at once, and its
  generator functions return another type. It passes its steps to `Request.in_slices`.
- Changes for the controller are collected by `in_list`, and with `Request.defer` the controller
  carries out some at a time (`odradek.controller.slices`).

Short requests take the direct way: for them a thread costs more than it saves.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from odradek.background import Background, ignore
from odradek.clock import Clock

if TYPE_CHECKING:
    from odradek.handlers.request import Request

T = TypeVar("T")

LONG_REQUEST_BYTES: Final = 64 * 1024
SLICE_ENTRIES: Final = 500


def entries_of(fields: dict[str, Any]) -> Iterator[int]:
    """Replaces generators by lists, at any depth, one entry at each step. Yields the number of
    entries of a step."""
    for name, value in fields.items():
        if isinstance(value, GeneratorType):
            entries: list[Any] = []
            for entry in value:
                if isinstance(entry, dict):
                    yield from entries_of(entry)
                entries.append(entry)
                yield 1
            fields[name] = entries
        elif isinstance(value, list):
            yield len(value)


def then_amended(
    steps: Iterator[int],
    amend: Callable[[dict[str, Any]], Iterator[int]],
    fields: dict[str, Any],
) -> Iterator[int]:
    """The steps that make an answer, and then those that amend it."""
    yield from steps
    yield from amend(fields)


def make_slice(steps: Iterator[int]) -> bool:
    """Takes the steps of one slice; returns whether more may follow."""
    entries = 0
    for count in steps:
        entries += count
        if entries >= SLICE_ENTRIES:
            return True
    return False


def do_in_slices(
    request: "Request",
    entries: Iterable[T],
    do: Callable[[T], object],
    then: Callable[[], None] = ignore,
) -> None:
    """Calls `do` for each entry, in slices; then calls `then`."""

    def steps() -> Iterator[int]:
        for each in entries:
            do(each)
            yield 1

    request.in_slices(steps(), lambda _: then())


def in_list(request: "Request", entries: Iterable[T], then: Callable[[list[T]], None]) -> None:
    """Calls `then` with a list of the entries, which are made in slices."""
    made: list[T] = []
    do_in_slices(request, entries, made.append, lambda: then(made))


class Outcome:
    """The result of a piece of work, or its error, and the time that it took."""

    def __init__(self, work: Callable[[], Any], clock: Clock) -> None:
        """Does the work."""
        self._result: Any = None
        self._error: BaseException | None = None
        began_ms = clock.monotonic_ms()
        try:
            self._result = work()
        except BaseException as error:  # noqa: BLE001 - `take` raises it
            self._error = error
        self.time_ns = (clock.monotonic_ms() - began_ms) * 1_000_000

    def take(self) -> Any:
        """The result. Raises what the work raised."""
        if self._error is not None:
            raise self._error
        return self._result


def _raise(error: BaseException) -> None:
    """An `Outcome` keeps what its work raises: nothing else can have gone wrong."""
    raise error


class LongWork:
    """Decodes and encodes on a helper thread, one message at a time: more would only compete for
    the interpreter, also with the loop, and take threads from work that blocks. `defer` calls
    something when the loop has turned."""

    def __init__(self, background: Background, clock: Clock) -> None:
        self.defer: Final = background.defer
        self._background: Final = background
        self._clock: Final = clock
        self._queue: Final[deque[tuple[Callable[[], Any], Callable[[Outcome], None]]]] = deque()

    def submit(self, work: Callable[[], Any], on_done: Callable[[Outcome], None]) -> None:
        """Calls `on_done` on the loop, once, with the result or the error."""
        self._queue.append((work, on_done))
        if len(self._queue) == 1:
            self._begin()

    def _begin(self) -> None:
        work, _ = self._queue[0]
        self._background.submit(partial(Outcome, work, self._clock), self._end, _raise)

    def _end(self, outcome: Outcome) -> None:
        _, on_done = self._queue.popleft()
        if self._queue:
            self._begin()
        on_done(outcome)
