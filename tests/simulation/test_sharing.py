"""Share groups under everything that networks and crashes do to them; see `sharing`.

`ODRADEK_SHARE_SEEDS` runs other seeds (`500`, or `500:700`), none of them slow.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rounds import seeds
from tests.simulation.share_brokers import Broker, new_brokers
from tests.simulation.sharing import Simulation

STEPS = 120
SEEDS = seeds("ODRADEK_SHARE_SEEDS", 30)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[Broker]]:
    made = new_brokers([str(tmp_path / name) for name in "ab"])
    yield made
    for each in made:
        each.cluster.close()


@pytest.mark.parametrize("part", range(2))
def test_share_groups_deliver_to_the_end_whatever_happens(brokers: list[Broker], part: int) -> None:
    """Fails when a record that was acknowledged comes back, two members hold one, a member is told
    what the log did not take, or something waits for ever."""
    happened: Counter[str] = Counter()
    for seed in SEEDS[part::2]:
        simulation = Simulation(seed, brokers)
        try:
            simulation.run(STEPS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        finally:
            simulation.end()
        happened.update(simulation.operations)
    assert all(happened[each] for each in ("refused", "accepted")), happened
    assert any(happened[each] for each in ("alter", "delete", "forget")), happened
