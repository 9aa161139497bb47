"""Hundreds of members in a few groups, with everything that networks and crashes do to them.

See `network` for the trouble and for what must always hold, `members` for who has it.
`ODRADEK_SIMULATION_SEEDS` runs more than the usual seeds; in odd ones commits wait from the start.
"""

import os

import pytest
from tests.simulation.members import ClassicSimulatedMember, ConsumerSimulatedMember
from tests.simulation.network import SimulatedMember, Simulation

GROUPS = 6
STEPS = 400
QUICK_SEEDS = 2
SEEDS = [
    pytest.param(seed, marks=() if seed < QUICK_SEEDS else pytest.mark.slow)
    for seed in range(int(os.environ.get("ODRADEK_SIMULATION_SEEDS", "6")))
]

Kind = type[SimulatedMember]


def populate(simulation: Simulation, count: int, *kinds: Kind) -> None:
    """Members of these kinds in turn; every fifth is static."""
    simulation.members = [
        kinds[index // GROUPS % len(kinds)](
            simulation, f"m{index}", f"g{index % GROUPS}", index % 5 == 0
        )
        for index in range(count)
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_classic_groups_survive_trouble_and_settle(seed: int) -> None:
    """Fails when two members own a partition, a commit is lost, or a group never settles."""
    simulation = Simulation(seed)
    populate(simulation, 120, ClassicSimulatedMember)
    simulation.run(STEPS)
    assert simulation.acknowledged, "nothing was ever committed"
    assert {kind for _, kind in simulation.kinds_seen} == {"classic"}


@pytest.mark.parametrize("seed", SEEDS)
def test_consumer_groups_survive_trouble_and_settle(seed: int) -> None:
    """Fails when two members read a partition, a commit is lost, or a group never settles."""
    simulation = Simulation(seed)
    populate(simulation, 120, ConsumerSimulatedMember)
    simulation.run(STEPS)
    assert simulation.acknowledged, "nothing was ever committed"
    assert {kind for _, kind in simulation.kinds_seen} == {"consumer"}


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_of_both_kinds_of_members_survive_trouble_and_settle(seed: int) -> None:
    """Fails when an upgrade or a downgrade in the midst of trouble loses or doubles something."""
    simulation = Simulation(seed)
    populate(simulation, 60, ClassicSimulatedMember, ConsumerSimulatedMember)
    simulation.run(STEPS)
    assert simulation.acknowledged, "nothing was ever committed"
    assert {kind for _, kind in simulation.kinds_seen} == {"classic", "consumer"}
