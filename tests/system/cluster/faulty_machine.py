"""Runs another Python with `-m` on a machine whose clock jumps and whose disks fail, at signals.

The wall clock jumps an hour on at SIGUSR1, two back at SIGUSR2; the monotonic clock goes on as
ever, which is the difference between the two. Files below a folder whose name ends with `BAD_DISK`
cannot be written any more after `DISK_FAILS`. At `DISK_IS_FULL` there is no room for records
anywhere, at `DISK_HAS_ROOM` there is again.
"""

import errno
import os
import runpy
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

HOUR_S = 3600
BAD_DISK: Final = "-bad"
DISK_FAILS: Final = signal.SIGRTMIN
DISK_IS_FULL: Final = signal.SIGRTMIN + 1
DISK_HAS_ROOM: Final = signal.SIGRTMIN + 2
offset_s = 0
is_full = has_failed = False
real_time_ns = time.time_ns
real_pwritev = os.pwritev


def jump(seconds: int) -> None:
    global offset_s
    offset_s += seconds


def fail() -> None:
    global has_failed
    has_failed = True


def fill(full: bool) -> None:
    global is_full
    is_full = full


def pwritev(descriptor: int, buffers: Sequence[bytes], offset: int, flags: int = 0) -> int:
    if has_failed and f"{BAD_DISK}/" in os.readlink(f"/proc/self/fd/{descriptor}"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    if is_full:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return real_pwritev(descriptor, buffers, offset, flags)


def main(arguments: list[str]) -> None:
    time.time_ns = lambda: real_time_ns() + offset_s * 1_000_000_000
    os.pwritev = pwritev  # before anybody takes it over
    signal.signal(signal.SIGUSR1, lambda *_: jump(HOUR_S))
    signal.signal(signal.SIGUSR2, lambda *_: jump(-2 * HOUR_S))
    signal.signal(DISK_FAILS, lambda *_: fail())
    signal.signal(DISK_IS_FULL, lambda *_: fill(True))
    signal.signal(DISK_HAS_ROOM, lambda *_: fill(False))
    module = arguments.index("-m") + 1
    sys.argv = arguments[module:]
    runpy.run_module(arguments[module], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
