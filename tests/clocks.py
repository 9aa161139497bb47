"""The base that clocks of tests have in common."""

from collections.abc import Callable


class OwnClock:
    """The rest of a `Clock` whose readings a test makes up: it goes like the machine's, and tells
    nobody when the test sets it."""

    keeps_pace = True

    def wait_s(self, duration_ms: int) -> float | None:
        return duration_ms / 1000

    def subscribe(
        self, on_moved: Callable[[], None], on_moving: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        del on_moved, on_moving
        return lambda: None
