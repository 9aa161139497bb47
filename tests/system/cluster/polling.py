"""Waiting for processes, which come to things in their own time."""

import threading
import time
from collections.abc import Callable

from tests.deadlines import deadline_s

PATIENCE_S = deadline_s(60)
_LOOK_S = 0.05


def until(holds: Callable[[], object], what: str, shows: Callable[[], object] = lambda: "") -> None:
    """Looks again and again until something holds; else `shows` says how things are."""
    deadline = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, f"it did not come to this: {what} {shows()}"
        pause.wait(_LOOK_S)
