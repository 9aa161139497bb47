"""Hundreds of members in a few groups, with everything that networks and crashes do to them.

Members follow the protocol as client libraries do, but what they send may be lost, sent twice
or come late, they may vanish without a word, and the coordinator is killed at random and comes
back with nothing but its log, of which the uncommitted tail may be missing. After every step a
checker holds what must always hold; in the end, when the trouble stops, the groups must settle.

Everything follows from the seed: a failure is repeated by running the test again.
"""

import random
from collections.abc import Callable

import pytest
from tests.unit.coordinator.fakes import Member, World

from odradek.coordinator.classic_group import ClassicGroup
from odradek.coordinator.classic_requests import JoinResult, SyncRequest, SyncResult
from odradek.coordinator.offsets import CommittedPartition, CommittedTopic, OffsetCommitRequest
from odradek.coordinator.states import GroupState
from odradek.errors import BrokerError, ErrorCode

PARTITIONS = 24
SESSION_TIMEOUT_MS = 10_000
HEARTBEAT_INTERVAL_MS = 3_000
REQUEST_TIMEOUT_MS = 15_000
START_OVER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class SimulatedMember(Member):
    """A client library's state machine: unjoined, joining, syncing or stable."""

    def __init__(self, simulation: "Simulation", name: str, group_id: str, static: bool) -> None:
        super().__init__(
            simulation.world,
            name,
            group_id,
            instance_id=name if static else None,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=20_000,
        )
        self.simulation = simulation
        self.state = "unjoined"
        self.since_ms = 0
        self.partitions: frozenset[int] = frozenset()
        self.attempt = 0

    def step(self) -> None:
        """What a library's thread does when it gets a turn."""
        waited_ms = self.simulation.now_ms - self.since_ms
        if self.state == "unjoined":
            self.start_join()
        elif self.state in ("joining", "syncing"):
            if waited_ms > REQUEST_TIMEOUT_MS * 3:
                self.become("unjoined")  # the answer is lost: the library asks again
        elif waited_ms >= HEARTBEAT_INTERVAL_MS:
            self.since_ms = self.simulation.now_ms
            self.simulation.send(self.heartbeat)

    def become(self, state: str) -> None:
        self.state = state
        self.since_ms = self.simulation.now_ms
        self.attempt += 1
        if state != "stable":
            self.partitions = frozenset()

    def start_join(self) -> None:
        self.become("joining")
        attempt = self.attempt
        self.simulation.send(lambda: self.send_join_of(attempt))

    def send_join_of(self, attempt: int) -> None:
        if attempt == self.attempt:
            self.send_join()

    def _on_joined(self, result: JoinResult) -> None:
        self.simulation.deliver(self, self.attempt, lambda: self.on_join_answer(result))

    def on_join_answer(self, result: JoinResult) -> None:
        if self.state != "joining":
            return
        code = result.error_code
        if code is ErrorCode.NONE:
            self.member_id, self.generation_id = result.member_id, result.generation_id
            self.start_sync(result)
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
            self.start_join()
        else:
            if code in (*START_OVER, ErrorCode.FENCED_INSTANCE_ID):
                self.member_id = ""
            self.become("unjoined")

    def start_sync(self, joined: JoinResult) -> None:
        self.become("syncing")
        shares: dict[str, bytes] = {}
        if joined.leader_id == self.member_id and not joined.skip_assignment:
            ids = [member.member_id for member in joined.members]
            for index, member_id in enumerate(ids):
                shares[member_id] = bytes(range(index, PARTITIONS, len(ids)))
        request = SyncRequest(
            self.group_id,
            self.generation_id,
            self.member_id,
            self.instance_id,
            "consumer",
            "range",
            shares,
        )
        attempt, generation_id = self.attempt, self.generation_id

        def on_synced(result: SyncResult) -> None:
            self.simulation.deliver(
                self, attempt, lambda: self.on_sync_answer(result, generation_id)
            )

        self.simulation.send(lambda: self.world.groups.sync(request, on_synced))

    def on_sync_answer(self, result: SyncResult, generation_id: int) -> None:
        if self.state != "syncing" or self.generation_id != generation_id:
            return
        if result.error_code is ErrorCode.NONE:
            self.become("stable")
            self.partitions = frozenset(result.assignment)
            self.simulation.note_assignment(self)
        else:
            if result.error_code in (*START_OVER, ErrorCode.FENCED_INSTANCE_ID):
                self.member_id = ""
            self.become("unjoined")

    def heartbeat(self) -> None:
        if self.state != "stable":
            return
        code = self.beat()
        if code in (*START_OVER, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""
        if code is not ErrorCode.NONE:
            self.become("unjoined")

    def commit_something(self) -> None:
        if self.state == "stable" and self.partitions:
            self.simulation.commit(self, min(self.partitions))


class Simulation:
    """The members, the network between, and the checker."""

    def __init__(self, seed: int, member_count: int, group_count: int) -> None:
        self.random = random.Random(seed)
        self.world = World(partitions=2)
        self.trouble = 0.1
        self.now_ms = 0
        self.late: list[tuple[int, Callable[[], None]]] = []
        self.members = [
            SimulatedMember(self, f"m{index}", f"g{index % group_count}", index % 5 == 0)
            for index in range(member_count)
        ]
        self.gone: set[SimulatedMember] = set()
        self.owners: dict[tuple[str, int], dict[int, str]] = {}
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.sent: dict[tuple[str, int], set[int]] = {}
        self.restarts = 0

    # The network

    def send(self, request: Callable[[], None]) -> None:
        """A request: it arrives, or it does not, or late, or twice."""
        chance = self.random.random()
        if chance < self.trouble / 4:
            return
        if chance < self.trouble / 2:
            self.late.append((self.now_ms + self.random.randrange(5_000), request))
            return
        request()
        if chance < self.trouble:
            self.late.append((self.now_ms + self.random.randrange(2_000), request))

    def deliver(self, member: SimulatedMember, attempt: int, answer: Callable[[], None]) -> None:
        """An answer: it may be lost, and nobody listens when the library has given up."""
        if self.random.random() < self.trouble / 4 or member in self.gone:
            return

        def arrive() -> None:
            if member.attempt == attempt:
                answer()

        # Never on the coordinator's stack: an answer crosses a network.
        self.late.append((self.now_ms, arrive))

    # One step

    def step(self) -> None:
        for _ in range(10):
            member = self.random.choice(self.members)
            if member not in self.gone:
                member.step()
                if self.random.random() < 0.3:
                    member.commit_something()
        self.misfortune()
        duration_ms = self.random.choice((1, 20, 200, 500))
        self.now_ms += duration_ms
        self.world.advance(duration_ms)
        due = [request for at_ms, request in self.late if at_ms <= self.now_ms]
        self.late = [each for each in self.late if each[0] > self.now_ms]
        for request in due:
            request()
        self.world.log.commit()
        self.check()

    def misfortune(self) -> None:
        chance = self.random.random()
        if chance < self.trouble * 0.1:
            self.restarts += 1
            self.world.restart()
        elif chance < self.trouble * 0.3:
            self.world.log.holds = not self.world.log.holds
        elif chance < self.trouble * 0.5:
            member = self.random.choice(self.members)
            if member in self.gone:
                self.gone.remove(member)
                member.member_id = ""
                member.become("unjoined")
            elif len(self.gone) < len(self.members) // 10:
                self.gone.add(member)
                member.become("unjoined")
                if self.random.random() < 0.5 and member.member_id:
                    member.leave()

    # What must always hold

    def commit(self, member: SimulatedMember, partition: int) -> None:
        key = (member.group_id, partition)
        offset = max(self.sent.get(key, {0})) + 1
        self.sent.setdefault(key, set()).add(offset)

        def on_done(outcome: object) -> None:
            if not isinstance(outcome, BrokerError):
                self.acknowledged[key] = max(offset, self.acknowledged.get(key, 0))

        commit_with(self.world, member, partition, offset, on_done)

    def note_assignment(self, member: SimulatedMember) -> None:
        """No partition has two owners in one generation."""
        owners = self.owners.setdefault((member.group_id, member.generation_id), {})
        for partition in member.partitions:
            owner = member.instance_id or member.member_id
            before = owners.setdefault(partition, owner)
            assert before == owner, (
                f"{member.group_id} generation {member.generation_id}: partition {partition} "
                f"belongs to {before} and to {owner}"
            )

    def check(self) -> None:
        for (group_id, partition), offset in self.acknowledged.items():
            found = self.world.committed(group_id).get(("t", partition))
            assert found is not None, f"{group_id}: offset {offset} was acknowledged and is gone"
            assert found >= offset, f"{group_id}: offset {offset} went back to {found}"
            assert found in self.sent[group_id, partition], f"{found} was never committed"
        for group in self.groups():
            self.check_group(group)

    def groups(self) -> list[ClassicGroup]:
        found = []
        for shard in self.world.runtime.shards():
            for group in shard.registry:
                assert isinstance(group, ClassicGroup)
                found.append(group)
        return found

    def check_group(self, group: ClassicGroup) -> None:
        waiting = [each for each in group.members.values() if each.awaiting_join is not None]
        assert len(waiting) == group.joining_count, f"{group.group_id} has lost count"
        if group.state is GroupState.EMPTY:
            assert not group.members, f"{group.group_id} is empty and has members"
        else:
            assert group.leader_id in group.members, f"{group.group_id} is led by a stranger"
        if group.state is not GroupState.PREPARING_REBALANCE:
            assert not waiting, f"{group.group_id} is {group.state} and lets joins wait"
        assert group.pending_sync <= group.members.keys()
        assert not (group.pending_members & group.members.keys())
        for instance_id, member_id in group.static_members.items():
            assert group.members[member_id].group_instance_id == instance_id

    def settle(self) -> None:
        """The trouble stops, and everybody who is there gets a share."""
        self.trouble = 0.0
        self.world.log.holds = False
        for _ in range(30_000):
            self.step()
            if self.is_settled():
                return
        raise AssertionError(f"not settled: {[(g.group_id, g.state) for g in self.groups()]}")

    def is_settled(self) -> bool:
        present = [member for member in self.members if member not in self.gone]
        if any(member.state != "stable" for member in present):
            return False
        for group in self.groups():
            mine = [member for member in present if member.group_id == group.group_id]
            if group.state is not GroupState.STABLE or len(group.members) != len(mine):
                return False
            if any(member.generation_id != group.generation_id for member in mine):
                return False
            shares = sorted(partition for member in mine for partition in member.partitions)
            assert shares == list(range(PARTITIONS)), f"{group.group_id}: {shares}"
        return True


def commit_with(
    world: World,
    member: Member,
    partition: int,
    offset: int,
    on_done: Callable[[object], None],
) -> None:
    topics = [CommittedTopic("t", None, [CommittedPartition(partition, offset, -1, "")])]
    request = OffsetCommitRequest(
        member.group_id,
        member.member_id,
        member.instance_id,
        member.generation_id,
        -1,
        topics,
        9,
    )
    world.groups.commit_offsets(request, on_done)


@pytest.mark.parametrize("seed", range(4))
def test_groups_survive_trouble_and_settle(seed: int) -> None:
    """Fails when two members own a partition, a commit is lost, or a group never settles."""
    simulation = Simulation(seed, member_count=120, group_count=6)
    for _ in range(400):
        simulation.step()
    simulation.settle()
    assert simulation.acknowledged, "nothing was ever committed"
    assert simulation.restarts, "the coordinator was never killed"
