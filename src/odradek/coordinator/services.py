"""Services that groups need: time, purgatories, settings, ids, and the log."""

from collections.abc import Callable
from uuid import UUID

from odradek.clock import Clock
from odradek.config.broker import BrokerConfig
from odradek.coordinator.modern.topic_metadata import TopicMetadata
from odradek.coordinator.runtime.shard import Append, Execute
from odradek.metadata.cache import MetadataCache
from odradek.purgatory import DelayedOperationPurgatory


def _nobody(_group_id: str, _member_id: str) -> bool:
    """Takes no silent member for present."""
    return False


class GroupServices:
    """One for all groups of a broker.

    `rebalances` holds joins and syncs, `heartbeats` the members' sessions; `new_uuid` makes
    the ids of members; `topics` are those that groups may read, by default none.
    `is_present(group_id, member_id)` says whether the client of a silent member is connected all
    the same; it is False if the broker's clock goes as the clients' clocks do.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        rebalances: DelayedOperationPurgatory,
        heartbeats: DelayedOperationPurgatory,
        new_uuid: Callable[[], UUID],
        topics: TopicMetadata | None = None,
        is_present: Callable[[str, str], bool] = _nobody,
    ) -> None:
        self.config = config
        self.clock = clock
        self.rebalances = rebalances
        self.heartbeats = heartbeats
        self.new_uuid = new_uuid
        self.topics = TopicMetadata(MetadataCache()) if topics is None else topics
        self.is_present = is_present


class ShardServices:
    """The same for the groups of one partition, with the ways to its log: `append` writes records,
    `execute` runs a command after the group's other ones."""

    def __init__(self, services: GroupServices, append: Append, execute: Execute) -> None:
        self.config = services.config
        self.clock = services.clock
        self.rebalances = services.rebalances
        self.heartbeats = services.heartbeats
        self.new_uuid = services.new_uuid
        self.topics = services.topics
        self.is_present = services.is_present
        self.append = append
        self.execute = execute
