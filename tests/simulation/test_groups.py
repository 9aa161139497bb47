"""Members of groups, with everything that networks and crashes do to them.

See `network` for the trouble and for what must always hold, `members` for who has it. A few seeds
have a hundred members in six groups; most have a dozen in two, and twice the trouble: they cost a
fortieth, and what goes wrong goes wrong between a few. `ODRADEK_SIMULATION_SEEDS` runs other seeds
of these (`500`, or `500:700`), `ODRADEK_CROWD_SEEDS` of those; in odd ones commits wait from the
start.
"""

import pytest
from tests.rounds import seeds, slow_behind
from tests.simulation.members import ClassicSimulatedMember, ConsumerSimulatedMember
from tests.simulation.network import SimulatedMember, Simulation

GROUPS = 6
STEPS = 400
QUICK_SEEDS = 2
SEEDS = slow_behind(QUICK_SEEDS, "ODRADEK_CROWD_SEEDS", 4)
SMALL_SEEDS = seeds("ODRADEK_SIMULATION_SEEDS", 90)

Kind = type[SimulatedMember]
MIXTURES: tuple[tuple[Kind, ...], ...] = (
    (ClassicSimulatedMember,),
    (ConsumerSimulatedMember,),
    (ClassicSimulatedMember, ConsumerSimulatedMember),
)


def populate(simulation: Simulation, count: int, *kinds: Kind, groups: int = GROUPS) -> None:
    """Members of these kinds in turn; every fifth is static."""
    simulation.members = [
        kinds[index // groups % len(kinds)](
            simulation, f"m{index}", f"g{index % groups}", index % 5 == 0
        )
        for index in range(count)
    ]


def run_small(seed: int) -> Simulation:
    """Two groups with six members each, of one kind or of both."""
    simulation = Simulation(seed, partitions=6, trouble=0.2)
    simulation.turns = 3
    simulation.peaceful_steps_ms = (20, 200, 1_000, 2_000)
    populate(simulation, 12, *MIXTURES[seed // 2 % 3], groups=2)
    simulation.run(60)
    return simulation


@pytest.mark.parametrize("part", range(3))
def test_small_groups_survive_trouble_and_settle(part: int) -> None:
    """Fails when two members own a partition, a commit is lost, or a group never settles."""
    acknowledged = refusals = 0
    kinds = set()
    for seed in SMALL_SEEDS[part::3]:
        try:
            simulation = run_small(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        acknowledged += len(simulation.acknowledged)
        refusals += simulation.refusals
        kinds |= {kind for _, kind in simulation.kinds_seen}
    assert acknowledged > len(SMALL_SEEDS) // 3, "next to nothing was ever committed"
    assert refusals > len(SMALL_SEEDS) // 3, "next to nothing was ever refused"
    assert kinds == {"classic", "consumer"}


@pytest.mark.parametrize("seed", SEEDS)
def test_classic_groups_survive_trouble_and_settle(seed: int) -> None:
    """Fails when two members own a partition, a commit is lost, or a group never settles."""
    simulation = Simulation(seed)
    populate(simulation, 120, ClassicSimulatedMember)
    simulation.run(STEPS)
    assert simulation.acknowledged, "nothing was ever committed"
    assert simulation.refusals, "nothing was ever refused"
    assert {kind for _, kind in simulation.kinds_seen} == {"classic"}


@pytest.mark.parametrize("seed", SEEDS)
def test_consumer_groups_survive_trouble_and_settle(seed: int) -> None:
    """Fails when two members read a partition, a commit is lost, or a group never settles."""
    simulation = Simulation(seed)
    populate(simulation, 120, ConsumerSimulatedMember)
    simulation.run(STEPS)
    assert simulation.acknowledged, "nothing was ever committed"
    assert simulation.refusals, "nothing was ever refused"
    assert {kind for _, kind in simulation.kinds_seen} == {"consumer"}


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_of_both_kinds_of_members_survive_trouble_and_settle(seed: int) -> None:
    """Fails when an upgrade or a downgrade in the midst of trouble loses or doubles something."""
    simulation = Simulation(seed)
    populate(simulation, 60, ClassicSimulatedMember, ConsumerSimulatedMember)
    simulation.run(STEPS)
    assert simulation.acknowledged, "nothing was ever committed"
    assert simulation.refusals, "nothing was ever refused"
    kinds = {kind for _, kind in simulation.kinds_seen}
    # Who comes first decides of what kind a group is; rarely that is the same for all six.
    assert kinds == {"classic", "consumer"} or seed >= QUICK_SEEDS
