"""How slow this machine is just now, so that deadlines of tests grow with it.

Measured once, at the start of a run: a fixed piece of work on as many processes as tests will run
on. Deadlines only end what has failed, so an error in either direction costs time or nothing.
"""

import os
import subprocess
import sys
import time
from typing import Final

VARIABLE: Final = "ODRADEK_SLOWNESS"
_WORK: Final = "sum(number * number for number in range(6_000_000))"
# What the work takes two processes on two idle cores of the machine that the tests were written on.
_USUAL_S: Final = 0.6
_LEAST, _MOST = 1.0, 10.0


def of_this_run() -> float:
    """The slowness that `./test` measured; 1 where pytest runs without it."""
    return float(os.environ.get(VARIABLE, "1"))


def measure(processes: int = 2) -> float:
    """How many times as long as usual the work takes: 1 at least, and 10 at most."""
    began = time.monotonic()
    running = [subprocess.Popen([sys.executable, "-c", _WORK]) for _ in range(processes)]
    for each in running:
        each.wait()
    return min(_MOST, max(_LEAST, (time.monotonic() - began) / _USUAL_S))
