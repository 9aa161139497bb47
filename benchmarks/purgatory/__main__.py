"""How many requests a second can wait in a purgatory, and what does each cost?

    python -m benchmarks.purgatory --design wheel|queue|kafka [--rate R] [--requests N]
    python -m benchmarks.purgatory --sweep [--rates R,R,...] [--rounds N]
    python -m benchmarks.purgatory --report

A single run prints its figures, and as one JSON object on the last line with `--json`. A sweep
runs all designs and rates in turn, so that a noisy machine is noisy for all, and keeps every run in
`benchmarks/results/purgatory.json`. The report is made from that file; see `report.py`.
"""

import argparse
import json
import math
import sys

from tools.peers import PeerUnavailable

from benchmarks.purgatory import runs, sweep
from odradek.cli.arguments import natural_number, positive_number

LONGEST_TIMEOUT_MS = 4000
"""The delay queue of the completing thread reaches no further."""


def main() -> int:
    arguments = parse()
    if arguments.sweep:
        sweep.run(options_of(arguments), arguments.rates, arguments.rounds, arguments.quick)
    if arguments.report:
        # Imported here: only the report needs Spark and a client.
        from benchmarks.purgatory import report

        report.make(arguments.bootstrap_server)
    if arguments.sweep or arguments.report:
        return 0
    try:
        figures = runs.measure(options_of(arguments))
    except PeerUnavailable as error:
        sys.exit(f"cannot measure: {error}")
    if not arguments.histogram:
        figures.pop("lateness_ms", None)
    if not arguments.json:
        for name, value in figures.items():
            print(f"{name:<24} {value}")
    print(json.dumps(figures))
    return 1 if "error" in figures else 0


def parse() -> argparse.Namespace:
    defaults = runs.Options()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.purgatory",
        description="How many requests a second can wait in a purgatory, and what does each cost?",
    )
    add = parser.add_argument
    add("--design", choices=runs.DESIGNS, default=defaults.design)
    add("--requests", type=positive_number, default=defaults.requests)
    add("--seconds", type=quantity, default=0.0, help="end after so long, instead of --requests")
    add(
        "--rate",
        type=quantity,
        default=defaults.rate,
        help="requests a second; 0: as fast as it goes",
    )
    add("--timeout-ms", type=positive_number, default=defaults.timeout_ms)
    add("--p50-ms", type=quantity, default=defaults.p50_ms, help="median time to completion")
    add("--p75-ms", type=quantity, default=defaults.p75_ms, help="upper quartile of it")
    add(
        "--completions",
        choices=("wheel", "thread"),
        default=defaults.completions,
        help="what completes requests: a second wheel, or a second thread as published",
    )
    add("--purge", choices=("amortised", "published"), default=defaults.purge)
    add("--sweep-by", choices=("iterator", "rebuilding"), default=defaults.sweep)
    add("--purge-interval", type=natural_number, default=defaults.purge_interval)
    add("--request-bytes", type=natural_number, default=defaults.request_bytes)
    add(
        "--memory-mb",
        type=natural_number,
        default=defaults.memory_mb,
        help="limit of the process; 0: none",
    )
    add("--json", action="store_true", help="only the JSON object")
    add("--histogram", action="store_true", help="with the lateness of all time-outs, by ms")
    add("--sweep", action="store_true", help="measure all designs over all rates")
    add("--rates", type=rates, default=sweep.RATES, help="of a sweep")
    add("--rounds", type=positive_number, default=3, help="of a sweep")
    add("--quick", action="store_true", help="a sweep of one second a run, to try it out")
    add("--report", action="store_true", help="write the page from the last sweep")
    add("--bootstrap-server", help="publish the measurements to this broker, not one of our own")
    arguments = parser.parse_args()
    if not 0 < arguments.p50_ms < arguments.p75_ms:
        parser.error("--p50-ms must be more than 0, and --p75-ms more than that")
    if arguments.timeout_ms > LONGEST_TIMEOUT_MS:
        parser.error(f"--timeout-ms is at most {LONGEST_TIMEOUT_MS}")
    return arguments


def options_of(arguments: argparse.Namespace) -> runs.Options:
    """The options of a run."""
    seconds, requests = arguments.seconds, arguments.requests
    if seconds > 0:
        # With no rate nobody knows how many come; time ends it.
        requests = max(1, round(seconds * arguments.rate)) if arguments.rate > 0 else 2**40
    return runs.Options(
        design=arguments.design,
        requests=requests,
        rate=arguments.rate,
        seconds=seconds if arguments.rate == 0 else 0,
        timeout_ms=arguments.timeout_ms,
        p50_ms=arguments.p50_ms,
        p75_ms=arguments.p75_ms,
        completions=arguments.completions,
        purge=arguments.purge,
        sweep=arguments.sweep_by,
        purge_interval=arguments.purge_interval,
        request_bytes=arguments.request_bytes,
        memory_mb=arguments.memory_mb,
    )


def quantity(text: str) -> float:
    """Reads a number of at least 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return number


def rates(text: str) -> list[float]:
    """Reads a list like 10000,20000."""
    return [float(positive_number(word)) for word in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
