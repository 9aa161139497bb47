"""Callers of the coordinator of share groups, in their simulation: members, and operators."""

from typing import TYPE_CHECKING

from tests.simulation.share.share_brokers import LOST, TOPIC, GroupWorld, StateCoordinator

from odradek.coordinator.share_groups.requests import ShareHeartbeatRequest, ShareHeartbeatResult
from odradek.errors import BrokerError, ErrorCode
from odradek.replication.share.persister import SharePartitionKey

if TYPE_CHECKING:
    from tests.simulation.share.sharing import Simulation

HEARTBEAT_MS = 5_000


class ShareMember:
    """A consumer of a share group, as a library implements it, but less patient."""

    def __init__(self, simulation: "Simulation", name: str, group_id: str) -> None:
        self.simulation = simulation
        self.name = name
        self.group_id = group_id
        self.lives = self.joins = 0
        self.sent = self.heard = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        self.close()
        self.lives += 1
        self.member_id = f"{self.name}-{self.lives}"
        self.rejoin()
        self.is_gone = False

    def rejoin(self) -> None:
        self.joins += 1
        self.epoch = 0
        self.assigned: frozenset[int] = frozenset()
        self.known_at_ms: int | None = None
        self.beat_at_ms = -HEARTBEAT_MS

    def step(self) -> None:
        simulation = self.simulation
        is_due = simulation.now_ms >= self.beat_at_ms + (HEARTBEAT_MS if self.epoch else 1_000)
        if is_due or simulation.chance(0.05):
            self.beat()
            if simulation.chance(0.1):
                # It has given the first one up. A request never comes twice as it is: of the two
                # answers the later would not say what the earlier has said.
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
        # A group that was deleted counts its epochs anew: a late answer may be of the same one.
        life, number = (self.joins, self.epoch), self.sent
        sent_ms = self.simulation.now_ms
        self.simulation.beat(
            request, lambda outcome: self._on_answer(life, number, sent_ms, outcome)
        )

    def _on_answer(
        self, life: object, number: int, sent_ms: int, outcome: ShareHeartbeatResult | BrokerError
    ) -> None:
        if self.is_gone or life != (self.joins, self.epoch):
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
        """Its connections may stay, as where its process hangs: leaders learn nothing then."""
        self.is_gone = True
        if not self.simulation.chance(0.5):
            self.close()

    def close(self) -> None:
        for broker in self.simulation.brokers:
            broker.end_session(self)

    def leave(self) -> None:
        request = ShareHeartbeatRequest(self.group_id, self.member_id, -1)
        self.simulation.beat(request, lambda _outcome: None)
        self.vanish()


class Reset:
    """An operator's request for a group: until it is done, states may begin anew."""

    def __init__(self, keys: list[SharePartitionKey], world: GroupWorld) -> None:
        self.keys = keys
        self.group_id = keys[0].group_id
        self.world = world
        self.route = world.route
        self.is_answered = False
        self.may_be_written = False

    def on_answer(self, outcome: object) -> None:
        self.is_answered = True
        # As where its time has passed: the log of the group may take it all the same.
        self.may_be_written = isinstance(outcome, BrokerError) and outcome.code is LOST.code

    def is_through(self, states: StateCoordinator) -> bool:
        if not self.route.is_dead:
            is_busy = self.may_be_written and self.world.runtime.is_busy(self.group_id)
            if is_busy or not self.is_answered:
                return False
        return not any(states.is_busy(each) for each in self.keys)
