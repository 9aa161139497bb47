"""Transactions under everything that networks and crashes do to them; see `transactions`.

`ODRADEK_TRANSACTION_SEEDS` runs other seeds (`500`, or `500:700`), none of them slow.
"""

import pytest
from tests.rounds import seeds, slow_behind
from tests.simulation.transactions import Simulation

STEPS = 120
PER_TEST = 50
QUICK = 100
VARIABLE = "ODRADEK_TRANSACTION_SEEDS"
DEFAULT = 500
SEEDS = seeds(VARIABLE, DEFAULT)


@pytest.mark.parametrize("first", slow_behind(QUICK, VARIABLE, DEFAULT, PER_TEST))
def test_transactions_are_atomic_whatever_happens(first: int) -> None:
    """Fails when a part of a transaction is read, a zombie commits, an offset does not move with
    the records, or readers are held up."""
    outcomes = set()
    for seed in range(first, min(first + PER_TEST, SEEDS.stop)):
        simulation = Simulation(seed)
        simulation.run(STEPS)
        try:
            simulation.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        outcomes |= {each.outcome for each in simulation.transactions}
    assert len(outcomes) == 3, "commits, aborts and lost answers should all have been there"
