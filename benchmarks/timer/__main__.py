"""What does a pending timer cost to start, to cancel, to let expire, and to keep?

    python -m benchmarks.timer [--pending N] [--rounds N] [--json]

On a `SystemTimer` over the system's clock, N timers of 10 to 40 s pending:

    add_per_s         adding existing tasks to an empty timer until N are pending
    add_cancel_per_s  cancelling one of the N and adding it again: a pair counts once
    new_cancel_per_s  making a task, adding and cancelling it beside the N: all three count once
    add_expire_per_s  adding N, and running them all, every demotion included: a pair counts once
                      (the clock is moved by hand, so that nobody waits for 40 s)
    bytes_per_timer   growth of the process with N pending timers that nobody else holds, per timer

Medians of several rounds, in a process of its own; a second is one of the processor's, so that
other work on the machine does not count.
"""

import argparse
import json
import sys

from benchmarks import native
from odradek.cli.arguments import positive_number


def main() -> int:
    parser = argparse.ArgumentParser(description="What a timer costs.")
    parser.add_argument("--pending", type=positive_number, default=100_000)
    parser.add_argument("--rounds", type=positive_number, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    options = [str(arguments.pending), str(arguments.rounds)]
    figures = json.loads(native.run("benchmarks.timer.measure", *options))
    if not arguments.json:
        for name, value in figures.items():
            print(f"{name:<18} {value:>14,.0f}" if name != "compiled" else f"{name:<18} {value}")
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
