"""Reckons with the figures of the rounds of benchmarks."""

import json
import statistics
from collections.abc import Mapping, Sequence


def print_medians(rounds: Sequence[Mapping[str, float]], *, as_json: bool) -> None:
    """Prints the median of every figure, a line each; with `as_json` one object behind them."""
    medians = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    for name, value in medians.items():
        print(f"{name:28}{value:10.1f}")
    if as_json:
        print(json.dumps({name: round(value, 2) for name, value in medians.items()}))
