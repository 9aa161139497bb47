"""The usage of a process, for benchmarks that measure a broker from outside."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """The CPU that a process has used so far, its own code and the kernel for it."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tree_cpu_seconds(pid: int) -> float:
    """The same of a process and all below it, those that have ended and were awaited too."""
    ticks = _ticks(pid)
    for each in below(pid):
        with contextlib.suppress(OSError):  # it has ended
            ticks += _ticks(each)
    return ticks / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return sum(map(int, stat.rpartition(")")[2].split()[11:15]))


def below(pid: int) -> Iterator[int]:
    """All processes that a process has started, and those of theirs."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids = [int(word) for word in children.read_text(encoding="utf-8").split()]
        except OSError:  # that thread has ended
            continue
        for each in pids:
            yield each
            yield from below(each)


def resident_mb(pid: int) -> float:
    """The resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024
