"""Seeds that a variable asks for: a long run is cut into pieces, or one seed is run again."""

import pytest
from tests.rounds import rounds, seeds, slow_behind
from tools.suite.limits import grown

VARIABLE = "ODRADEK_TRIED_SEEDS"


@pytest.fixture(autouse=True)
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this run was asked for."""
    monkeypatch.delenv("ODRADEK_ROUNDS", raising=False)


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


def test_more_rounds_are_more_of_all_that_is_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """A night of `--rounds 10` tries the same seeds ten times, or ends at the limit of one."""
    limit = grown(120)
    monkeypatch.setenv("ODRADEK_ROUNDS", "3")
    assert rounds(5) == 15
    assert seeds(VARIABLE, 40) == range(120)
    assert len(slow_behind(2, VARIABLE, 5)) == 15
    assert grown(120) == 3 * limit


def test_a_test_may_try_many_seeds() -> None:
    """It leaves some of them out, or a quick one is slow."""
    steps = slow_behind(20, VARIABLE, 40, step=10)
    assert [(each.values, bool(each.marks)) for each in steps] == [
        ((0,), False),
        ((10,), False),
        ((20,), True),
        ((30,), True),
    ]


def test_seeds_that_were_asked_for_are_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """`-m "not slow"` leaves out what was asked for."""
    usual = slow_behind(2, VARIABLE, 5)
    assert [bool(each.marks) for each in usual] == [False, False, True, True, True]
    monkeypatch.setenv(VARIABLE, "3:5")
    assert [(each.values, bool(each.marks)) for each in slow_behind(2, VARIABLE, 5)] == [
        ((3,), False),
        ((4,), False),
    ]
