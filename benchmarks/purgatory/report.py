"""The page: charts of the publication, ours drawn over them, and the tables behind.

The last sweep's measurements go to a topic of a broker, Spark reads them back and computes, and
one HTML file with everything in it is written: `out/purgatory.html`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

from pyspark.sql import Row

import odradek
from benchmarks.purgatory.analysis import Analysis, analyse
from benchmarks.purgatory.charts import Axis, Chart, Line
from benchmarks.purgatory.sweep import RESULTS
from benchmarks.purgatory.topic import TOPIC, publish
from pyspark_odradek.session import session

PAGE = Path(__file__).resolve().parents[2] / "out" / "purgatory.html"

COLOURS = {
    "wheel": "var(--wheel)",
    "wheel, published purge": "var(--purge)",
    "queue, sweep by iterator": "var(--iterator)",
    "queue, sweep by rebuilding": "var(--rebuilding)",
    "kafka": "var(--kafka)",
}
NAMES = {
    "wheel": "Odradek: timing wheels",
    "wheel, published purge": "Odradek, purging by the published rule",
    "queue, sweep by iterator": "old design, swept by iterator (as published)",
    "queue, sweep by rebuilding": "old design, swept by rebuilding",
    "kafka": "Apache Kafka's purgatory (Java)",
}
WORKLOADS = {
    "few": "few time-outs (completion p50 20 ms, p75 60 ms)",
    "many": "many time-outs (completion p50 200 ms, p75 400 ms)",
}
HARNESSES = {
    "thread": "completions by a second thread and its delay queue, as published",
    "wheel": "completions by a second timing wheel",
}
OLD_DESIGNS = ("queue, sweep by iterator", "queue, sweep by rebuilding")
COMPARED_PER_S = 100_000
"""The rate at which costs are compared, where every design was measured."""
# Where the published charts end: the old design's saturation, the new one's highest rate.
PUBLISHED = {
    "few": (("published: old design", 40_000),),
    "many": (("published: old design", 25_000), ("published: new design", 105_000)),
}
GREY = "var(--soft)"

STYLE = """
:root { color-scheme: light dark; --page: #f7f6f3; --card: #fff; --ink: #1c1c1e; --soft: #66666e;
  --rule: #e4e2dc; --wheel: #3557c9; --purge: #8a55b8; --iterator: #c0392b; --rebuilding: #c9741f;
  --kafka: #2f8f6b }
@media (prefers-color-scheme: dark) { :root { --page: #131316; --card: #1d1d21; --ink: #ededf0;
  --soft: #9c9ca6; --rule: #34343b; --wheel: #86a2ff; --purge: #cf9be8; --iterator: #ff7b72;
  --rebuilding: #efa05a; --kafka: #5cc49b } }
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; margin: 0 auto;
  max-width: 72rem; padding: 2.5rem 1rem 4rem; background: var(--page); color: var(--ink) }
h1 { font-size: clamp(1.6rem, 5vw, 2.4rem); line-height: 1.15; margin: 0 0 .6rem }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .4rem } h3 { font-size: 1.05rem; margin: 1.4rem 0 .6rem }
p { margin: .4rem 0; max-width: 48rem } .soft { color: var(--soft) }
.tiles, .charts { display: grid; gap: 1rem; margin: 1rem 0;
  grid-template-columns: repeat(auto-fit, minmax(min(10rem, 100%), 1fr)) }
.charts { grid-template-columns: repeat(auto-fit, minmax(min(29rem, 100%), 1fr)) }
.tile, figure { background: var(--card); border: 1px solid var(--rule); border-radius: 12px;
  padding: .8rem 1rem; margin: 0 }
.tile b { display: block; font-size: 1.45rem } .tile span { color: var(--soft); font-size: .85rem }
svg { display: block; width: 100%; height: auto } svg .title { font-size: 14px; font-weight: 600 }
svg text { fill: var(--ink) } svg .tick, svg .axis { font-size: 11px; fill: var(--soft) }
svg .grid { stroke: var(--rule) } svg .line { fill: none; stroke-width: 2 }
.wide { overflow-x: auto } details { margin: 1rem 0 } summary { cursor: pointer }
table { border-collapse: collapse; margin: .6rem 0; font-size: 13px } td { white-space: nowrap }
td, th { padding: .2rem .6rem; border-bottom: 1px solid var(--rule); text-align: right }
td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) { text-align: left }
.key { display: inline-block; width: 1.6rem; height: .25rem; margin-right: .4rem;
  vertical-align: middle }
ul.keys { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .3rem 1.5rem }
@media (max-width: 46rem) { svg .title { font-size: 19px }
  svg .tick, svg .axis { font-size: 16px } }
"""


def make(bootstrap_servers: str | None) -> None:
    """Publishes, analyses and writes the page.

    Raises:
        SystemExit: there are no measurements yet.
    """
    if not RESULTS.exists():
        raise SystemExit(f"there is no {RESULTS.name} yet; measure first with --sweep")
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    with broker(bootstrap_servers) as address, session("purgatory-report") as spark:
        published = publish(results["runs"], address)
        analysis = analyse(spark, address)
    if bootstrap_servers is None and analysis.records != published:
        raise SystemExit(f"{published} records were published and {analysis.records} read back")
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(results["machine"], analysis), encoding="utf-8")
    print(f"{PAGE.relative_to(PAGE.parents[1])}: {analysis.records} records of {TOPIC}")


@contextmanager
def broker(bootstrap_servers: str | None) -> Iterator[str]:
    """The broker that was asked for, or one in this process."""
    if bootstrap_servers is not None:
        yield bootstrap_servers
        return
    with odradek.Broker() as own:
        own.create_topic(TOPIC, partitions=2)
        yield own.bootstrap_servers


def page(machine: dict[str, Any], analysis: Analysis) -> str:
    """The whole page: what came out, the pictures, and the tables behind them."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>Purgatory benchmark</title><style>{STYLE}</style>",
        f"<h1>{escape(headline(analysis))}</h1>",
        "<p>Odradek is a broker for Kafka's protocol in Python. A broker holds requests that wait: "
        "each under three keys here, until it completes after a random time or 200 ms are over, "
        "whichever is first. What limits a design is not the waiting but the starting, completing "
        "and forgetting of each. Every process may use 200 MB.</p>",
        f"<p class='soft'>Measured on {escape(facts(machine))}. Compare the lines of this page "
        "with each other, and with no other machine.</p>",
        *tiles(analysis),
        f"<ul class='keys'>{keys(analysis)}</ul>",
    ]
    behind = ["<h2>The figures</h2><h3>The highest rate followed</h3>"]
    behind += [LEGEND, *knee_tables(analysis)]
    for completions, title in HARNESSES.items():
        rows = [row for row in analysis.rates if row.completions == completions]
        if rows:
            parts += [f"<h2>{escape(sentence(title))}</h2>", *harness_charts(rows)]
            behind.append(f"<details><summary>All rates: {escape(title)}</summary>")
            behind.append(f"{rate_table(rows)}</details>")
    return "\n".join([*parts, *behind, "</html>"]) + "\n"


def headline(analysis: Analysis) -> str:
    """The result, in a sentence: our design against the one before it."""
    shares = [
        followed(analysis, workload, "wheel") / old
        for workload in WORKLOADS
        if (old := max(followed(analysis, workload, label) for label in OLD_DESIGNS))
    ]
    if not shares or not min(shares):
        return "Requests that wait: timing wheels against a queue"
    low, high = f"{min(shares):.2g}", f"{max(shares):.2g}"
    times = f"{low} times" if low == high else f"{low} to {high} times"
    return f"Timing wheels keep up with {times} the waiting requests of the queue before them"


def followed(analysis: Analysis, workload: str, label: str) -> float:
    """The highest rate that a design followed, with completions as published; 0 if none."""
    for row in analysis.knees:
        if (row.completions, row.workload, row.label) == (next(iter(HARNESSES)), workload, label):
            return float(row.followed_per_s or 0)
    return 0.0


def tiles(analysis: Analysis) -> Iterator[str]:
    """The highest rates, of ours and of what it is compared with."""
    for workload in WORKLOADS:
        rates = {label: followed(analysis, workload, label) for label in COLOURS}
        boxes = [
            f"<div class='tile'><b>{rate:,.0f}</b><span>{escape(NAMES[label])}</span></div>"
            for label, rate in rates.items()
            if rate
        ]
        if boxes:
            yield f"<p class='soft'>Highest rate followed, requests a second, {workload} time-outs:"
            yield f"</p><div class='tiles'>{''.join(boxes)}</div>"


def harness_charts(rows: list[Row]) -> Iterator[str]:
    """The charts of one way to complete, workload by workload."""
    for workload, title in WORKLOADS.items():
        found = [row for row in rows if row.workload == workload]
        if found:
            yield f"<h3>{escape(sentence(title))}</h3><div class='charts'>"
            yield from (f"<figure>{chart.draw()}</figure>" for chart in charts(workload, found))
            yield "</div>"


def sentence(words: str) -> str:
    """The words with a capital to begin with."""
    return words[:1].upper() + words[1:]


LEGEND = (
    "<p>A rate is followed when 97 % of it was reached, the 99th percentile of the lateness of "
    "time-outs is at most 50 ms, and the share that expired is within one point of what the "
    "distribution says. The knee, where a design stops following, lies between the two rates. "
    "Cost and lateness are those at 100,000 requests/s. Published figures, of other machines in "
    "2015, are dashed.</p>"
)


def facts(machine: dict[str, Any]) -> str:
    """The machine of the measurements, in a line."""
    return (
        f"{machine['cores']} cores, {machine['system']}, Python {machine['python']}, "
        f"{machine['date']}, commit {machine['commit']}"
    )


def keys(analysis: Analysis) -> str:
    """The legend: what was measured, and the grey of all else."""
    measured = {row.label for row in analysis.rates}
    return "".join(
        key(label) for label in (*COLOURS, "published") if label in measured | {"published"}
    )


def key(label: str) -> str:
    """An entry of the legend."""
    colour = COLOURS.get(label, GREY)
    name = NAMES.get(label, "published figures and the target")
    return f"<li><span class='key' style='background:{colour}'></span>{escape(name)}</li>"


def charts(workload: str, rows: list[Row]) -> Iterator[Chart]:
    """The three charts of the publication, and lateness."""
    targets = sorted({row.target_per_s for row in rows})
    diagonal = Line("target", GREY, [(targets[0], targets[0]), (targets[-1], targets[-1])], True)
    published = [
        Line(f"{name}, {rate:,}/s", GREY, [(targets[0], rate), (targets[-1], rate)], True)
        for name, rate in PUBLISHED[workload]
    ]
    x = Axis("target rate, requests/s", logarithmic=True)
    enqueued = lines(rows, "enqueued_per_s")
    yield Chart("Enqueue rate", x, Axis("requests/s", True), [diagonal, *published, *enqueued])
    yield Chart("Processor", x, Axis("cores used"), lines(rows, "cores"))
    yield Chart("Garbage collection", x, Axis("ms per second"), lines(rows, "gc_ms_per_s"))
    late = [line_of(label, [(row.target_per_s, max(row.late_ms[2], 0.5)) for row in found])
            for label, found in by_label(rows) if all(row.late_ms for row in found)]  # fmt: skip
    limit = Line("followed up to 50 ms", GREY, [(targets[0], 50), (targets[-1], 50)], True)
    yield Chart("Lateness of time-outs, p99", x, Axis("ms", True), [limit, *late])


def by_label(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The successful rows of each design, by rising rate."""
    for label in COLOURS:
        found = [row for row in rows if row.label == label and row.enqueued_per_s is not None]
        if found:
            yield label, sorted(found, key=lambda row: row.target_per_s)


def lines(rows: list[Row], column: str) -> list[Line]:
    """A line for each design."""
    return [
        line_of(label, [(row.target_per_s, row[column]) for row in found])
        for label, found in by_label(rows)
    ]


def line_of(label: str, points: list[tuple[float, float]]) -> Line:
    """A design's line in its colour."""
    return Line(NAMES[label], COLOURS[label], points)


def knee_tables(analysis: Analysis) -> Iterator[str]:
    """For each way to complete: where designs stop following, and what they cost before that."""
    heads = ["time-outs", "design", "followed/s", "not followed/s", "ours against it"]
    heads += ["CPU s/million", "ours of it", "late p50", "late p99"]
    order = list(COLOURS)
    for completions, title in HARNESSES.items():
        found = [row for row in analysis.knees if row.completions == completions]
        if found:
            found.sort(key=lambda row: (row.workload, order.index(row.label)))
            yield f"<h3>{escape(sentence(title))}</h3>"
            yield table(heads, [knee_cells(row, found, analysis.rates) for row in found])


def knee_cells(row: Row, beside: list[Row], rates: list[Row]) -> list[str]:
    """One line of the table; `beside` are the lines of the same table."""
    ours = next((one for one in beside if is_ours(one) and one.workload == row.workload), None)
    rate, best = row.followed_per_s, ours.followed_per_s if ours else None
    at, ours_at = compared(row, rates), compared(ours, rates) if ours else None
    late = [f"{at.late_ms[i]:.0f} ms" for i in (0, 2)] if at and at.late_ms else ["", ""]
    return [
        row.workload,
        NAMES[row.label],
        f"{rate:,.0f}" if rate else "none",
        f"{row.missed_per_s:,.0f}" if row.missed_per_s else "not reached",
        "" if is_ours(row) or not rate or not best else f"{best / rate:.2f}x",
        f"{at.cpu_s_per_million:.2f}" if at else "",
        "" if is_ours(row) or not at or not ours_at else f"{cpu_share(ours_at, at):.2f}",
        *late,
    ]


def is_ours(row: Row) -> bool:
    """Whether a row is about the design that all others are compared with."""
    return bool(row.label == "wheel")


def cpu_share(one: Row, other: Row) -> float:
    """Processor time of one as a share of the other's."""
    return float(one.cpu_s_per_million / other.cpu_s_per_million)


def compared(place: Row, rates: list[Row]) -> Row | None:
    """A design's figures at the rate of comparison; None where it was not measured."""
    wanted = (place.workload, place.label, place.completions, COMPARED_PER_S)
    for row in rates:
        found = (row.workload, row.label, row.completions, row.target_per_s)
        if found == wanted and row.enqueued_per_s is not None:
            return row
    return None


def rate_table(rows: list[Row]) -> str:
    """Everything that the charts are drawn from."""
    heads = ["time-outs", "design", "target/s", "enqueued/s", "CPU s/million", "GC ms/s", "expired"]
    heads += ["late p50", "p90", "p99", "p99.9", "peak MB", "rounds"]
    return table(heads, [rate_cells(row) for row in rows])


def rate_cells(row: Row) -> list[str]:
    """One line of the table."""
    name = NAMES.get(row.label, row.label)
    first = [row.workload, name, f"{row.target_per_s:,.0f}"]
    if row.enqueued_per_s is None:
        return [*first, row.error or "failed", *[""] * 8, str(row.rounds)]
    late = [f"{late_ms:.0f} ms" for late_ms in row.late_ms or ()] or [""] * 4
    return [
        *first,
        f"{row.enqueued_per_s:,.0f}",
        f"{row.cpu_s_per_million:.2f}",
        f"{row.gc_ms_per_s:.1f}",
        f"{row.expired_share:.1%}",
        *late,
        "" if row.peak_rss_mb is None else f"{row.peak_rss_mb:.0f}",
        str(row.rounds),
    ]


def table(heads: list[str], body: list[list[str]]) -> str:
    """An HTML table."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body
    )
    return f"<div class='wide'><table><tr>{head}</tr>{rows}</table></div>"
