"""Turns of the event loop, shared so that the control plane never waits for clients.

If a listener is reserved for the controller and its brokers (`control.plane.listener.name`), the
connections of all other listeners handle frames only for the first `SLICE_MS` of a turn of the
loop. Later ones wait for the next turn, first come, first served. In between the loop polls its
sockets and handles the control plane's frames at once: they wait for one slice and one frame at
most, however many clients there are.

Without such a listener there is nothing to share, and connections do not ask.
"""

from collections.abc import Callable
from typing import Final, final

from odradek.clock import Clock

SLICE_MS: Final = 10


@final
class Turns:
    """Counts the time of a turn from the first connection that asks."""

    def __init__(self, clock: Clock, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._clock = clock
        self._call_soon = call_soon
        self._is_running = False
        self._began_ms = 0
        self._waiting: list[Callable[[], None]] = []

    def admit(self, wake: Callable[[], None]) -> bool:
        """Whether there is time left in this turn; if not, `wake` is called in the next one. It
        must only schedule work."""
        now_ms = self._clock.monotonic_ms()
        if not self._is_running:
            self._is_running = True
            self._began_ms = now_ms
            self._call_soon(self._end)
        elif now_ms - self._began_ms >= SLICE_MS:
            self._waiting.append(wake)
            return False
        return True

    def _end(self) -> None:
        self._is_running = False
        waiting = self._waiting
        self._waiting = []
        for wake in waiting:
            wake()
