"""Breaks partitions and what waits for them on purpose; their tests have to notice."""

from pathlib import Path

import pytest
from tests.mutants import Mutants, Mutation

TESTS = [
    "tests/unit/replication/test_in_sync_replicas.py",
    "tests/unit/replication/waits/test_delayed_fetch.py",
    "tests/unit/replication/waits/test_delayed_produce.py",
    "tests/unit/replication/waits/test_delayed_delete_records.py",
    "tests/unit/replication/test_contract.py",
    "tests/unit/replication/test_replica_manager.py",
    "tests/scenario/test_replication.py",
]

MUTATIONS = {
    "the high watermark moves below min.insync.replicas": Mutation(
        "replication/partition.py",
        "            if len(in_sync.committed) < minimum:\n                return False\n",
        "",
    ),
    "the high watermark goes back": Mutation(
        "replication/partition.py", "if committed <= log.high_watermark:", "if False:"
    ),
    "a follower that may have joined does not count": Mutation(
        "replication/partition.py",
        "        if len(in_sync.maximal) < minimum:",
        "        if len(in_sync.committed) < minimum:",
    ),
    "consumers read what is not committed": Mutation(
        "replication/partition.py", "return log.high_watermark\n", "return log.log_end_offset\n"
    ),
    "a request of an older leadership is served": Mutation(
        "replication/partition.py",
        "if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:",
        "if current_leader_epoch > self.leader_epoch:",
    ),
    "a history that parted below the log's start is followed": Mutation(
        "replication/partition.py",
        "if diverging is not None and info.fetch_offset >= log.log_start_offset:",
        "if diverging is not None:",
    ),
    "the outcome of a proposal of another leadership counts": Mutation(
        "replication/partition.py",
        "if self.in_sync_replicas is in_sync and in_sync.proposed is members:",
        "if in_sync.proposed is members:",
    ),
    "the outcome of an earlier proposal counts": Mutation(
        "replication/partition.py",
        "if self.in_sync_replicas is in_sync and in_sync.proposed is members:",
        "if self.in_sync_replicas is in_sync and in_sync.proposed is not None:",
    ),
    "a change of something else ends a proposal": Mutation(
        "replication/in_sync_replicas.py",
        "not is_same_state or not (self.proposed or frozenset()) <= {*replicas}",
        "True",
    ),
    "a follower is always in sync": Mutation(
        "replication/in_sync_replicas.py",
        "or now_ms - self.last_caught_up_ms <= lag_max_ms",
        "or True",
    ),
    "a follower joins without what is committed": Mutation(
        "replication/in_sync_replicas.py",
        "            and follower.log_end_offset >= high_watermark\n",
        "",
    ),
    "a follower joins before the start of the leadership": Mutation(
        "replication/in_sync_replicas.py",
        "            and follower.log_end_offset >= leader_epoch_start_offset\n",
        "",
    ),
    "bytes of several partitions are not added": Mutation(
        "replication/delayed/fetch.py",
        "            available += found\n",
        "            available = found\n",
    ),
    "a truncation is not noticed by who waits": Mutation(
        "replication/delayed/fetch.py",
        "if readable.log_end_offset < start.message_offset:",
        "if False:",
    ),
    "an append does not wake fetches": Mutation(
        "replication/append.py",
        "            self._purgatories.wake_fetches(partition.operation_key, APPEND)\n",
        "",
    ),
    "clients write internal topics": Mutation(
        "replication/append.py",
        "elif from_client and topic_partition.topic in INTERNAL_TOPICS:",
        "elif False:",
    ),
}
MUTANTS = Mutants(MUTATIONS, TESTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS.names)
def test_a_mutant_is_noticed(tmp_path: Path, name: str) -> None:
    """The tests would let somebody break just this."""
    MUTANTS.hold(name, tmp_path)
