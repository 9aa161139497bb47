"""What groups need of the world: time, waiting places, settings, ids, and the log."""

from collections.abc import Callable
from uuid import UUID

from odradek.clock import Clock
from odradek.config.broker import BrokerConfig
from odradek.coordinator.runtime import Append
from odradek.purgatory import DelayedOperationPurgatory


class GroupServices:
    """One for all groups of a broker.

    `rebalances` holds joins and syncs, `heartbeats` the members' sessions; `new_uuid` makes
    the ids of members.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        rebalances: DelayedOperationPurgatory,
        heartbeats: DelayedOperationPurgatory,
        new_uuid: Callable[[], UUID],
    ) -> None:
        self.config = config
        self.clock = clock
        self.rebalances = rebalances
        self.heartbeats = heartbeats
        self.new_uuid = new_uuid


class ShardServices:
    """The same for the groups of one partition, with the way to its log."""

    def __init__(self, services: GroupServices, append: Append) -> None:
        self.config = services.config
        self.clock = services.clock
        self.rebalances = services.rebalances
        self.heartbeats = services.heartbeats
        self.new_uuid = services.new_uuid
        self.append = append
