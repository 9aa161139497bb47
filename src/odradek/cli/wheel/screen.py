"""The live wheel in a terminal: takes keys, draws frames.

A frame is drawn for the terminal's current size, and again when that changes. The screen sleeps
until a key, a new size, or, while the wheel runs, the next frame.
"""

from __future__ import annotations

import os
import select
import sys
from typing import Final

from odradek.cli.terminal import (
    ESCAPE_SEQUENCE,
    QUIT,
    keys_without_enter,
    show_frame,
    size_changes,
    terminal_size,
)
from odradek.cli.wheel.drawing import draw_frame
from odradek.cli.wheel.show import WheelShow

FRAME_S: Final = 0.1
STEP_MS: Final = 10

HELP: Final = (
    "space run/pause",
    "n +1 ms",
    "t +10 ms",
    "b next bucket",
    "a add",
    "l add far",
    "c cancel",
    "r restart",
    "q quit",
)
NEAR_MS: Final = (2, 8, 13, 19, 37, 90, 150, 350)
FAR_MS: Final = (450, 473, 1200, 7900, 9000, 40_000)


class Screen:
    """The live wheel. While it runs, a second of it takes ten of ours."""

    def __init__(self, tick_ms: int, wheel_size: int) -> None:
        self._tick_ms = tick_ms
        self._wheel_size = wheel_size
        self._show = WheelShow(tick_ms, wheel_size)
        self._added = 0
        self._running = False

    def play(self) -> None:
        """Draws, and handles keys until `q` or the end of input."""
        with keys_without_enter(), size_changes() as resized:
            self._draw()
            while self.obey(self._wait_for_keys(resized)):
                self._draw()

    def _wait_for_keys(self, resized: int) -> str:
        """Waits for a key; returns "" when there is another reason to draw."""
        keys = sys.stdin.fileno()
        ready, _, _ = select.select([keys, resized], [], [], FRAME_S if self._running else None)
        if not ready and self._running:
            self._show.step(STEP_MS)
        if resized in ready:
            os.read(resized, 64)
        if keys not in ready:
            return ""
        pressed = os.read(keys, 64).decode(errors="replace")
        return ESCAPE_SEQUENCE.sub("", pressed) if pressed else QUIT[0]

    def obey(self, keys: str) -> bool:
        """Runs the command of each key, in turn; False if one of them ends the screen."""
        for key in keys:
            if key in QUIT:
                return False
            self.press(key)
        return True

    def press(self, key: str) -> None:
        """Carries out a key's command; other keys do nothing."""
        if key == " ":
            self._running = not self._running
        elif key == "n":
            self._show.step(1)
        elif key == "t":
            self._show.step(STEP_MS)
        elif key == "b":
            self._show.next_bucket()
        elif key == "a":
            self._add(NEAR_MS)
        elif key == "l":
            self._add(FAR_MS)
        elif key == "c" and self._show.names:
            self._show.cancel(self._show.names[0])
        elif key == "r":
            self._show = WheelShow(self._tick_ms, self._wheel_size)

    def _add(self, delays_ms: tuple[int, ...]) -> None:
        delay_ms = delays_ms[self._added % len(delays_ms)]
        self._added += 1
        self._show.add(f"t{self._added}", delay_ms)

    def frame(self, columns: int, rows: int, colour: bool = True) -> list[str]:
        """Returns the lines of the current frame."""
        state = "running, ten times slower than life" if self._running else "paused"
        return draw_frame(self._show.snapshot(), (*HELP, f"({state})"), columns, rows, colour)

    def _draw(self) -> None:
        show_frame(self.frame(*terminal_size()))
