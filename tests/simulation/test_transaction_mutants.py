"""Breaks transactions on purpose, one line at a time; their simulation has to find it.

What readers of a log see is not simulated: that is found by the tests of the log.
"""

from pathlib import Path

import pytest
from tests.mutants import Mutants, Mutation

MUTATIONS = {
    "a zombie ends the transaction of its successor": Mutation(
        "coordinator/transactions/commands.py",
        "    if value.producer_epoch != request.producer.producer_epoch:\n"
        "        raise BrokerError(ErrorCode.PRODUCER_FENCED)\n\n\n"
        "def _end_by_version_1",
        "\n\ndef _end_by_version_1",
    ),
    "a zombie adds to the transaction of its successor": Mutation(
        "coordinator/transactions/commands.py",
        "        if value.producer_epoch != producer.producer_epoch:\n"
        "            raise BrokerError(ErrorCode.PRODUCER_FENCED)\n",
        "",
    ),
    "an open transaction is handed on with its id": Mutation(
        "coordinator/transactions/commands.py",
        "        if value.state is TransactionState.ONGOING:\n            answer = ProducerAnswer(",
        "        if False:\n            answer = ProducerAnswer(",
    ),
    "commands of one id look at a state that is not replayed": Mutation(
        "coordinator/transactions/transaction_coordinator.py",
        "        is_first = not self._runtime.is_busy(transactional_id)\n",
        "        is_first = False\n",
    ),
    "the first refusal of a marker is its last": Mutation(
        "coordinator/transactions/markers.py",
        "        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,\n        ErrorCode.INVALID",
        "        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,\n"
        "        ErrorCode.NOT_LEADER_OR_FOLLOWER,\n        ErrorCode.INVALID",
    ),
    "what was decided before a crash is forgotten": Mutation(
        "coordinator/transactions/shard.py", "        if prepared:\n", "        if not prepared:\n"
    ),
    "a time-out ends nothing": Mutation(
        "coordinator/transactions/transaction.py",
        "value.start_timestamp_ms + value.timeout_ms < now_ms",
        "value.start_timestamp_ms + value.timeout_ms < 0",
    ),
    "an epoch is not raised at the end of a transaction": Mutation(
        "coordinator/transactions/transaction.py",
        "epoch, last_epoch = min(epoch + 1, MAX_EPOCH), epoch\n",
        "epoch, last_epoch = epoch, epoch\n",
    ),
    "a late write is let in after the end": Mutation(
        "storage/producers/producer_state.py",
        "return verification is not None and verification.number == number",
        "return True",
    ),
    "an end marker does not take a verification away": Mutation(
        "storage/producers/producer_state.py",
        "        producer_id = header.producer_id\n        self._end_verification(producer_id)\n",
        "        producer_id = header.producer_id\n",
    ),
    "a write gets in before one that was not verified": Mutation(
        "storage/producers/producer_state.py",
        "        if verification is None:\n            return\n",
        "        return\n",
    ),
    "a write that the disk refused counts": Mutation(
        "storage/producers/producer_state.py",
        "        for producer_id, state in replaced.items():\n            self._open.pop",
        "        for producer_id, state in ():\n            self._open.pop",
    ),
    "the end of a transaction that the log refuses is forgotten": Mutation(
        "coordinator/transactions/markers.py",
        "            self._await(DelayedMarkers(self, RETRY_MS))\n\n    def _log",
        "            self._await(None)\n\n    def _log",
    ),
    "a lost answer makes a record come twice": Mutation(
        "storage/producers/producer_state.py",
        "            if duplicate is not None:\n                return duplicate\n",
        "            if duplicate is not None:\n                return None\n",
    ),
    "an aborted offset counts": Mutation(
        "coordinator/offsets/pending.py",
        "if value is not None and result is TransactionResult.COMMIT:",
        "if value is not None:",
    ),
    "an offset counts before its marker": Mutation(
        "coordinator/offsets/store.py",
        "            self.pending.put(producer_id, key, value)\n",
        "            self.pending.put(producer_id, key, value)\n"
        "            self._put(key, value)\n",
    ),
}

LOG_MUTATIONS = {
    "readers of committed records get what is open": Mutation(
        "storage/log/log.py", "if unstable < 0 or unstable > self.high_watermark:", "if True:"
    ),
    "what the disk refused is not taken back": Mutation(
        "storage/log/appender.py", "            self._producers.rollback()\n", ""
    ),
    "a marker counts before it is replicated": Mutation(
        "storage/producers/producer_state.py",
        "            self._unreplicated.append(completed)\n",
        "",
    ),
    "an old coordinator writes markers": Mutation(
        "storage/producers/producer_state.py",
        "if coordinator_epoch < state.coordinator_epoch:",
        "if False:",
    ),
    "a late marker ends the transaction after": Mutation(
        "storage/producers/producer_state.py",
        "bumps = transaction_version >= _EPOCH_BUMPING_VERSION",
        "bumps = False",
    ),
}
MUTANTS = Mutants(
    MUTATIONS, ["tests/simulation/test_transactions.py"], ODRADEK_TRANSACTION_SEEDS="1000"
)
LOG_MUTANTS = Mutants(
    LOG_MUTATIONS,
    ["tests/unit/storage/test_producer_state.py", "tests/unit/storage/test_log.py"],
)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS.names)
def test_a_mutant_is_found(tmp_path: Path, name: str) -> None:
    """The simulation would let somebody break just this."""
    MUTANTS.hold(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOG_MUTANTS.names)
def test_a_mutant_of_the_log_is_found(tmp_path: Path, name: str) -> None:
    """The tests of the log would let somebody break just this."""
    LOG_MUTANTS.hold(name, tmp_path)
