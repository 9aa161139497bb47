"""Breaks replication on purpose; the simulation of a cluster has to find it."""

from pathlib import Path

import pytest
from tests.mutants import Mutants, Mutation

MUTATIONS = {
    "a new follower cuts its log at the high watermark": Mutation(
        "replication/role_changes.py",
        "            partition.make_follower(image, log)\n",
        "            log.truncate_to(log.high_watermark)\n"
        "            partition.make_follower(image, log)\n",
    ),
    "a history that parted is not cut": Mutation(
        "replication/follower/local_replica.py",
        "return log.truncate_to(min(target, log.log_end_offset))",
        "return False",
    ),
    "an epoch without records is kept": Mutation(
        "storage/log/log.py",
        "            self._end_epochs()\n            return False\n",
        "            return False\n",
    ),
    "whoever lives may lead": Mutation(
        "controller/replicas/elections.py", "if live and may_elect_unclean():", "if live:"
    ),
    "a reassignment is over before the new replicas have caught up": Mutation(
        "controller/replicas/reassignments.py",
        "    isr = tuple(replica for replica in partition.isr if replica in assignment.replicas)\n",
        "    isr = assignment.replicas\n",
    ),
    "what a full disk refused counts as written": Mutation(
        "storage/log/appender.py",
        '            self._producers.rollback()\n            doing = f"appending',
        '            doing = f"appending',
    ),
    "a duplicate of what is refused is acknowledged": Mutation(
        "storage/log/appender.py",
        "                if isinstance(results[index], LogAppendInfo):\n",
        "                if index == staged.first_result:\n",
    ),
    "a gap is taken from a producer": Mutation(
        "storage/producers/producer_state.py",
        "        if first_sequence != expected:\n",
        "        if first_sequence < expected:\n",
    ),
    "one follower is enough for the high watermark": Mutation(
        "replication/in_sync_replicas.py",
        "            if follower.log_end_offset < smallest and (",
        "            if follower.broker_id == 3 and follower.log_end_offset < smallest and (",
    ),
}
MUTANTS = Mutants(
    MUTATIONS, ["tests/simulation/test_replication.py"], ODRADEK_REPLICATION_SEEDS="200"
)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS.names)
def test_a_mutant_is_found(tmp_path: Path, name: str) -> None:
    """The simulation would let somebody break just this."""
    MUTANTS.hold(name, tmp_path)
