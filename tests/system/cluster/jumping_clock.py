"""Runs another Python with `-m` on a wall clock that jumps: an hour on at SIGUSR1, two back at
SIGUSR2. The monotonic clock goes on as ever, which is the difference between the two."""

import runpy
import signal
import sys
import time

HOUR_S = 3600
offset_s = 0
real_time_ns = time.time_ns


def jump(seconds: int) -> None:
    global offset_s
    offset_s += seconds


def main(arguments: list[str]) -> None:
    time.time_ns = lambda: real_time_ns() + offset_s * 1_000_000_000
    signal.signal(signal.SIGUSR1, lambda *_: jump(HOUR_S))
    signal.signal(signal.SIGUSR2, lambda *_: jump(-2 * HOUR_S))
    module = arguments.index("-m") + 1
    sys.argv = arguments[module:]
    runpy.run_module(arguments[module], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
