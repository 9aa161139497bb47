"""A consumer, whatever its user does with it, beside a naive reader. See `client_reader`.

`ODRADEK_READER_SEEDS` runs more than the usual seeds of every protocol.
"""

import os

import pytest
from tests.simulation.client_reader import Story
from tests.simulation.test_client_cluster import PROTOCOLS, Stage, play

QUICK_SEEDS = 8
SEEDS = [
    pytest.param(seed, marks=() if seed < QUICK_SEEDS else pytest.mark.slow)
    for seed in range(int(os.environ.get("ODRADEK_READER_SEEDS", "50")))
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_consumer_reads_what_a_naive_reader_reads(protocol: str, seed: int) -> None:
    """Fails when a record is passed over, comes twice, or of a partition that is another's or
    paused; when a commit says what nobody stood at, or takes back another's; when a lag is not the
    way to go; when an error of a listener is not told once; or when something owed is not
    committed at the end."""

    async def scenario(stage: Stage) -> None:
        story = Story(stage, seed, protocol)
        try:
            await story.run()
        except BaseException as error:
            error.add_note(f"after {story.done}")
            raise

    play(scenario)
