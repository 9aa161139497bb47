"""The report of a pipeline's run: a line for a terminal, or a page to share.

The page is one file without scripts, fonts or pictures from elsewhere: settings, facts,
findings, and every batch with a bar for its rate.
"""

import re
from collections.abc import Iterable
from dataclasses import fields
from html import escape
from typing import Final

from pyspark_odradek.pipelines.running.jobs import Batch, Outcome
from pyspark_odradek.pipelines.running.settings import PipelineSettings

_BAR_PX: Final = 240
_USER_IN_URL: Final = re.compile(r"(://)[^/?#]*@")
_STYLE: Final = """\
body { font: 15px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; margin: 0 0 2em }
td, th { padding: .2em 1em .2em 0; text-align: left; vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.bar { background: #5b7fa6; height: .8em; display: inline-block }
.good { color: #2a7a3b } .bad { color: #b3261e }
"""


def summary(outcome: Outcome, seconds: float) -> str:
    """`4 batches, 48,000 records in 12.1 s; files: 4`."""
    parts = []
    if outcome.batches:
        parts.append(f"{_count(len(outcome.batches), 'batch', 'batches')}, ")
        parts.append(f"{outcome.records:,} records in ")
    parts.append(f"{seconds:.1f} s")
    parts.extend(f"; {name}: {_shown(value)}" for name, value in outcome.facts.items())
    if outcome.findings:
        parts.append(f"; {_count(len(outcome.findings), 'finding', 'findings')}")
    return "".join(parts)


def report_page(name: str, settings: PipelineSettings, outcome: Outcome, seconds: float) -> str:
    """The page, as HTML."""
    verdict = (
        f'<p class="bad">{_count(len(outcome.findings), "finding", "findings")}</p>'
        if outcome.findings
        else '<p class="good">Done, without findings.</p>'
    )
    given = [
        (field.name.replace("_", " "), getattr(settings, field.name))
        for field in fields(settings)
        if getattr(settings, field.name) != field.default
    ]
    body = [
        f"<h1>{escape(name)}: {escape(settings.topic)}</h1>",
        f"<p>{escape(summary(outcome, seconds))}</p>",
        verdict,
        *(f"<p>{escape(_shown(finding))}</p>" for finding in outcome.findings),
        "<h2>Settings</h2>",
        _table(given),
    ]
    if outcome.facts:
        body += ["<h2>Facts</h2>", _table(outcome.facts.items())]
    if outcome.batches:
        body += ["<h2>Batches</h2>", _batch_table(outcome.batches)]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(name)}: {escape(settings.topic)}</title><style>\n{_STYLE}</style></head>"
        f"<body>\n{chr(10).join(body)}\n</body></html>\n"
    )


def _table(rows: Iterable[tuple[str, object]]) -> str:
    cells = (f"<tr><th>{escape(k)}</th><td>{escape(_shown(v))}</td></tr>" for k, v in rows)
    return f"<table>{''.join(cells)}</table>"


def _batch_table(batches: Iterable[Batch]) -> str:
    rates = {batch: batch.records / batch.seconds if batch.seconds else 0.0 for batch in batches}
    highest = max(rates.values()) or 1.0
    rows = [
        f'<tr><td class="n">{batch.number}</td><td class="n">{batch.records:,}</td>'
        f'<td class="n">{batch.seconds:.1f}</td><td class="n">{rate:,.0f}</td>'
        f'<td><span class="bar" style="width:{rate / highest * _BAR_PX:.0f}px"></span></td>'
        f'<td class="n">{"" if batch.behind is None else f"{batch.behind:,}"}</td></tr>'
        for batch, rate in rates.items()
    ]
    titles = ("batch", "records", "seconds", "records/s", "", "behind")
    head = "".join(f'<th class="n">{title}</th>' for title in titles)
    return f"<table><tr>{head}</tr>\n{chr(10).join(rows)}</table>"


def _shown(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    # People send the page around; it must not show credentials of a registry.
    return _USER_IN_URL.sub(r"\1", str(value))


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
