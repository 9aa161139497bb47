"""Transactions under everything that networks and crashes do to them; see `transactions`.

`ODRADEK_SIMULATION_SEEDS` runs more than the usual seeds.
"""

import os

import pytest
from tests.simulation.transactions import Simulation

STEPS = 120
PER_TEST = 50
QUICK = 2
TESTS = max(int(os.environ.get("ODRADEK_SIMULATION_SEEDS", "6")), 1)


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, marks=() if block < QUICK else pytest.mark.slow)
        for block in range(TESTS)
    ],
)
def test_transactions_are_atomic_whatever_happens(block: int) -> None:
    """Fails when a part of a transaction is read, a zombie commits, or readers are held up."""
    outcomes = set()
    for seed in range(block * PER_TEST, (block + 1) * PER_TEST):
        simulation = Simulation(seed)
        simulation.run(STEPS)
        try:
            simulation.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        outcomes |= {each.outcome for each in simulation.transactions}
    assert len(outcomes) == 3, "commits, aborts and lost answers should all have been there"
