"""How much of a test that could go on for ever is run: rounds of kills and faults, and seeds."""

import os

import pytest
from _pytest.mark import ParameterSet
from tools.suite.limits import rounds_of_this_run


def rounds(default: int) -> int:
    """The rounds of a test that has `default` of them: `./test --rounds N` runs N times as many."""
    return default * rounds_of_this_run()


def seeds(variable: str, default: int) -> range:
    """The seeds of a random test: the first `default`, N times as many with `./test --rounds N`, or
    those that a variable asks for.

    `500` asks for the first 500, `500:700` for the 200 behind them.
    """
    first, _, end = os.environ.get(variable, str(rounds(default))).rpartition(":")
    return range(int(first or 0), int(end))


def slow_behind(quick: int, variable: str, default: int, step: int = 1) -> list[ParameterSet]:
    """The seeds as parameters of a test, of which each tries `step`: slow behind so many, unless
    they were asked for."""
    is_asked = variable in os.environ
    return [
        pytest.param(seed, marks=() if is_asked or seed < quick else pytest.mark.slow)
        for seed in seeds(variable, default)[::step]
    ]
