"""Whatever dies, comes late or is lost: what was acknowledged stays, and logs agree below it."""

import os
from pathlib import Path

import pytest
from tests.simulation.brokers import World

SEEDS = int(os.environ.get("ODRADEK_REPLICATION_SEEDS", "40"))
STEPS = 40


def run(seed: int, directory: Path) -> World:
    """One life of a cluster: trouble, and then calm."""
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
    for seed in range(part, SEEDS, 4):
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            acknowledged += len(run(seed, directory).acknowledged)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert acknowledged > SEEDS, "next to nothing was acknowledged: nothing was tried"
