"""`Membership`: whether this broker lives for the others, and under which epoch.

It lives by an ephemeral node, which ends with its session. The number of the transaction that made
the node is the broker's epoch.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from odradek.clock import Clock
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.changes import difference
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import BrokerRegistration, MetadataDelta, MetadataImage
from odradek.metadata.store import OnDone
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import (
    LOST,
    Create,
    Created,
    Delete,
    Failure,
    Node,
    Operation,
    Refusal,
    ZooKeeperClient,
)
from odradek.metadata.zookeeper.reads import gather
from odradek.model import NO_LEADER, EndPoint

logger = logging.getLogger(__name__)

UNREGISTERED: Final = -1


class Membership:
    """That of broker `broker_id`. `session_number` rises with every session that was lost; after
    `close` there is none to come. `is_missing_logs` is asked at each registration."""

    def __init__(
        self,
        broker_id: int,
        zookeeper: ZooKeeperClient,
        clock: Clock,
        view: BrokerView,
        is_missing_logs: Callable[[], bool],
    ) -> None:
        self.broker_id: Final = broker_id
        self.epoch = UNREGISTERED
        self.session_number = 0
        self.is_registering = False
        self.is_closed = False
        self._zookeeper: Final = zookeeper
        self._clock: Final = clock
        self._view: Final = view
        self._is_missing_logs: Final = is_missing_logs

    @property
    def is_live(self) -> bool:
        """True if the broker has a session, in which the others can see it."""
        return not self.is_closed and self.epoch != UNREGISTERED

    def register(
        self, endpoints: Sequence[EndPoint], rack: str | None, on_done: OnDone[BrokerRegistration]
    ) -> None:
        """Begins a session; the znodes of our earlier one are removed."""
        path = znodes.broker_path(self.broker_id)
        is_missing_logs = self._is_missing_logs()
        broker = BrokerRegistration(
            self.broker_id, tuple(endpoints), rack, UNREGISTERED, is_missing_logs
        )

        def on_end(outcome: BrokerRegistration | BrokerError) -> None:
            self.is_registering = False
            on_done(outcome)

        def on_left_overs(nodes: Mapping[str, Node | None]) -> None:
            session_id = self._zookeeper.session_id
            left = [p for p, node in nodes.items() if node is not None and node.owner == session_id]
            data = znodes.broker_json(broker, self._clock.wall_ms())
            operations: list[Operation] = [Delete(each) for each in left]
            operations.append(Create(path, data, ephemeral=True))
            self._zookeeper.commit(operations, on_committed)

        def on_committed(outcome: Created | Refusal) -> None:
            if not isinstance(outcome, Refusal):
                self._zookeeper.get(path, on_node)
            elif outcome.failure is Failure.NODE_EXISTS:
                on_end(BrokerError(ErrorCode.DUPLICATE_BROKER_REGISTRATION))
            elif outcome.failure is Failure.NO_NODE:
                self.register(endpoints, rack, on_done)
            else:
                on_end(LOST)

        def on_node(node: Node | Failure | None) -> None:
            if self.is_closed or not isinstance(node, Node):
                on_end(LOST)
                return
            registered = broker._replace(epoch=node.created)
            self.epoch = node.created
            logger.info("Broker %d is registered under epoch %d", self.broker_id, node.created)
            self._view.publish(partial(_with_own, broker=registered), lambda: on_end(registered))

        # ControlRequests may come as soon as the controller sees the node, before this broker does.
        self.is_registering = True
        paths = [path, znodes.CONTROLLER]
        gather(self._zookeeper, paths, on_left_overs, on_lost=lambda: on_end(LOST))

    def end_session(self) -> bool:
        """The session is over; says whether this broker was registered in it."""
        was_registered = self.epoch != UNREGISTERED
        self.epoch = UNREGISTERED
        self.session_number += 1
        return was_registered

    def leave(self) -> None:
        """Publishes that this broker is not there, and leads nothing."""
        self._view.publish(partial(_without_own, broker_id=self.broker_id))


def _with_own(image: MetadataImage, broker: BrokerRegistration) -> MetadataDelta:
    return difference(
        image, replace(image, brokers=MappingProxyType({**image.brokers, broker.id: broker}))
    )


def _without_own(image: MetadataImage, broker_id: int) -> MetadataDelta:
    """Without its session a broker leads nothing; it follows again when it is registered again."""
    led = [
        topic.with_partitions(
            each._replace(leader=NO_LEADER) for each in topic.partitions if each.leader == broker_id
        )
        for topic in image.topics.values()
        if any(each.leader == broker_id for each in topic.partitions)
    ]
    others = {broker.id: broker for broker in image.brokers.values() if broker.id != broker_id}
    after = replace(image, brokers=MappingProxyType(others)).with_topics(led)
    return difference(image, after)
