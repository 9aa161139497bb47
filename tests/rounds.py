"""How much of a test that could go on for ever is run: rounds of kills and faults, and seeds."""

import os

import pytest
from _pytest.mark import ParameterSet


def rounds(default: int) -> int:
    """The rounds of a test that has `default` of them: `./test --rounds N` runs N times as many."""
    return default * int(os.environ.get("ODRADEK_ROUNDS", "1"))


def seeds(variable: str, default: int) -> range:
    """The seeds of a random test: the first `default`, or those that a variable asks for.

    `500` asks for the first 500, `500:700` for the 200 behind them.
    """
    first, _, end = os.environ.get(variable, str(default)).rpartition(":")
    return range(int(first or 0), int(end))


def slow_behind(quick: int, variable: str, default: int) -> list[ParameterSet]:
    """The seeds as parameters of a test: slow behind so many, unless they were asked for."""
    is_asked = variable in os.environ
    return [
        pytest.param(seed, marks=() if is_asked or seed < quick else pytest.mark.slow)
        for seed in seeds(variable, default)
    ]
