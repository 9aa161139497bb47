"""A seed tells the same story of a client in every process, so a failing one can be run again.

The order of a set differs from process to process: of texts with the seed of their hashes, of tasks
with their addresses.
"""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.mutants import ROOT
from tests.simulation.client.consuming import client_groups
from tests.simulation.client.consuming.client_reader import Story as ReaderStory
from tests.simulation.client.consuming.test_client_groups import KINDS
from tests.simulation.client.producing import client_producers
from tests.simulation.client.test_client_cluster import PROTOCOLS, Stage
from tests.simulation.client.test_client_cluster import play as play_stage

ADDRESSES_APART = 100_003


def _group(kind: str) -> Callable[[int], object]:
    return lambda seed: client_groups.play(seed, KINDS[kind]).rng.random()


def _reader(protocol: str) -> Callable[[int], object]:
    def played(seed: int) -> object:
        last = []

        async def scenario(stage: Stage) -> None:
            await ReaderStory(stage, seed, protocol).run()
            last.append(stage.network.rng.random())

        play_stage(scenario)
        return last

    return played


# What each tells at its end: every request draws from the same random numbers.
STORIES: dict[str, tuple[Callable[[int], object], int]] = {
    "producers": (lambda seed: client_producers.play(seed).rng.random(), 12),
    **{f"a reader with {each}": (_reader(each), 20) for each in PROTOCOLS},
    **{f"a group with {each}": (_group(each), 3) for each in KINDS},
}


def told(name: str, seeds: int) -> list[object]:
    """The ends of some stories, in this process."""
    tell, _ = STORIES[name]
    return [tell(seed) for seed in range(seeds)]


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
def test_a_seed_tells_the_same_story_in_every_process(name: str) -> None:
    """Fails when anything follows from the order of a set."""
    _, seeds = STORIES[name]
    one, other = (_told_elsewhere(name, seeds, index) for index in range(2))
    assert one == other
    assert one.count(",") >= seeds - 1, "stories were told"


def _told_elsewhere(name: str, seeds: int, index: int) -> str:
    """Runs `told` in a process of its own; returns its output."""
    program = f"apart = [object() for _ in range({index * ADDRESSES_APART})]\n"
    program += f"from {told.__module__} import told\n"
    program += f"print(told({name!r}, {seeds}))"
    environment = {**os.environ, "PYTHONHASHSEED": str(index)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
