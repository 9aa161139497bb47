"""Who asks the coordinator of share groups, in their simulation: members, and operators."""

from typing import TYPE_CHECKING

from tests.simulation.share_brokers import TOPIC, Route, StateCoordinator

from odradek.coordinator.share_groups.requests import ShareHeartbeatRequest, ShareHeartbeatResult
from odradek.errors import BrokerError, ErrorCode
from odradek.replication.share.persister import SharePartitionKey

if TYPE_CHECKING:
    from tests.simulation.sharing import Simulation

HEARTBEAT_MS = 5_000


class ShareMember:
    """A consumer of a share group, as a library implements it, but less patient."""

    def __init__(self, simulation: "Simulation", name: str, group_id: str) -> None:
        self.simulation = simulation
        self.name = name
        self.group_id = group_id
        self.lives = 0
        self.sent = self.heard = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        self.lives += 1
        self.member_id = f"{self.name}-{self.lives}"
        self.rejoin()
        self.is_gone = False

    def rejoin(self) -> None:
        self.epoch = 0
        self.assigned: frozenset[int] = frozenset()
        self.known_at_ms: int | None = None
        self.beat_at_ms = -HEARTBEAT_MS

    def step(self) -> None:
        simulation = self.simulation
        is_due = simulation.now_ms >= self.beat_at_ms + (HEARTBEAT_MS if self.epoch else 1_000)
        if is_due or simulation.chance(0.05):
            self.beat()
        for partition in self.assigned:
            if simulation.calm or simulation.random.random() < 0.3:
                simulation.fetch(self, partition)
            while simulation.random.random() < 0.5:
                simulation.acknowledge(self, partition)

    def beat(self) -> None:
        self.beat_at_ms = self.simulation.now_ms
        # Everything again where the last answer was not heard: it may have held an assignment.
        is_full = not self.epoch or self.heard != self.sent
        names = frozenset([TOPIC]) if is_full else None
        self.sent += 1
        request = ShareHeartbeatRequest(
            self.group_id, self.member_id, self.epoch, subscribed_topic_names=names
        )
        life, number = (self.lives, self.epoch), self.sent
        sent_ms = self.simulation.now_ms
        self.simulation.beat(
            request, lambda outcome: self._on_answer(life, number, sent_ms, outcome)
        )

    def _on_answer(
        self, life: object, number: int, sent_ms: int, outcome: ShareHeartbeatResult | BrokerError
    ) -> None:
        if self.is_gone or life != (self.lives, self.epoch):
            return
        if isinstance(outcome, BrokerError):
            if outcome.code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.GROUP_ID_NOT_FOUND,
            ):
                self.simulation.check_refused(self, outcome)
                self.rejoin()
            return
        self.epoch, self.heard = outcome.member_epoch, number
        self.known_at_ms = sent_ms
        if outcome.assignment is not None:
            self.assigned = outcome.assignment.get(self.simulation.topic_id, frozenset())
            self.simulation.check_assigned(self)

    def vanish(self) -> None:
        self.is_gone = True
        for broker in self.simulation.brokers:
            broker.end_session(self)

    def leave(self) -> None:
        request = ShareHeartbeatRequest(self.group_id, self.member_id, -1)
        self.simulation.beat(request, lambda _outcome: None)
        self.vanish()


class Reset:
    """What an operator has asked for: until it is through, states may begin anew."""

    def __init__(self, keys: list[SharePartitionKey], route: Route) -> None:
        self.keys = keys
        self.route = route
        self.is_answered = False

    def is_through(self, states: StateCoordinator) -> bool:
        is_known = self.is_answered or self.route.is_dead
        return is_known and not any(states.is_busy(each) for each in self.keys)
