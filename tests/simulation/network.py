"""A network that loses, delays and repeats, a coordinator that is killed, and a checker.

Members follow their protocol as client libraries do. What they send may be lost, sent twice, at
once or later, or come late, they may vanish without a word, and the coordinator is killed at random
and comes back with nothing but its log, of which the uncommitted tail may be missing. The log
refuses appends at any step. After every step a checker holds what must always hold; in the end,
when the trouble stops, the groups must settle.

Everything follows from the seed: a failure is repeated by running the test again.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable

from tests.unit.coordinator.consumer.consumers import ConsumerWorld

from odradek.coordinator.classic.group import ClassicGroup
from odradek.coordinator.classic.states import GroupState
from odradek.coordinator.consumer.group import ConsumerGroup
from odradek.coordinator.group import Group
from odradek.coordinator.offsets.requests import (
    CommittedPartition,
    CommittedTopic,
    OffsetCommitRequest,
)
from odradek.errors import BrokerError, ErrorCode

TOPIC = "t"
HEARTBEAT_INTERVAL_MS = 3_000
REQUEST_TIMEOUT_MS = 15_000
REFUSALS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


class SimulatedMember(ABC):
    """A client library's state machine. An answer is taken only while its request is awaited:
    `attempt` rises when the library asks something else, or gives up."""

    def __init__(self, simulation: "Simulation", name: str, group_id: str, is_static: bool) -> None:
        self.simulation = simulation
        self.name = name
        self.group_id = group_id
        self.instance_id = name if is_static else None
        self.member_id = ""
        self.partitions: frozenset[int] = frozenset()
        self.attempt = 0
        self.since_ms = 0

    @abstractmethod
    def step(self) -> None:
        """Does what a library's thread does when it gets a turn."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """The generation or epoch that `partitions` belong to."""

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Whether the member has its share and awaits no other."""

    @abstractmethod
    def start_over(self) -> None:
        """A new process: it knows nothing."""

    @abstractmethod
    def say_goodbye(self) -> None:
        """Leaves the group, as a process does that ends in good order."""

    @property
    def owner(self) -> str:
        """The reader: the instance, whichever process of it."""
        return self.instance_id or self.name

    @property
    def waited_ms(self) -> int:
        return self.simulation.now_ms - self.since_ms

    def send(self, request: Callable[[int], None]) -> None:
        """Sends a request; it reaches the coordinator only while it is this member's last."""
        self.attempt += 1
        self.since_ms = self.simulation.now_ms
        attempt = self.attempt

        def arrive() -> None:
            if attempt == self.attempt:
                request(attempt)

        self.simulation.send(arrive)

    def commit_something(self) -> None:
        if self.is_settled and self.partitions:
            self.simulation.commit(self, min(self.partitions))


class Simulation:
    """The members, the network between, and the checker."""

    def __init__(self, seed: int, partitions: int = 24, trouble: float = 0.1) -> None:
        self.random = random.Random(seed)
        self.partitions = partitions
        self.world = ConsumerWorld({TOPIC: partitions}, partitions=2)
        self.topic_id = self.world.topic_id(TOPIC)
        self.turns = 10
        self.steps_ms = self.peaceful_steps_ms = (1, 20, 200, 500)
        self.trouble = trouble
        self.now_ms = 0
        self.late: list[tuple[int, Callable[[], None]]] = []
        self.members: list[SimulatedMember] = []
        self.gone: set[SimulatedMember] = set()
        self.owners: dict[tuple[str, int], dict[int, str]] = {}
        self.epochs: dict[str, int] = {}
        self.emptied: dict[str, Group] = {}
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.sent: dict[tuple[str, int], set[int]] = {}
        self.world.log.holds = seed % 2 == 1
        self.world.log.refuses = self.refuses
        self.refusals = 0
        self.is_refusing = False
        self.restarts = 0
        self.kinds_seen: set[tuple[str, str]] = set()

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
        if chance < self.trouble * 3 / 4:
            request()
        elif chance < self.trouble:
            self.late.append((self.now_ms + self.random.randrange(2_000), request))

    def refuses(self) -> ErrorCode | None:
        """The log: for a while it takes hardly anything, and seldom it refuses out of the blue."""
        if self.random.random() > self.trouble * (8 if self.is_refusing else 0.2):
            return None
        self.refusals += 1
        return self.random.choice(REFUSALS)

    def deliver(self, member: SimulatedMember, attempt: int, answer: Callable[[], None]) -> None:
        """An answer: it may be lost, and nobody listens when the library has given up."""
        chance = self.random.random()
        if chance < self.trouble / 4 or member in self.gone:
            return

        def arrive() -> None:
            if member.attempt == attempt:
                member.attempt += 1  # what of it is still on its way comes over a closed connection
                answer()

        # Never on the coordinator's stack: an answer crosses a network.
        delay_ms = self.random.randrange(1_000) if chance < self.trouble else 0
        self.late.append((self.now_ms + delay_ms, arrive))

    # One step

    def run(self, steps: int) -> None:
        """Trouble for some steps, then peace until the groups have settled; and once more when
        the coordinator is killed and somebody goes without a word in the midst of peace."""
        for number in range(steps):
            if number == steps // 2:
                self.kill()
            self.step()
        self.trouble = 0.0
        self.world.log.holds = False
        self.steps_ms = self.peaceful_steps_ms
        self.settle()
        self.gone.add(next(member for member in self.members if member not in self.gone))
        self.kill()
        self.settle()

    def settle(self) -> None:
        for _ in range(30_000):
            self.step()
            if self.is_settled():
                return
        states = [(group.group_id, group.type, group.state_name) for group in self.groups()]
        raise AssertionError(f"not settled: {states}")

    def step(self) -> None:
        for _ in range(self.turns):
            member = self.random.choice(self.members)
            if member not in self.gone:
                member.step()
                if self.random.random() < 0.3:
                    member.commit_something()
        self.misfortune()
        duration_ms = self.random.choice(self.steps_ms)
        self.now_ms += duration_ms
        self.world.advance(duration_ms)
        due = [request for at_ms, request in self.late if at_ms <= self.now_ms]
        self.late = [each for each in self.late if each[0] > self.now_ms]
        for request in due:
            request()
        self.check()
        if self.world.log.held and (self.random.random() < 0.4 or not self.trouble):
            self.world.log.commit()
            self.check()

    def misfortune(self) -> None:
        chance = self.random.random()
        if chance < self.trouble * 0.1:
            self.kill()
        elif chance < self.trouble * 0.5:
            self.world.log.holds = not self.world.log.holds
        elif chance < self.trouble * 0.7:
            self.is_refusing = not self.is_refusing
        elif chance < self.trouble * 0.9:
            self.vanish_or_return(self.random.choice(self.members))

    def kill(self) -> None:
        """The coordinator is killed and comes back."""
        self.restarts += 1
        self.world.restart(loses_tail=self.random.random() < 0.5)

    def vanish_or_return(self, member: SimulatedMember) -> None:
        if member in self.gone:
            self.gone.remove(member)
            member.start_over()
        elif len(self.gone) < len(self.members) // 10:
            self.gone.add(member)
            if self.random.random() < 0.5 and member.member_id:
                member.say_goodbye()
            member.partitions = frozenset()
            member.attempt += 1

    # Commits

    def commit(self, member: SimulatedMember, partition: int) -> None:
        key = (member.group_id, partition)
        offset = max(self.sent.get(key, {0})) + 1
        self.sent.setdefault(key, set()).add(offset)

        def on_done(outcome: object) -> None:
            if not isinstance(outcome, BrokerError):
                self.acknowledged[key] = max(offset, self.acknowledged.get(key, 0))

        topics = [CommittedTopic(TOPIC, None, [CommittedPartition(partition, offset, -1, "")])]
        request = OffsetCommitRequest(
            member.group_id,
            member.member_id,
            member.instance_id,
            member.generation,
            -1,
            topics,
            9,
        )
        self.world.groups.commit_offsets(request, on_done)

    # What must always hold

    def note_assignment(self, member: SimulatedMember) -> None:
        """No partition has two owners in one generation."""
        owners = self.owners.setdefault((member.group_id, member.generation), {})
        for partition in member.partitions:
            before = owners.setdefault(partition, member.owner)
            assert before == member.owner, (
                f"{member.group_id} generation {member.generation}: partition {partition} "
                f"belongs to {before} and to {member.owner}"
            )

    def check(self) -> None:
        groups = {group_id for group_id, _ in self.acknowledged}
        committed = {group_id: self.world.committed(group_id) for group_id in groups}
        for (group_id, partition), offset in self.acknowledged.items():
            found = committed[group_id].get((TOPIC, partition))
            assert found is not None, f"{group_id}: offset {offset} was acknowledged and is gone"
            assert found >= offset, f"{group_id}: offset {offset} went back to {found}"
            assert found in self.sent[group_id, partition], f"{found} was never committed"
        for group in self.groups():
            self.kinds_seen.add((group.group_id, group.type.value))
            if isinstance(group, ClassicGroup):
                self.check_classic(group)
            elif isinstance(group, ConsumerGroup):
                self.check_consumers(group)

    def groups(self) -> list[Group]:
        return [group for shard in self.world.runtime.shards() for group in shard.registry]

    def check_epoch(self, group: ClassicGroup | ConsumerGroup, epoch: int) -> None:
        """A group that was empty and is made anew counts from the beginning, and may already have
        come as far again when it is seen: held writes can end one and fill the next at once."""
        emptied = self.emptied.pop(group.group_id, group)
        if epoch < self.epochs.get(group.group_id, 0) or emptied is not group:
            for key in [key for key in self.owners if key[0] == group.group_id]:
                del self.owners[key]
        self.epochs[group.group_id] = epoch
        if not group.members:
            self.emptied[group.group_id] = group

    def check_classic(self, group: ClassicGroup) -> None:
        self.check_epoch(group, group.generation_id)
        waiting = [each for each in group.members.values() if each.awaiting_join is not None]
        assert len(waiting) == group.joining_count, f"{group.group_id} has lost count"
        if group.state is GroupState.EMPTY:
            assert not group.members, f"{group.group_id} is empty and has members"
        elif group.members:
            assert group.leader_id in group.members, (
                f"{group.group_id} is {group.state} and led by {group.leader_id}"
            )
        if group.state is GroupState.STABLE:  # the id of a new process has to be stored
            waiting = [each for each in waiting if not each.is_static]
        if group.state is not GroupState.PREPARING_REBALANCE:
            assert not waiting, f"{group.group_id} is {group.state} and lets joins wait"
        assert group.pending_sync <= group.members.keys()
        assert not (group.pending_members & group.members.keys())
        for instance_id, member_id in group.static_members.items():
            assert group.members[member_id].group_instance_id == instance_id

    def check_consumers(self, group: ConsumerGroup) -> None:
        """Every partition has one owner at most, and whoever reads one is it, as long as the
        coordinator and the member are of one mind about the member's epoch."""
        self.check_epoch(group, group.epoch)
        owners: dict[int, str] = {}
        for member in group.members.values():
            assert member.member_epoch <= group.epoch, f"{member.member_id} is in the future"
            for partitions in (member.assigned, member.pending_revocation):
                for partition in partitions.get(self.topic_id, ()):
                    before = owners.setdefault(partition, member.member_id)
                    assert before == member.member_id, (
                        f"{group.group_id}: {partition} belongs to {before} and {member.member_id}"
                    )
        for each in self.members:
            known = None if each.group_id != group.group_id else group.members.get(each.member_id)
            if known is None or each in self.gone:
                continue
            if each.generation == known.member_epoch:
                for partition in each.partitions:
                    assert owners.get(partition) == each.member_id, (
                        f"{group.group_id} epoch {group.epoch}: {each.name} reads {partition}, "
                        f"which belongs to {owners.get(partition)}"
                    )

    def is_settled(self) -> bool:
        present = [member for member in self.members if member not in self.gone]
        if not all(member.is_settled for member in present):
            return False
        for group in self.groups():
            mine = [member for member in present if member.group_id == group.group_id]
            known: dict[str, object] = dict(group.members)  # type: ignore[attr-defined]
            if group.state_name != "Stable" or known.keys() != {each.member_id for each in mine}:
                return False
            if len({each.generation for each in mine}) != 1:
                return False
            shares = sorted(partition for each in mine for partition in each.partitions)
            if shares != list(range(self.partitions)):  # somebody has not heard of its share yet
                return False
        return True
