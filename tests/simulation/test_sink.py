"""Spark's sink, exactly once, through kills, repeated tasks, two runs at once and other cuts.

See `sink` for what happens and for what must always hold. `ODRADEK_SINK_SEEDS` runs other seeds
(`500`, or `500:700`), none of them slow. Some mutants show what they notice.
"""

from pathlib import Path

import pytest
from tests.mutants import Mutants, Mutation
from tests.rounds import slow_behind
from tests.simulation.sink import play

BATCH_COMMIT, TRANSACTION = "tables/write/batch_commit.py", "tables/write/transaction.py"
MUTATIONS = {
    "a batch may be cut otherwise": Mutation(
        BATCH_COMMIT,
        "        elif not last.holds(cut, may_lack_records=self._may_lack_records):\n",
        "        elif last.tasks < 0:\n",
    ),
    "tasks that the new run has not are left alone": Mutation(
        BATCH_COMMIT,
        "(cluster, before | await self._left_open(admin), shares)\n",
        "(cluster, (), shares)\n",
    ),
    "a marker is not looked at": Mutation(
        TRANSACTION,
        "or await self._is_written(admin, batch_id):\n",
        "or await self._is_written(admin, batch_id + 1):\n",
    ),
}
MUTANTS = Mutants(MUTATIONS, ["tests/simulation/test_sink.py"], ODRADEK_SINK_SEEDS="60")


@pytest.mark.parametrize("seed", slow_behind(6, "ODRADEK_SINK_SEEDS", 30))
def test_every_row_is_written_once(seed: int) -> None:
    """Fails when a row is there twice or not at all, a query cannot go on though its batch is cut
    as before, or a transaction is left open for readers to wait for."""
    story = play(seed)
    assert len(story.runs) > 1, "it was started more than once"


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS.names)
def test_a_mutant_is_found(tmp_path: Path, name: str) -> None:
    """The simulation would let somebody break just this."""
    MUTANTS.hold(name, tmp_path)
