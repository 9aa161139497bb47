"""Breaks share groups on purpose, one line at a time; their simulation has to find it."""

from pathlib import Path

import pytest
from tests.mutants import Mutants, Mutation

MUTATIONS = {
    "a leader of before goes on writing": Mutation(
        "coordinator/share/shard.py",
        "        _fence(known.leader_epoch, leader_epoch, ErrorCode.FENCED_LEADER_EPOCH)\n"
        "        _fence(known.state_epoch",
        "        _fence(known.state_epoch",
    ),
    "a new leader does not fence the one before": Mutation(
        "coordinator/share/shard.py",
        "        if leader_epoch <= known.leader_epoch:\n            return CoordinatorResult(()",
        "        if True:\n            return CoordinatorResult(()",
    ),
    "a leader writes what it knows of a state that an operator has set anew": Mutation(
        "coordinator/share/shard.py",
        "        _fence(known.state_epoch, state.state_epoch, ErrorCode.FENCED_STATE_EPOCH)\n",
        "",
    ),
    "a snapshot of a quiet state undoes what is on its way": Mutation(
        "coordinator/share/shard.py",
        "if is_old and not any(_is_of(each, key) for each in uncommitted()):",
        "if is_old:",
    ),
    "what the log refused is not told again": Mutation(
        "replication/share/share_partition.py",
        "        self._is_behind = error is not None\n",
        "        self._is_behind = False\n",
    ),
    "what a group reads is what was made last": Mutation(
        "coordinator/share_groups/share_groups.py",
        "            union(group.initialized, made),\n",
        "            made,\n",
    ),
    "a lock ends of what is being stored": Mutation(
        "replication/share/share_partition.py",
        "if batch.lock is lock and batch.write is None:",
        "if batch.lock is lock:",
    ),
    "what is being stored may be said again": Mutation(
        "replication/share/share_partition.py",
        "if lock is None or lock.member_id != member_id or batch.write is not None:",
        "if lock is None or lock.member_id != member_id:",
    ),
    "another member's records may be acknowledged": Mutation(
        "replication/share/share_partition.py",
        "if lock is None or lock.member_id != member_id or batch.write is not None:",
        "if lock is None or batch.write is not None:",
    ),
    "a refused acknowledgement counts": Mutation(
        "replication/share/share_partition.py",
        "if error is None and said.state is not RecordState.ACQUIRED:",
        "if said.state is not RecordState.ACQUIRED:",
    ),
    "deliveries are counted anew by each leader": Mutation(
        "replication/share/share_partition.py",
        "self._append(first, batch.last_offset, after, batch.delivery_count, held)",
        "self._append(first, batch.last_offset, after, 0, held)",
    ),
}
MUTANTS = Mutants(MUTATIONS, ["tests/simulation/share/test_sharing.py"], ODRADEK_SHARE_SEEDS="110")


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS.names)
def test_a_mutant_is_found(tmp_path: Path, name: str) -> None:
    """The simulation would let somebody break just this."""
    MUTANTS.hold(name, tmp_path)
