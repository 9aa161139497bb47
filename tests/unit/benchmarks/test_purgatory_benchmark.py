"""The benchmark itself: that it draws, counts and judges as it says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.purgatory.charts import Axis, Chart, Line
from benchmarks.purgatory.queue_purgatory import QueuedOperation, QueuePurgatory
from benchmarks.purgatory.runs import Options, followed, quantile
from benchmarks.purgatory.topic import records_of
from benchmarks.purgatory.workload import FEW, MANY, draw_arrivals_ms, draw_latencies_ms

ROOT = Path(__file__).parents[3]


class HandClock:
    """A clock that the test sets."""

    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


class Queued(QueuedOperation):
    """An operation of the old design, ready when told."""

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.ready = False
        self.events: list[str] = []

    def try_complete(self) -> bool:
        return self.force_complete() if self.ready else False

    def on_complete(self) -> None:
        self.events.append("complete")

    def on_expiration(self) -> None:
        self.events.append("expired")


@pytest.mark.parametrize("by_iterator", [True, False])
def test_the_old_design_keeps_completed_operations_until_a_sweep(by_iterator: bool) -> None:
    """A baseline that forgot them earlier would not be the one that was published."""
    clock = HandClock()
    purgatory = QueuePurgatory(clock, 10, by_iterator)  # type: ignore[arg-type]
    operations = [Queued(200) for _ in range(10)]
    for one in operations:
        purgatory.try_complete_else_watch(one, ["a", "b"])
    for one in operations[::2]:
        one.ready = True
    assert purgatory.check_and_complete("a") == 5
    purgatory.turn()
    assert len(purgatory.heap.operations) == 10
    assert (len(purgatory.watchers["a"]), len(purgatory.watchers["b"])) == (5, 10)
    purgatory.try_complete_else_watch(Queued(50), ["a"])
    purgatory.turn()
    assert len(purgatory.heap.operations) == 6
    assert (len(purgatory.watchers["a"]), len(purgatory.watchers["b"])) == (6, 5)


@pytest.mark.parametrize("by_iterator", [True, False])
def test_the_old_design_expires_in_the_order_of_deadlines(by_iterator: bool) -> None:
    """Its heap is written out, sweeps mend it, and both must leave it a heap."""
    clock = HandClock()
    purgatory = QueuePurgatory(clock, 0, by_iterator)  # type: ignore[arg-type]
    operations = [Queued(1 + i * 37 % 101) for i in range(100)]
    for one in operations:
        purgatory.try_complete_else_watch(one, ["a"])
    for one in operations[::3]:
        one.force_complete()
    expired: list[int] = []
    for clock.now_ms in range(102):
        before = [one for one in operations if one.events == ["complete", "expired"]]
        purgatory.turn()
        after = [one for one in operations if one.events == ["complete", "expired"]]
        expired += [one.delay_ms for one in after if one not in before]
    assert expired == sorted(one.delay_ms for i, one in enumerate(operations) if i % 3)
    assert purgatory.heap.operations == []
    purgatory.sweep()
    assert purgatory.watchers == {}


def test_the_workloads_expire_as_published() -> None:
    """About 8 % and 50 %; a benchmark of other shares is another benchmark."""
    assert FEW.expired_share == pytest.approx(0.0787, abs=0.0005)
    assert MANY.expired_share == pytest.approx(0.5, abs=0.0005)
    for workload in (FEW, MANY):
        latencies = draw_latencies_ms(50_000, workload)
        share = sum(latency >= 200 for latency in latencies) / len(latencies)
        assert share == pytest.approx(workload.expired_share, abs=0.01)


def test_arrivals_come_at_their_rate_and_in_order() -> None:
    """A rate that is not met by the arrivals cannot be followed by anybody."""
    arrivals = draw_arrivals_ms(20_000, 10_000)
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] == pytest.approx(2000, rel=0.05)
    assert draw_arrivals_ms(1000, 0) == []


def test_quantiles_of_a_histogram() -> None:
    """Keys are text, as in JSON, and sort as numbers."""
    assert quantile({"0": 98, "10": 1, "9": 1}, 0.99) == 9
    assert quantile({"0": 98, "10": 1, "9": 1}, 1.0) == 10
    assert quantile({}, 0.5) is None


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, True),
        ({"enqueued_per_s": 96_000}, False),
        ({"late_p99_ms": 51}, False),
        ({"expired_share": 0.095}, False),
        ({"target_per_s": 0}, False),
    ],
)
def test_what_counts_as_followed(change: dict[str, float], verdict: bool) -> None:
    """Each of the three conditions alone must be able to fail a rate."""
    figures = {
        "target_per_s": 100_000,
        "enqueued_per_s": 97_500,
        "late_p99_ms": 50,
        "expired_share": 0.08,
        "expected_expired_share": 0.0787,
    }
    assert followed(figures | change) is verdict


def test_variants_have_names_of_their_own() -> None:
    """Two designs in one line of the report would be averaged."""
    options = [
        Options(),
        Options(purge="published"),
        Options(design="queue"),
        Options(design="queue", sweep="rebuilding"),
        Options(design="kafka"),
    ]
    assert len({one.label for one in options}) == len(options)
    assert Options(p50_ms=200, p75_ms=400).workload.name == "many"
    assert Options(timeout_ms=100).workload.name == "own"


def test_a_chart_draws_its_lines() -> None:
    """Every measured point is a dot, and nothing lies outside of the picture."""
    line = Line("a < b", "#000", [(10_000, 1), (100_000, 5)])
    drawn = Chart("title", Axis("x", logarithmic=True), Axis("y"), [line]).draw()
    assert drawn.count("<circle") == 2
    assert "a &lt; b" in drawn
    assert "nothing was measured" in Chart("t", Axis("x"), Axis("y")).draw()


def test_records_carry_every_step_of_lateness() -> None:
    """Quantiles over rounds are computed from them."""
    place = {"workload": "few", "label": "wheel", "completions": "wheel", "target_per_s": 1.0}
    records = list(records_of([{**place, "gc_s": 0.0, "lateness_ms": {"0": 5, "3": 1}}]))
    assert [value["kind"] for _, value in records] == ["run", "lateness", "lateness"]
    assert records[2][1] == {"kind": "lateness", **place, "late_ms": 3, "count": 1}
    assert "lateness_ms" not in records[0][1]


@pytest.mark.slow
@pytest.mark.parametrize("design", ["wheel", "queue"])
@pytest.mark.parametrize("completions", ["wheel", "thread"])
def test_a_run_adds_up(design: str, completions: str) -> None:
    """Every request of a real run completes or expires, once."""
    command = [sys.executable, "-m", "benchmarks.purgatory", "--design", design, "--json"]
    command += ["--completions", completions, "--requests", "2000", "--rate", "10000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["completed"] + figures["expired"] == figures["requests"] == 2000
