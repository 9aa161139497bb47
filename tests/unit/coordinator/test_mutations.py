"""Breaks groups and their offsets on purpose, one line at a time; their tests have to notice."""

from pathlib import Path, PurePath

import pytest
from tests.mutants import Mutants, Mutation

# By the package that is broken, the nearest first.
TESTS = {
    "classic": [
        "tests/unit/coordinator/test_offsets.py",
        "tests/unit/coordinator/test_bad_requests.py",
        "tests/unit/coordinator/test_refused_writes.py",
    ],
    "consumer": [
        "tests/unit/coordinator/test_refused_writes.py",
        "tests/unit/coordinator/consumer/test_consumer_groups.py",
        "tests/unit/coordinator/test_deadlines.py",
        "tests/unit/coordinator/consumer/test_consumer_migration.py",
    ],
    "runtime": [
        "tests/unit/coordinator/consumer/test_consumer_groups.py",
        "tests/unit/coordinator/test_refused_writes.py",
    ],
    "modern": [
        "tests/unit/coordinator/test_deadlines.py",
        "tests/unit/coordinator/test_refused_writes.py",
    ],
    "group_shard.py": ["tests/unit/coordinator/consumer/test_consumer_migration.py"],
    "group_coordinator.py": ["tests/unit/coordinator/consumer/test_consumer_migration.py"],
    "transactions": ["tests/unit/coordinator/transactional/test_transactions.py"],
    "offsets": [
        "tests/unit/coordinator/transactional/test_transactional_offsets.py",
        "tests/unit/coordinator/test_offsets.py",
        "tests/unit/coordinator/test_upkeep.py",
    ],
}

MUTATIONS = {
    "a rebalance does not wait for who was given an id": Mutation(
        "coordinator/classic/rebalance.py",
        "len(self.members) - self.joining_count + len(self.pending_members)",
        "len(self.members) - self.joining_count",
    ),
    "a static member that came back has no session": Mutation(
        "coordinator/classic/coordinated_group.py",
        "            self.reschedule_heartbeat(member)\n            return True\n",
        "            return True\n",
    ),
    "the sessions of classic members do not end": Mutation(
        "coordinator/classic/rebalance.py",
        "        member.heartbeat_satisfied = False\n",
        "        member.heartbeat_satisfied = True\n",
    ),
    "a heartbeat does not end the session before it": Mutation(
        "coordinator/modern/deadlines.py",
        "            deadline.is_met = True\n",
        "            deadline.is_met = False\n",
    ),
    "a former generation commits": Mutation(
        "coordinator/classic/group.py",
        "if generation_id != self.generation_id:",
        "if generation_id > self.generation_id:",
    ),
    "a member commits what another may have by now": Mutation(
        "coordinator/classic/group.py",
        "if self.state is GroupState.COMPLETING_REBALANCE and not is_transactional:",
        "if False:",
    ),
    "a former epoch commits what the member has got since": Mutation(
        "coordinator/consumer/group.py",
        "assigned_at is None or received < assigned_at",
        "assigned_at is None",
    ),
    "a former epoch is good for partitions that the member has no more": Mutation(
        "coordinator/consumer/consumer_groups.py",
        "        and is_subset(request.owned, member.assigned)\n",
        "",
    ),
    "a partition is given before its former owner has released it": Mutation(
        "coordinator/consumer/reconciliation.py",
        "index for index in indexes if owner(topic_id, index) in (None, member.member_id)",
        "index for index in indexes",
    ),
    "who says nothing has given its partitions back": Mutation(
        "coordinator/consumer/reconciliation.py",
        "return owned is None or any(",
        "return owned is not None and any(",
    ),
    "a consumer group's members are looked for in a classic group": Mutation(
        "coordinator/group_shard.py",
        "GroupType.CLASSIC if group is None else group.type",
        "GroupType.CLASSIC",
    ),
    "a consumer group without members stays one for ever": Mutation(
        "coordinator/consumer/classic_members.py",
        "if self._groups.group(group_id).is_empty:",
        "if False:",
    ),
    "a member is not out after all when the log has refused it once": Mutation(
        "coordinator/consumer/consumer_groups.py",
        "deadlines.start(key, late.again(stalled_ms if is_stalled else RETRY_MS))",
        "del is_stalled",
    ),
    "a member that nobody listened to is late": Mutation(
        "coordinator/consumer/consumer_groups.py",
        "stalled_ms if is_stalled else RETRY_MS",
        "RETRY_MS",
    ),
    "a member that came back is out": Mutation(
        "coordinator/modern/deadlines.py",
        "return self._pending.get(key) is deadline",
        "return True",
    ),
    "nothing is awaited of members but heartbeats": Mutation(
        "coordinator/consumer/consumer_groups.py",
        "        if not self._is_loaded:\n            return\n",
        "        if True:\n            return\n",
    ),
    "a heartbeat counts when it has its turn": Mutation(
        "coordinator/consumer/consumer_groups.py",
        "        if self._sessions.awaits(SessionKey(group_id, member_id)):\n",
        "        if False:\n",
    ),
    "a join counts when it has its turn": Mutation(
        "coordinator/group_coordinator.py",
        "        self._on_arrival(request.group_id, request.member_id)\n"
        "        self._begin(request.group_id, begin,",
        "        self._begin(request.group_id, begin,",
    ),
    "a sync counts when it has its turn": Mutation(
        "coordinator/group_coordinator.py",
        "        self._on_arrival(request.group_id, request.member_id)\n"
        "        self._begin(request.group_id, lambda members: members.sync(",
        "        self._begin(request.group_id, lambda members: members.sync(",
    ),
    "a join of a classic group counts when it has its turn": Mutation(
        "coordinator/group_shard.py",
        "        self.classic.on_arrival(group_id, member_id)\n",
        "",
    ),
    "a classic group stays in the log of the consumer group that it was": Mutation(
        "coordinator/consumer/consumer_groups.py",
        "            records += group.tombstones()\n",
        "",
    ),
    "an end that raises is never written": Mutation(
        "coordinator/transactions/markers.py",
        "            if self._is_completing:\n"
        "                self._on_completed(BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))\n",
        "",
    ),
    "a member is out that asks again behind its own end": Mutation(
        "coordinator/consumer/consumer_groups.py",
        "            if key in self._unheard:\n",
        "            if False:\n",
    ),
    "an assignment is waited for as long as it takes": Mutation(
        "coordinator/classic/rebalance.py",
        "            lambda: on_outcome(BrokerError(ErrorCode.REQUEST_TIMED_OUT)),\n",
        "",
    ),
    "what waits too long for its turn is done all the same": Mutation(
        "coordinator/runtime/runtime.py",
        "if turn is None or self._appender.end_wait(turn):",
        "if True:",
    ),
    "a slice of upkeep that is too large is given up": Mutation(
        "coordinator/runtime/runtime.py",
        "if half and error.code in TOO_LARGE:",
        "if False:",
    ),
    "what waits for a lost shard is never answered": Mutation(
        "coordinator/runtime/runtime.py",
        "        steps += chain.from_iterable(busy.values())\n",
        "",
    ),
    "what waits for a lost shard is decided by the next": Mutation(
        "coordinator/runtime/runtime.py",
        "        busy, context.busy = context.busy, {}\n",
        "        busy = {}\n",
    ),
    "the offsets of an aborted transaction count": Mutation(
        "coordinator/offsets/pending.py",
        "if value is not None and result is TransactionResult.COMMIT:",
        "if value is not None:",
    ),
    "a transaction overwrites what was committed after it": Mutation(
        "coordinator/offsets/pending.py", "if not pending.is_outdated:", "if True:"
    ),
    "an offset on its way to the log is stable": Mutation(
        "coordinator/offsets/pending.py",
        "self._entry(producer_id, key).appends_under_way += 1",
        "pass",
    ),
    "an offset expires under an open transaction": Mutation(
        "coordinator/offsets/upkeep.py",
        "if value is None or self._store.pending.has(key):",
        "if value is None:",
    ),
    "an offset expires while a later one is being committed": Mutation(
        "coordinator/offsets/upkeep.py",
        "if not in_flight.has(key) and self._is_expired",
        "if self._is_expired",
    ),
}
MUTANTS = Mutants(
    {
        name: each._replace(tests=TESTS[PurePath(each.source).parts[1]])
        for name, each in MUTATIONS.items()
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS.names)
def test_a_mutant_is_noticed(tmp_path: Path, name: str) -> None:
    """The tests would let somebody break just this."""
    MUTANTS.hold(name, tmp_path)
