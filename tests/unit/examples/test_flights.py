"""If these fail, `./run` counts wrongly, or its report is not a page that stands by itself."""

import re
from collections import Counter
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from examples.flights.accounts import Account, percentile, settle
from examples.flights.cluster import Failover
from examples.flights.facts import Facts, write_summary
from examples.flights.readback import Probe, Readback
from examples.flights.report import page, svg
from examples.flights.spark_job import Tables

A, B, C = ("flights", 0, 0), ("flights", 0, 1), ("flights", 1, 0)


def seen(*positions: tuple[str, int, int]) -> Readback:
    ids = Counter({("flights", number): 1 for number in range(len(set(positions)))})
    return Readback(Counter(positions), ids)


def test_a_run_without_trouble_balances() -> None:
    account = settle(3, [A, B, C], seen(A, B, C), seen(A, B, C), [A, B, C])
    assert account == Account(3, 3, 3, 3, 0, 0)
    assert account.is_balanced


def test_a_record_missing_anywhere_is_lost_once() -> None:
    assert settle(3, [A, B, C], seen(A, B), seen(A, B, C), [A, C]).lost == 2
    assert settle(3, [A, B, C], seen(A, B), seen(A, B), [A, B]).lost == 1
    assert settle(3, [A, B], seen(A, B), seen(A, B), [A, B]).lost == 1
    assert settle(2, [A, B], seen(A, B), seen(A), [A, B]).lost == 1


def test_a_record_that_is_there_twice_is_duplicated() -> None:
    twice = seen(A, B)
    twice.ids["flights", 0] += 1
    assert settle(2, [A, B], twice, seen(A, B), [A, B]).duplicated == 1
    assert settle(2, [A, B], seen(A, B), seen(A, B), [A, B, B, B]).duplicated == 2
    assert settle(2, [A, B], seen(A, B), seen(A, B, B), [A, B]).duplicated == 1


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile(range(1, 101), 0.5) == 51
    assert percentile(range(1, 101), 0.99) == 100
    assert percentile([], 0.5) == 0


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 25, [0, 10, 20, 30]), (-4, 84, [-50, 0, 50, 100]), (0, 0.7, [0, 0.2, 0.4, 0.6, 0.8])],
)
def test_ticks_are_round_and_cover_the_values(low: float, high: float, ticks: list[float]) -> None:
    assert svg.nice_ticks(low, high) == ticks


def facts() -> Facts:
    row = {"flights": 100, "mean": 12.5, "median": 3.0, "p90": 40.0, "late": 0.2}
    first = date(2013, 1, 1)
    tables = Tables(
        by_hour=[{**row, "local_hour": hour, "mean": hour * 1.5 - 8} for hour in range(5, 24)],
        by_day=[{**row, "day": first + timedelta(days=n), "mean": n % 50} for n in range(365)],
        by_carrier=[{**row, "carrier": "UA"}, {**row, "carrier": "<&>", "mean": -2.0}],
        by_weather=[{**row, "visibility": 10, "wind": wind} for wind in (0, 5, 25)],
        by_delay=[{"delay": delay, "flights": 50} for delay in range(-20, 95, 5)],
        joined=7_300,
        cancelled=12,
    )
    counts = {"watched": 9, "completed_at_once": 4, "completed": 9, "expired": 2}
    return Facts(
        account=Account(1_000, 1_000, 1_000, 1_000, 0, 0),
        departures=7_345,
        airlines={"UA": "United Air Lines Inc."},
        tables=tables,
        probe=Probe([0.2, 0.3, 0.5], [0.3, 0.4, 0.9]),
        samples=[(0.0, 0), (0.5, 400), (1.0, 1_000)],
        produce_records_per_s=1_000,
        consume_records_per_s=2_000,
        spark_records_per_s=500,
        broker_start_ms=321,
        broker_statistics={
            "purgatories": {"Fetch": {**counts, "completed_by_check": {"high watermark": 6}}}
        },
        seconds={"starting Spark": 3.0},
        spark_version="4.3.0",
    )


def test_the_report_stands_by_itself() -> None:
    html = page.render(facts())
    assert not re.search(r"(src|href)=|url\(|@import|<script", html)
    for picture in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(picture)
    assert "&lt;&amp;&gt;" in html
    assert "woken by a committed record: 6" in html
    assert "their client went away: 1" in html
    assert "45 departures have no weather to meet" in html
    assert "31 December" in html


def test_a_short_run_has_a_report_too() -> None:
    short = facts()
    short.tables.by_hour[:] = short.tables.by_hour[:1]
    short.tables.by_day[:] = short.tables.by_day[:1]
    html = page.render(short)
    assert html.endswith("</html>\n")
    assert "31 December" not in html


def test_the_moment_at_which_a_broker_is_killed() -> None:
    """The report of a run on a cluster does not show when what happened."""
    failover = Failover(2, 3, killed_s=0.25, elected_s=2.5, returned_s=4.0)
    html = page.render(replace(facts(), failover=failover))
    for words in ("kill -9 of broker 2", "others lead", "back and in sync"):
        assert html.count(f">{words}<") == 2, "in a wide and in a narrow picture"
    assert "led 3 of the 7 partitions" in html
    assert "; 2.2 s later clients were told of other leaders" in html
    assert "nothing is lost" in html
    summary = replace(facts(), failover=failover).summary([])
    assert summary["failover"] == {
        "broker": 2, "led": 3, "killed_s": 0.25, "elected_s": 2.5, "returned_s": 4.0
    }  # fmt: skip
    lossy = replace(facts(), failover=failover, account=Account(3, 3, 3, 3, 1, 0))
    assert "and 1 is lost" in page.render(lossy)


def test_the_summary_has_the_names_that_others_read(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_summary(facts(), path, ["out/report.html"])
    assert '"broker_start_ms": 321' in path.read_text()
    assert list(facts().summary([])) == [
        "source", "events", "produced", "consumed", "archived", "lost", "duplicated",
        "broker_start_ms", "produce_records_per_s", "spark_records_per_s", "outputs",
    ]  # fmt: skip
