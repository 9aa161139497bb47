"""All designs over all rates and both workloads, interleaved, into one results file.

The file keeps the last sweep of each harness, that is of each way to complete requests. Two rounds
of one harness take some twelve minutes on two idle cores.
"""

import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.peers import PeerUnavailable

from benchmarks.purgatory import runs
from benchmarks.purgatory.workload import FEW, MANY

RESULTS = Path(__file__).resolve().parent.parent / "results" / "purgatory.json"
RATES = (
    "10000,25000,40000,60000,80000,100000,150000,200000,300000,400000,500000,600000,700000,"
    "800000,1000000,1200000,1500000"
)
SECONDS = 2.5
GIVEN_UP_AFTER = 2


def variants(base: runs.Options) -> list[runs.Options]:
    """The columns of the table: ours, the old design with both sweeps, Apache Kafka's own."""
    return [
        replace(base, design="wheel"),
        replace(base, design="queue", sweep="iterator"),
        replace(base, design="queue", sweep="rebuilding"),
        replace(base, design="kafka"),
    ]


def run(base: runs.Options, rates: list[float], rounds: int, quick: bool) -> None:
    """Measures everything and keeps it in `RESULTS`, after each run, so that none is lost.

    A design that could not follow two rates in a row is spared the higher ones; where all have
    given up, the workload is done, so rates beyond everybody's reach cost nothing.
    """
    seconds = 1.0 if quick else SECONDS
    measured: list[dict[str, Any]] = []
    for round_number in range(rounds):
        missed: dict[tuple[str, str], int] = {}
        for workload in (FEW, MANY):
            for rate in rates:
                for variant in variants(base):
                    options = replace(variant, p50_ms=workload.p50_ms, p75_ms=workload.p75_ms)
                    key = (workload.name, options.label)
                    if missed.get(key, 0) >= GIVEN_UP_AFTER:
                        continue
                    figures = attempt(options.at_rate(rate, seconds))
                    if figures is None:
                        continue
                    missed[key] = 0 if figures["followed"] else missed.get(key, 0) + 1
                    measured.append({"round": round_number, **figures})
                    save(base.completions, measured)
                    tell(figures)


def attempt(options: runs.Options) -> dict[str, Any] | None:
    """One run; None where the peer cannot be had."""
    try:
        return runs.measure(options)
    except PeerUnavailable as error:
        print(f"left out: {options.label}: {error}", file=sys.stderr)
        return None


def others(completions: str) -> list[dict[str, Any]]:
    """The runs of the last sweep with the other harness."""
    if not RESULTS.exists():
        return []
    runs = json.loads(RESULTS.read_text(encoding="utf-8"))["runs"]
    return [run for run in runs if run["completions"] != completions]


def save(completions: str, measured: list[dict[str, Any]]) -> None:
    """Writes what was measured so far, and on what, beside what the other harness measured."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    results = {"machine": machine(), "runs": [*others(completions), *measured]}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def machine() -> dict[str, object]:
    """The machine that the figures were measured on."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%d"),
    }


def tell(figures: dict[str, Any]) -> None:
    """One line a run."""
    name = f"{figures['workload']:<5} {figures['label']:<26} {figures['target_per_s']:>9,.0f}/s"
    if "error" in figures:
        print(f"{name}  {figures['error']}", flush=True)
        return
    print(
        f"{name}  {'followed' if figures['followed'] else 'missed':<8} "
        f"{figures['enqueued_per_s']:>9,}/s  {figures['cpu_s_per_million']:>7.2f} s/million  "
        f"late p99 {figures['late_p99_ms']} ms  expired {figures['expired_share']:.1%}",
        flush=True,
    )
