"""Whatever dies, comes late or is lost: what was acknowledged stays, and logs agree below it."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.rounds import seeds
from tests.simulation.brokers import World

SEEDS = seeds("ODRADEK_REPLICATION_SEEDS", 40)
STEPS = 40
REFUSALS = {"full", "NOT_ENOUGH_REPLICAS", "KAFKA_STORAGE_ERROR", "NOT_LEADER_OR_FOLLOWER"}


def run(seed: int, directory: Path) -> World:
    """Runs a cluster: through trouble, and then calm."""
    world = World(seed, str(directory))
    try:
        for _ in range(STEPS):
            world.step()
        world.calm_down()
    finally:
        world.close()
    return world


@pytest.mark.parametrize("part", range(4))
def test_nothing_acknowledged_is_lost(tmp_path: Path, part: int) -> None:
    """Acknowledged records stay where they are, one leader an epoch, no high watermark falls."""
    acknowledged = 0
    refusals: Counter[str] = Counter()
    for seed in SEEDS[part::4]:
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            world = run(seed, directory)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        acknowledged += len(world.acknowledged)
        refusals += world.refusals
        shutil.rmtree(directory)
    assert acknowledged > len(SEEDS), "next to nothing was acknowledged: nothing was tried"
    assert refusals.keys() >= REFUSALS, f"not all has been refused that can be: {refusals}"
