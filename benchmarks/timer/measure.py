"""The measurements of `benchmarks.timer`, in a process of their own; see there what they mean."""

import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.timer import loops
from odradek.clock import ManualClock, SystemClock
from odradek.timer.system_timer import SystemTimer


def main() -> int:
    pending, rounds = map(int, sys.argv[1:])
    print(json.dumps(measure(pending, rounds)))
    return 0


def measure(pending: int, rounds: int) -> dict[str, object]:
    """All figures, in this process."""
    # Before anything else has left free memory behind.
    bytes_per_timer = memory_of(pending)
    figures: dict[str, list[float]] = {}

    def note(name: str, count: int, work: Callable[[], object]) -> None:
        began = time.process_time()
        work()
        figures.setdefault(name, []).append(count / (time.process_time() - began))

    pairs = max(pending, 200_000)
    tasks = loops.make_tasks(pending)
    for _ in range(rounds):
        timer = SystemTimer(SystemClock())
        note("add_per_s", pending, partial(loops.add_all, timer, tasks))
        note("add_cancel_per_s", pairs, partial(loops.cancel_and_add, tasks, timer, pairs))
        note("new_cancel_per_s", pairs, partial(loops.add_and_cancel, timer, pairs))
        timer.close()
        clock = ManualClock()
        manual = SystemTimer(clock)

        def add_and_expire(timer: SystemTimer = manual, clock: ManualClock = clock) -> None:
            loops.add_new(timer, pending)
            clock.advance(loops.NEAREST_MS + loops.SPREAD_MS)
            timer.advance_clock(0)

        note("add_expire_per_s", pending, add_and_expire)
    medians = {name: round(statistics.median(values)) for name, values in figures.items()}
    compiled = not loops.__file__.endswith(".py")
    return {"pending": pending, **medians, "bytes_per_timer": bytes_per_timer, "compiled": compiled}


def memory_of(pending: int) -> float:
    """Bytes that the process grows by for each pending timer."""
    timer = SystemTimer(SystemClock())
    loops.add_new(timer, 1000)
    before = resident_bytes()
    loops.add_new(timer, pending)
    grown = resident_bytes() - before
    timer.close()
    return round(grown / pending, 1)


def resident_bytes() -> int:
    """Memory of this process, in whole pages."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


if __name__ == "__main__":
    sys.exit(main())
