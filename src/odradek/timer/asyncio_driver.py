"""AsyncioDriver: lets an event loop own a timer.

The loop sleeps until the next bucket is due and not a moment less: with nothing pending it is never
woken. An earlier task re-arms it, a hand-over from another thread wakes it once per batch, and so
does a clock that is moved by hand. Due tasks run in slices, between which the loop does its other
work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from odradek.timer.system_timer import SystemTimer
from odradek.timer.timing_wheel import NEVER_MS

LONGEST_SLEEP_S: Final = 86_400.0


class AsyncioDriver:
    """Advances `timer` on a running event loop, from `start` to `stop`.

    Both are called on the loop, which is the timer's owner from then on.
    """

    def __init__(self, timer: SystemTimer, slice_tasks: int = 1000) -> None:
        """`slice_tasks`: after so many tasks the loop gets its turn (about a millisecond).

        Raises:
            ValueError: there are fewer than one: no task would ever run, and the loop never rest.
        """
        if slice_tasks < 1:
            raise ValueError(f"a slice has at least one task, not {slice_tasks}")
        self._timer = timer
        self._slice_tasks = slice_tasks
        self._loop: asyncio.AbstractEventLoop | None = None
        self._armed: asyncio.Handle | None = None
        self._armed_for_ms: int | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._woken = False

    def start(self) -> None:
        """Takes the timer over; tasks that are already due run in the loop's next turn."""
        self._loop = asyncio.get_running_loop()
        self._woken = False
        self._timer.on_earlier = self._arm
        self._timer.on_handed_over = self._wake
        self._unsubscribe = self._timer.clock.subscribe(self._wake)
        self._armed = self._loop.call_soon(self._alarm)

    def stop(self) -> None:
        """Releases the timer; its tasks stay pending."""
        if self._loop is None:
            return
        self._disarm()
        self._loop = None
        self._timer.wake_ms = 0
        self._timer.on_earlier = None
        self._timer.on_handed_over = None
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _wake(self) -> None:
        """Makes the loop advance the timer soon, once for all calls; from any thread."""
        loop = self._loop
        if loop is not None and not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(self._turn)

    def _turn(self) -> None:
        self._woken = False  # first: a later call may have something new
        self._advance()

    def _advance(self) -> None:
        if self._loop is None:
            return
        try:
            self._timer.advance(0, self._slice_tasks)
        finally:  # an interrupt ends the turn, not the timer
            self._arm()

    def _arm(self) -> None:
        """Sets the loop's alarm for the next due moment, if it is not set for that already."""
        loop = self._loop
        if loop is None:
            return
        due_ms = self._timer.next_due_ms()
        if due_ms is None:
            self._disarm()
            return
        if self._armed is not None and self._armed_for_ms == due_ms:
            return
        self._disarm()
        self._timer.wake_ms = due_ms
        delay_ms = due_ms - self._timer.now_ms
        if delay_ms <= 0:
            self._armed = loop.call_soon(self._alarm)
        else:
            wait_s = self._timer.clock.wait_s(delay_ms)
            if wait_s is None:
                return  # the clock stands, and notifies when it is moved
            self._armed = loop.call_later(min(wait_s, LONGEST_SLEEP_S), self._alarm)
        self._armed_for_ms = due_ms

    def _alarm(self) -> None:
        self._armed = None
        self._advance()

    def _disarm(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
        self._timer.wake_ms = NEVER_MS
