"""The benchmark itself: that it draws, counts and judges as it says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from benchmarks.purgatory import __main__ as purgatory_command
from benchmarks.purgatory.charts import Axis, Chart, Line
from benchmarks.purgatory.queue_purgatory import QueuedOperation, QueuePurgatory
from benchmarks.purgatory.runs import Options, followed, quantile
from benchmarks.purgatory.topic import records_of
from benchmarks.purgatory.workload import FEW, MANY, draw_arrivals_ms, draw_latencies_ms
from benchmarks.timer import __main__ as timer

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


@pytest.mark.parametrize("module", [purgatory_command, timer])
def test_measuring_nothing_is_refused(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures that were divided by nothing, or a traceback out of another process."""
    flags = {timer: ["--pending 0", "--pending -3", "--rounds 0", "--pending few"]}
    for line in flags.get(module, BAD_FLAGS):
        monkeypatch.setattr(sys, "argv", ["benchmark", *line.split()])
        with pytest.raises(SystemExit) as ended:
            module.main()
        assert ended.value.code == 2, line
        assert "error: " in capsys.readouterr().err


BAD_FLAGS = [
    "--requests 0",
    "--requests -1",
    "--rate -1",
    "--rate nan",
    "--rate inf",
    "--rate many",
    "--seconds -1",
    "--timeout-ms 0",
    "--timeout-ms 5000",
    "--p50-ms 0",
    "--p50-ms 60 --p75-ms 20",
    "--request-bytes -1",
    "--memory-mb -1",
    "--sweep --rates 1000,0",
    "--sweep --rounds 0",
    "--design heap",
]


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


def test_published_figures_are_named_in_the_chart() -> None:
    """A dashed line that says nothing is a riddle; a measured one is told by its colour."""
    lines = [
        Line("published: old design", "#888", [(1, 40), (100, 40)], dashed=True),
        Line("target", "#888", [(1, 1), (100, 100)], dashed=True),
        Line("measured", "#000", [(1, 1), (100, 60)]),
    ]
    drawn = Chart("title", Axis("x", True), Axis("y", True), lines).draw()
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert {"published: old design", "target"} <= set(texts)
    assert "measured" not in texts


def measured_run(label: str, completions: str, rate: float, **changes: object) -> dict[str, object]:
    """One run of a sweep, as `runs.measure` gives it; followed unless changed."""
    return {
        "label": label,
        "design": label.split(",")[0],
        "workload": "many",
        "completions": completions,
        "target_per_s": rate,
        "requests": int(rate),
        "enqueued_per_s": round(rate),
        "cpu_s_per_million": 1.5,
        "gc_s": 0.01,
        "expired_share": 0.5,
        "peak_rss_mb": 80.0,
        "followed": True,
        "lateness_ms": {"0": 90, "2": 9, "7": 1},
        **changes,
    }


@pytest.mark.slow
def test_the_report_keeps_harnesses_and_designs_apart(tmp_path: Path) -> None:
    """Through topic and Spark: each design's knee and cost in its own line, none averaged away."""
    runs = []
    for rate in (50_000.0, 100_000.0, 200_000.0):
        follows = rate < 150_000
        runs += [
            measured_run("wheel", "thread", rate),
            measured_run("wheel", "wheel", rate, cpu_s_per_million=1.2),
            measured_run("kafka", "thread", rate, cpu_s_per_million=6.0, followed=follows),
        ]
    broken = {"error": "out of memory at 200 MB", "followed": False}
    place = {"label": "queue, sweep by iterator", "workload": "many", "completions": "thread"}
    runs.append({**place, "design": "queue", "target_per_s": 50_000.0, **broken})
    machine = {"cores": 2, "system": "Linux", "python": "3", "commit": "abc", "date": "today"}
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"machine": machine, "runs": runs}), encoding="utf-8")
    program = (
        "import sys; from pathlib import Path; from benchmarks.purgatory import report; "
        "report.RESULTS, report.PAGE = Path(sys.argv[1]), Path(sys.argv[2]); report.make(None)"
    )
    page = tmp_path / "out" / "purgatory.html"
    command = [sys.executable, "-c", program, str(results), str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    cells = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>.*?</tr>", text)]
    tables = [row[1:] for row in cells if len(row) == 9]
    ours, kafka = "Odradek: timing wheels", "Apache Kafka&#x27;s purgatory (Java)"
    assert tables == [
        [ours, "200,000", "not reached", "", "1.50", "", "0 ms", "2 ms"],
        ["old design, swept by iterator (as published)", "none", "50,000", *[""] * 5],
        [kafka, "100,000", "200,000", "2.00x", "6.00", "0.25", "0 ms", "2 ms"],
        [ours, "200,000", "not reached", "", "1.20", "", "0 ms", "2 ms"],
    ]
    assert text.count("Completions by a second thread") == 2
    assert "published: old design, 25,000/s" in text
    assert "published: new design, 105,000/s" in text
    assert "out of memory at 200 MB" in text
    for title in ("Enqueue rate", "Processor", "Garbage collection", "Lateness of time-outs"):
        assert text.count(f'aria-label="{title}') == 2


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
    published = {
        "design",
        "target_per_s",
        "enqueued_per_s",
        "cpu_s_per_million",
        "gc_s",
        "completed",
    }
    published |= {"expired", "late_p50_ms", "late_p99_ms", "peak_rss_mb"}
    assert published <= figures.keys()
    assert (figures["design"], figures["target_per_s"]) == (design, 10_000)


@pytest.mark.slow
def test_the_timers_benchmark_prints_what_it_says() -> None:
    """Scripts read these names; uncompiled, so that nothing has to be built for it."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.timer",
        "--pending",
        "1000",
        "--rounds",
        "1",
        "--json",
    ]
    environment = {**os.environ, "ODRADEK_PURE": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["pending"] == 1000
    names = ("add_per_s", "add_cancel_per_s", "add_expire_per_s", "bytes_per_timer")
    assert all(figures[name] > 0 for name in names)
