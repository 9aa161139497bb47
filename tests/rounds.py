"""Rounds of kills, faults and seeds: `./test --rounds N` runs N times as many."""

import os


def rounds(default: int) -> int:
    """The rounds of a test that has `default` of them in an ordinary run."""
    return default * int(os.environ.get("ODRADEK_ROUNDS", "1"))
