"""The only module below the rim that reads the time. Everything else is handed a `Clock`.

Two readings, because they answer different questions: `monotonic_ms` measures how long
something took and never goes back; `wall_ms` says when it happened and may jump. Deadlines
are monotonic, record timestamps and retention are wall time.
"""

from collections.abc import Callable
from time import monotonic_ns, time_ns
from typing import Protocol


class Clock(Protocol):
    """A source of time in whole milliseconds."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch, as people and records understand it."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic_ms(self) -> int:
        """The machine's monotonic clock."""
        return monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """The machine's date and time."""
        return time_ns() // 1_000_000


class ManualClock:
    """A clock that only its owner moves: tests and notebooks wait by calling `advance`.

    Both readings move together. Listeners are told after every move, in the order in which
    they subscribed, on the thread that moved the clock; a driver uses that to wake its loop.

    Without `wall_ms` it begins at the machine's date and time, which is read once: clients
    stamp their records by that, and a broker refuses records from its future.
    """

    def __init__(self, wall_ms: int | None = None, monotonic_ms: int = 0) -> None:
        self._wall_ms = SystemClock().wall_ms() if wall_ms is None else wall_ms
        self._monotonic_ms = monotonic_ms
        self._listeners: list[Callable[[], None]] = []

    def monotonic_ms(self) -> int:
        """How far the clock has been moved, from where it began."""
        return self._monotonic_ms

    def wall_ms(self) -> int:
        """The date and time that the clock pretends it is."""
        return self._wall_ms

    def advance(self, duration_ms: int) -> None:
        """Moves both readings on by `duration_ms`.

        Raises:
            ValueError: the duration is negative; time does not go back.
        """
        if duration_ms < 0:
            raise ValueError(f"a clock cannot go back by {-duration_ms} ms")
        self._monotonic_ms += duration_ms
        self._wall_ms += duration_ms
        for listener in tuple(self._listeners):
            listener()

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener` after every move; returns a function that ends the subscription."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe
