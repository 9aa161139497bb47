"""`odradek metrics`: the metrics of a running broker, as it serves them to Prometheus.

The broker must have been started with `metrics.listener`. A word selects the metrics whose names
contain it; `--watch` prints repeatedly, with the growth of counters per second.
"""

import argparse
import json
import re
import time
from collections.abc import Mapping
from typing import Final

from odradek.cli.everyday.monitoring.scraping import URL_HELP, ScrapeError, default_url, fetch_text
from odradek.cli.everyday.words import table_lines
from odradek.cli.terminal import tell

_SERIES: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)")
_COUNTER: Final = re.compile(r"# TYPE (\S+) counter")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("name", nargs="?", default="", help="part of the names to show")
    parser.add_argument("--url", default=default_url(), metavar="URL", help=URL_HELP)
    parser.add_argument("--watch", action="store_true", help="print again and again")
    parser.add_argument(
        "--every", type=_seconds, default=2.0, metavar="SECONDS", help="between two looks (2)"
    )
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="a table, or JSON"
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Prints the metrics; 1 when no broker answers, or no metric has such a name."""
    before: dict[str, float] = {}
    while True:
        try:
            text = fetch_text(f"{arguments.url}/metrics")
        except ScrapeError as error:
            tell(str(error))
            return 1
        values, counters = read_series(text, arguments.name)
        if not values:
            tell(f"no metric has {arguments.name!r} in its name")
            return 1
        if arguments.output == "json":
            print(json.dumps(values), flush=True)
        else:
            rates = {
                series: (values[series] - before[series]) / arguments.every
                for series in counters & before.keys()
            }
            print("\n".join(lines(values, rates)), flush=True)
        if not arguments.watch:
            return 0
        print(flush=True)
        before = values
        time.sleep(arguments.every)


def read_series(text: str, part: str) -> tuple[dict[str, float], set[str]]:
    """Returns the series of a scrape whose names contain `part`, and the names of the counters."""
    counted = set(_COUNTER.findall(text))
    values: dict[str, float] = {}
    counters: set[str] = set()
    for line in text.splitlines():
        found = None if line.startswith("#") else _SERIES.fullmatch(line)
        if found is not None and part.lower() in found[1]:
            series = found[1] + (found[2] or "")
            values[series] = float(found[3])
            if found[1] in counted:
                counters.add(series)
    return values, counters


def lines(values: Mapping[str, float], rates: Mapping[str, float]) -> list[str]:
    """Returns a line for each series, with a column of rates once they are known."""
    if not rates:
        return table_lines(
            ("METRIC", "#VALUE"), [(series, f"{value:g}") for series, value in values.items()]
        )
    rows = [
        (series, f"{value:.15g}", f"{rates[series]:.1f}" if series in rates else "")
        for series, value in values.items()
    ]
    return table_lines(("METRIC", "#VALUE", "#A SECOND"), rows)
