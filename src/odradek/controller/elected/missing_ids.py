"""`MissingIds`: the ids of topics whose nodes have none: Kafka before 2.8 wrote none, even over an
existing one. A broker with a log of such a topic may know its id, and writes it back when it is
told everything but this topic."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from odradek.controller.elected.broker_channel import BrokerChannel
from odradek.controller.elected.context import ControllerContext
from odradek.metadata.image import BrokerRegistration, PartitionImage
from odradek.metadata.zookeeper.client import Node
from odradek.metadata.zookeeper.znodes import TopicNode

logger = logging.getLogger(__name__)


class AskedNode(NamedTuple):
    """A topic's node without an id that brokers are asked about, and those that have been told
    everything else since it was read: if they know the id, they have tried to write it back."""

    node: Node
    told: frozenset[int] = frozenset()


class MissingIds:
    """Belongs to the controller of `context`. `live` gives the live brokers, `new_id` ids for
    topics, `ids_in_logs` those that topics have in the logs of this broker."""

    def __init__(
        self,
        context: ControllerContext,
        channels: Mapping[int, BrokerChannel],
        live: Callable[[], Mapping[int, BrokerRegistration]],
        new_id: Callable[[], UUID],
        ids_in_logs: Callable[[], Mapping[str, UUID]],
    ) -> None:
        self.new_id: Final = new_id
        self._context: Final = context
        self._channels: Final = channels
        self._live: Final = live
        self._ids_in_logs: Final = ids_in_logs
        self._asked: Final[dict[str, AskedNode]] = {}

    def asked(self) -> dict[str, AskedNode]:
        """The topics of which only others may know the id, as of now."""
        return dict(self._asked)

    def on_told(self, broker_id: int) -> None:
        """A broker has written back the ids that it knows of topics that it was not told of."""
        for name, asked in self._asked.items():
            self._asked[name] = asked._replace(told=asked.told | {broker_id})

    def own_id(self, name: str, topic: TopicNode, led: Sequence[PartitionImage]) -> UUID | None:
        """The id that a topic with the states `led` has in the logs of this broker, if this is one
        of its replicas or in sync."""
        is_mine = self._context.broker_id in _owners(topic, led)
        return self._ids_in_logs().get(name) if is_mine else None

    def is_unknown(
        self, topic: TopicNode, led: Sequence[PartitionImage], told: frozenset[int]
    ) -> bool:
        """Whether nobody knows the id of a topic with the states `led`. Brokers may know it that
        are away and in sync, or have not been `told` since its node was read. A broker that is
        missing logs may have one of the topic, this broker too."""
        live = self._live()
        missing = {each.id for each in live.values() if each.is_missing_logs}
        is_in_sync = not led or any(replica in live for each in led for replica in each.isr)
        has_told = live.keys() <= {*told, self._context.broker_id}
        return is_in_sync and has_told and missing.isdisjoint(_owners(topic, led))

    def ask(self, name: str, node: Node) -> None:
        """Tells all brokers everything but the topic. A node that somebody has written again has
        refused the id of those that were told before."""
        asked = self._asked.get(name)
        if asked is None or asked.node != node:
            logger.warning("topic %s has no id; brokers that may know it are awaited", name)
            self._asked[name] = AskedNode(node)
            for channel in self._channels.values():
                channel.tell_all()

    def settle(self, name: str) -> None:
        """The topic has an id."""
        self._asked.pop(name, None)


def _owners(topic: TopicNode, led: Sequence[PartitionImage]) -> set[int]:
    """The replicas of a topic's node, and those that are in sync by its states."""
    named = [*(each.replicas for each in topic.assignments), *(each.isr for each in led)]
    return {replica for each in named for replica in each}
