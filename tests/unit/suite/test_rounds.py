"""Seeds that a variable asks for: a long run is cut into pieces, or one seed is run again."""

import pytest
from tests.rounds import seeds, slow_behind

VARIABLE = "ODRADEK_TRIED_SEEDS"


@pytest.mark.parametrize(
    ("asked", "found"),
    [(None, range(40)), ("500", range(500)), ("500:700", range(500, 700)), ("7:8", range(7, 8))],
)
def test_seeds_are_those_that_were_asked_for(
    asked: str | None, found: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece of a long run tries seeds that were tried, or none."""
    if asked is not None:
        monkeypatch.setenv(VARIABLE, asked)
    assert seeds(VARIABLE, 40) == found


def test_seeds_that_were_asked_for_are_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """`-m "not slow"` leaves out what was asked for."""
    usual = slow_behind(2, VARIABLE, 5)
    assert [bool(each.marks) for each in usual] == [False, False, True, True, True]
    monkeypatch.setenv(VARIABLE, "3:5")
    assert [(each.values, bool(each.marks)) for each in slow_behind(2, VARIABLE, 5)] == [
        ((3,), False),
        ((4,), False),
    ]
