"""Members of both protocols, as libraries implement them, in a simulated network."""

from collections.abc import Mapping

from tests.simulation.network import (
    HEARTBEAT_INTERVAL_MS,
    REQUEST_TIMEOUT_MS,
    TOPIC,
    SimulatedMember,
    Simulation,
)
from tests.unit.coordinator.consumer.test_consumer_migration import subscription

from odradek.coordinator.assignors import Partitions
from odradek.coordinator.classic.requests import (
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from odradek.coordinator.consumer.requests import HeartbeatRequest, HeartbeatResult
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.consumer_protocol import Assignment, decode_assignment, encode_assignment

SESSION_TIMEOUT_MS = 30_000
REBALANCE_TIMEOUT_MS = 20_000
PROTOCOLS = (("range", subscription([TOPIC], {})),)
START_OVER = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
)


class ClassicSimulatedMember(SimulatedMember):
    """Eager: it gives everything up before it joins. Unjoined, joining, syncing or stable."""

    def __init__(self, simulation: Simulation, name: str, group_id: str, is_static: bool) -> None:
        super().__init__(simulation, name, group_id, is_static)
        self.state = "unjoined"
        self.generation_id = -1

    @property
    def generation(self) -> int:
        return self.generation_id

    @property
    def is_settled(self) -> bool:
        return self.state == "stable"

    def start_over(self) -> None:
        self.member_id = ""
        self.become("unjoined")

    def say_goodbye(self) -> None:
        leaving = LeavingMember(self.member_id, self.instance_id, "done")
        self.simulation.world.groups.leave(self.group_id, [leaving], lambda _answer: None)

    def become(self, state: str) -> None:
        self.state = state
        self.since_ms = self.simulation.now_ms
        self.attempt += 1
        if state != "stable":
            self.partitions = frozenset()

    def step(self) -> None:
        if self.state == "unjoined":
            self.start_join()
        elif self.state in ("joining", "syncing"):
            if self.waited_ms > REQUEST_TIMEOUT_MS * 3:
                self.become("unjoined")  # the answer is lost: the library asks again
        elif self.waited_ms >= HEARTBEAT_INTERVAL_MS:
            self.since_ms = self.simulation.now_ms
            self.simulation.send(self.heartbeat)

    def start_join(self) -> None:
        self.become("joining")
        request = JoinRequest(
            self.group_id,
            self.member_id,
            self.instance_id,
            self.name,
            "/127.0.0.1",
            SESSION_TIMEOUT_MS,
            REBALANCE_TIMEOUT_MS,
            "consumer",
            PROTOCOLS,
            requires_known_member_id=True,
            supports_skipping_assignment=True,
        )

        def join(attempt: int) -> None:
            self.simulation.world.groups.join(
                request,
                lambda result: self.simulation.deliver(
                    self, attempt, lambda: self.on_joined(result)
                ),
            )

        self.send(join)

    def on_joined(self, result: JoinResult) -> None:
        code = result.error_code
        if code is ErrorCode.NONE:
            self.member_id, self.generation_id = result.member_id, result.generation_id
            self.start_sync(result)
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
            self.start_join()
        else:
            self.refused(code)

    def start_sync(self, joined: JoinResult) -> None:
        self.become("syncing")
        leads = joined.leader_id == self.member_id and not joined.skip_assignment
        request = SyncRequest(
            self.group_id,
            self.generation_id,
            self.member_id,
            self.instance_id,
            "consumer",
            "range",
            self.shares(joined) if leads else {},
        )

        def sync(attempt: int) -> None:
            self.simulation.world.groups.sync(
                request,
                lambda result: self.simulation.deliver(
                    self, attempt, lambda: self.on_synced(result)
                ),
            )

        self.send(sync)

    def shares(self, joined: JoinResult) -> Mapping[str, bytes]:
        """The assignment by a leader of n members: each gets every n-th partition."""
        ids = [member.member_id for member in joined.members]
        partitions = self.simulation.partitions
        return {
            member_id: encode_assignment(
                Assignment(
                    tuple(TopicPartition(TOPIC, n) for n in range(index, partitions, len(ids)))
                )
            )
            for index, member_id in enumerate(ids)
        }

    def on_synced(self, result: SyncResult) -> None:
        if result.error_code is not ErrorCode.NONE:
            self.refused(result.error_code)
            return
        self.become("stable")
        assigned = decode_assignment(result.assignment).partitions
        self.partitions = frozenset(index for _, index in assigned)
        self.simulation.note_assignment(self)

    def heartbeat(self) -> None:
        if self.state != "stable":
            return
        code = self.simulation.world.groups.heartbeat(
            self.group_id, self.member_id, self.instance_id, self.generation_id
        )
        if code is not ErrorCode.NONE:
            self.refused(code)

    def refused(self, code: ErrorCode) -> None:
        if code in START_OVER:
            self.member_id = ""
        self.become("unjoined")


class ConsumerSimulatedMember(SimulatedMember):
    """A member of the newer protocol. It goes on reading what it keeps, and gives back what it
    is told to when its application is through with it, which may take some heartbeats."""

    def __init__(self, simulation: Simulation, name: str, group_id: str, is_static: bool) -> None:
        super().__init__(simulation, name, group_id, is_static)
        self.incarnation = 0
        self.start_over()

    @property
    def generation(self) -> int:
        return self.epoch

    @property
    def is_settled(self) -> bool:
        return self.epoch > 0 and self.partitions == self.assigned

    def start_over(self) -> None:
        self.incarnation += 1
        self.member_id = f"{self.name}-{self.incarnation}"
        self.begin_anew()

    def begin_anew(self) -> None:
        """It was fenced, or is new: it owns nothing and joins with epoch 0."""
        self.epoch = 0
        self.partitions = self.assigned = frozenset()
        self.attempt += 1
        self.is_awaiting = False

    def say_goodbye(self) -> None:
        epoch = -1 if self.instance_id is None else -2
        request = HeartbeatRequest(self.group_id, self.member_id, epoch, self.instance_id)
        self.simulation.world.groups.consumer_heartbeat(request, 1, lambda _answer: None)

    def step(self) -> None:
        if self.is_awaiting:
            if self.waited_ms <= REQUEST_TIMEOUT_MS:
                return
            self.is_awaiting = False  # the answer is lost: the library asks again, in full
        if self.partitions - self.assigned and self.simulation.random.random() < 0.5:
            self.partitions &= self.assigned
        changed = self.partitions != self.assigned
        if self.epoch == 0 or changed or self.waited_ms >= HEARTBEAT_INTERVAL_MS:
            self.start_heartbeat()

    def start_heartbeat(self) -> None:
        if self.partitions <= self.assigned:
            self.partitions = self.assigned
        request = HeartbeatRequest(
            self.group_id,
            self.member_id,
            self.epoch,
            self.instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=frozenset([TOPIC]),
            owned=self.owned(),
            client_id=self.name,
            client_host="/127.0.0.1",
        )

        def heartbeat(attempt: int) -> None:
            self.simulation.world.groups.consumer_heartbeat(
                request,
                1,
                lambda answer: self.simulation.deliver(
                    self, attempt, lambda: self.on_answer(answer)
                ),
            )

        self.is_awaiting = True
        self.send(heartbeat)

    def owned(self) -> Partitions:
        return {self.simulation.topic_id: self.partitions} if self.partitions else {}

    def on_answer(self, answer: HeartbeatResult | BrokerError) -> None:
        self.is_awaiting = False
        if isinstance(answer, BrokerError):
            self.refused(answer.code)
            return
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assigned = answer.assignment.get(self.simulation.topic_id, frozenset())
        if self.partitions <= self.assigned:
            self.partitions = self.assigned
            self.simulation.note_assignment(self)

    def refused(self, code: ErrorCode) -> None:
        if code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):
            self.begin_anew()
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self.start_over()
