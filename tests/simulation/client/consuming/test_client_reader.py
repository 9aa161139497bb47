"""A consumer, whatever its user does with it, beside a naive reader. See `client_reader`.

`ODRADEK_READER_SEEDS` runs other seeds of every protocol (`500`, or `500:700`).
"""

import pytest
from tests.rounds import slow_behind
from tests.simulation.client.consuming.client_reader import Story
from tests.simulation.client.test_client_cluster import PROTOCOLS, Stage, play


@pytest.mark.parametrize("seed", slow_behind(8, "ODRADEK_READER_SEEDS", 50))
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
