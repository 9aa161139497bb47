"""The only module below the rim that reads the time. Everything else is handed a `Clock`.

Two readings, because they answer different questions: `monotonic_ms` measures how long
something took and never goes back; `wall_ms` says when it happened and may jump. Deadlines
are monotonic, record timestamps and retention are wall time.

Code that sleeps until a moment asks the clock how long that takes (`wait_s`), and learns when it
is moved meanwhile (`subscribe`). It need not know which clock it has.

Libraries that freeze time in tests replace the functions of the module `time`, here as well, and
the replacements look for their caller on the call stack: compiled code is not on it, so it and the
sources would read different times. So the functions come from a copy of the module that nobody else
has. Others change what the functions do, in every copy; `perf_counter`, which is as monotonic as
`monotonic`, is none of those. A tool that changes the machine's own clocks changes these too.
"""

from collections.abc import Callable, Iterable
from importlib.machinery import BuiltinImporter
from importlib.util import module_from_spec
from operator import index
from types import ModuleType
from typing import Final, Protocol, SupportsIndex

FARTHEST_MS: Final = 2**53
"""How far from zero the readings of a clock lie at most, some 285 000 years: sums of them fit 64
bits. Delays are no longer, and no clock goes more than so many times as fast as the machine's."""
LONG_AGO_MS: Final = -FARTHEST_MS
"""No later than any reading: when what nothing holds back may be done. 0 may be yet to come."""


def _copy_of_time() -> ModuleType:
    spec = BuiltinImporter.find_spec("time")
    assert spec is not None
    assert spec.loader is not None
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


_TIME: Final = _copy_of_time()
_monotonic_ns: Final[Callable[[], int]] = _TIME.perf_counter_ns
_time_ns: Final[Callable[[], int]] = _TIME.time_ns


def monotonic_s() -> float:
    """The machine's monotonic clock, in seconds, as event loops read it."""
    return _monotonic_ns() / 1_000_000_000


class Clock(Protocol):
    """A source of time in whole milliseconds."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch, as people and records understand it."""
        ...

    @property
    def keeps_pace(self) -> bool:
        """Whether the clock runs like the machine's, which clients use: only then can their silence
        be measured on it."""
        ...

    def wait_s(self, duration_ms: int) -> float | None:
        """How many seconds to sleep until the clock has advanced by `duration_ms`; None when it
        stands still until it is moved."""
        ...

    def subscribe(
        self, on_moved: Callable[[], None], on_moving: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Calls `on_moved` after, and `on_moving` before, the clock is moved by something besides
        the passing of time; returns a function that ends the subscription."""
        ...


class SystemClock:
    """The machine's own clocks, which are never moved by hand."""

    def monotonic_ms(self) -> int:
        """The machine's monotonic clock."""
        return _monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """The machine's date and time."""
        return _time_ns() // 1_000_000

    @property
    def keeps_pace(self) -> bool:
        """True."""
        return True

    def wait_s(self, duration_ms: int) -> float | None:
        """So many milliseconds."""
        return duration_ms / 1000

    def subscribe(
        self,
        on_moved: Callable[[], None],  # noqa: ARG002 - never called
        on_moving: Callable[[], None] | None = None,  # noqa: ARG002
    ) -> Callable[[], None]:
        """Does nothing: the clock is never moved by hand."""
        return _nothing


class ManualClock:
    """A clock that its owner moves: tests and notebooks wait by calling `advance`.

    Between the calls it stands still. With a `speed` it also runs by itself, so many times as fast
    as the machine's: `speed=60` makes a minute of every second. Both readings move together.

    A move calls the subscribers in the order of subscription, on the thread that moves the clock; a
    broker uses that to do everything that the move made due.

    Without `wall_ms` it begins at the machine's date and time, which is read once: clients
    stamp their records by that, and a broker refuses records from its future.

    Raises:
        TypeError: a reading is no whole number.
        ValueError: the speed is negative, since time does not go back; or a number is none, or
            more than a clock can count (`FARTHEST_MS`); or the date is before 1970.
    """

    def __init__(
        self,
        wall_ms: SupportsIndex | None = None,
        monotonic_ms: SupportsIndex = 0,
        speed: float = 0,
    ) -> None:
        if speed < 0:
            raise ValueError(f"a clock cannot go back, as at a speed of {speed:g}")
        if not speed <= FARTHEST_MS:
            raise ValueError(f"a clock cannot run at a speed of {speed:g}")
        self._wall_ms = SystemClock().wall_ms() if wall_ms is None else _begin(wall_ms)
        if self._wall_ms < 0:
            raise ValueError(f"no record has a date before 1970, as {self._wall_ms} ms is")
        self._monotonic_ms = _begin(monotonic_ms)
        self._speed = speed
        self._started_ns = _monotonic_ns() if speed > 0 else 0
        self._subscribers: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def monotonic_ms(self) -> int:
        """How far the clock has gone, from where it began."""
        if self._speed > 0:
            return within_bounds(self._monotonic_ms + self._run_ms())
        return self._monotonic_ms

    def wall_ms(self) -> int:
        """The clock's date and time."""
        if self._speed > 0:
            return within_bounds(self._wall_ms + self._run_ms())
        return self._wall_ms

    @property
    def keeps_pace(self) -> bool:
        """False: it stands, jumps or runs fast."""
        return False

    def wait_s(self, duration_ms: int) -> float | None:
        """None while it stands; divided by the `speed` while it runs."""
        return duration_ms / 1000 / self._speed if self._speed > 0 else None

    def advance(self, duration_ms: SupportsIndex) -> None:
        """Moves both readings on by `duration_ms`.

        When this returns, brokers on this clock with their own threads have handled everything that
        clients had sent before, and everything that the move made due.

        Raises:
            TypeError, ValueError: see `check_move`.
            Exception: the first that a subscriber raised after the move; the others were called.
        """
        whole_ms = self.check_move(duration_ms)
        subscribers = tuple(self._subscribers)
        for _, on_moving in subscribers:
            on_moving()
        self._monotonic_ms += whole_ms
        self._wall_ms += whole_ms
        _call_all(on_moved for on_moved, _ in subscribers)

    def check_move(self, duration_ms: SupportsIndex) -> int:
        """Refuses a move that is not possible, before anything has been done for it; returns the
        duration.

        Raises:
            TypeError: the duration is no whole number.
            ValueError: the duration is negative, since time does not go back; or it ends beyond
                what a clock can count.
        """
        whole_ms = index(duration_ms)
        if whole_ms < 0:
            raise ValueError(f"a clock cannot go back by {-whole_ms} ms")
        if max(self.monotonic_ms(), self.wall_ms()) + whole_ms > FARTHEST_MS:
            raise ValueError(f"a clock cannot go on by {whole_ms} ms, beyond {FARTHEST_MS}")
        return whole_ms

    def subscribe(
        self, on_moved: Callable[[], None], on_moving: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Calls `on_moving` before and `on_moved` after every call of `advance`; returns a
        function that ends the subscription."""
        subscriber = (on_moved, _nothing if on_moving is None else on_moving)
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return unsubscribe

    def _run_ms(self) -> int:
        """How far it has run by itself."""
        return int((_monotonic_ns() - self._started_ns) * self._speed) // 1_000_000


def within_bounds(reading_ms: int) -> int:
    """The nearest reading that a clock may have."""
    return max(-FARTHEST_MS, min(reading_ms, FARTHEST_MS))


def _begin(reading_ms: SupportsIndex) -> int:
    """The reading at which a clock begins.

    Raises:
        TypeError, ValueError: see `ManualClock`.
    """
    whole_ms = index(reading_ms)
    if whole_ms != within_bounds(whole_ms):
        raise ValueError(f"a clock cannot read {whole_ms} ms")
    return whole_ms


def _call_all(listeners: Iterable[Callable[[], None]]) -> None:
    """Calls each, though one raises: whoever is not told of a move sleeps through it."""
    failure: BaseException | None = None
    for listener in listeners:
        try:
            listener()
        except BaseException as error:  # noqa: BLE001 - raised when all have been called
            failure = failure or error
    if failure is not None:
        raise failure


def _nothing() -> None:
    """Does nothing."""
