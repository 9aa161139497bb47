"""The screen while the job runs: one line a step, a bar for the long ones.

On a terminal a bar is redrawn in place; elsewhere only its last state is printed, so that
logs stay readable.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_BAR_CELLS: Final = 28
_REDRAW_S: Final = 0.1
_LABEL_WIDTH: Final = 10


class Bar:
    """Progress towards a known total, with the rate so far."""

    def __init__(self, label: str, total: int) -> None:
        self._label = label
        self._total = total
        self._started = time.monotonic()
        self._drawn = 0.0

    def show(self, done: int) -> None:
        """Redraws the bar, ten times a second at most."""
        now = time.monotonic()
        if sys.stdout.isatty() and now - self._drawn >= _REDRAW_S:
            self._drawn = now
            print(f"\r{self._line(done)}", end="\033[K", flush=True)

    def finish(self, done: int, note: str = "") -> None:
        """Draws the final state and goes to the next line."""
        start = "\r" if sys.stdout.isatty() else ""
        end = "\033[K\n" if sys.stdout.isatty() else "\n"
        print(f"{start}{self._line(done)}{note}", end=end, flush=True)

    def _line(self, done: int) -> str:
        share = done / self._total if self._total else 1.0
        filled = int(share * _BAR_CELLS)
        elapsed = max(time.monotonic() - self._started, 1e-9)
        cells = "█" * filled + "░" * (_BAR_CELLS - filled)
        rate = thousands(round(done / elapsed))
        return f"{self._label:<{_LABEL_WIDTH}} {cells} {thousands(done)} records, {rate}/s"


def say(label: str, text: str) -> None:
    """Prints the line of a step."""
    print(f"{label:<{_LABEL_WIDTH}} {text}", flush=True)


def thousands(number: int) -> str:
    """A number that people can read: 336 776."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Notes how long a step took."""
    started = time.monotonic()
    yield
    seconds[name] = time.monotonic() - started
