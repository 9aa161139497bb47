"""`GroupShard`: the groups and offsets of one partition of `__consumer_offsets`.

Holds the parts and passes each record to its part.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from odradek.background import run_each
from odradek.coordinator.classic.groups import ClassicGroups
from odradek.coordinator.classic.protocol import ClassicProtocol
from odradek.coordinator.consumer.classic_members import ClassicMembers
from odradek.coordinator.consumer.consumer_groups import ConsumerGroups
from odradek.coordinator.consumer.replay import ConsumerGroupReplay
from odradek.coordinator.group import GroupRegistry, GroupType
from odradek.coordinator.offsets.commands import OffsetCommands
from odradek.coordinator.offsets.store import OffsetStore
from odradek.coordinator.offsets.upkeep import OffsetUpkeep
from odradek.coordinator.records.group_records import GroupMetadataKey
from odradek.coordinator.records.offset_records import OffsetAndMetadata, OffsetCommitKey
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.runtime.shard import CoordinatorShard
from odradek.coordinator.services import ShardServices
from odradek.coordinator.share_groups.classic_members import NoClassicMembers
from odradek.coordinator.share_groups.replay import ShareGroupReplay
from odradek.coordinator.share_groups.share_groups import ShareGroups
from odradek.model import TransactionResult

Replay = Callable[[Any, Any], None]


class GroupShard(CoordinatorShard):
    """Groups of all kinds, and offsets. Called on the broker's loop only."""

    def __init__(self, partition: int, services: ShardServices) -> None:
        self.partition = partition
        self.services = services
        self.registry = GroupRegistry()
        self.offset_store = OffsetStore()
        self.classic = ClassicGroups(self.registry, services)
        self.consumer = ConsumerGroups(self.registry, services)
        self.share = ShareGroups(self.registry, services)
        self._classic_protocols: dict[GroupType, ClassicProtocol] = {
            GroupType.CLASSIC: self.classic,
            GroupType.CONSUMER: ClassicMembers(self.consumer, self.classic),
            GroupType.SHARE: NoClassicMembers(),
        }
        self.offsets = OffsetCommands(self.offset_store, self.registry, services.config)
        self.upkeep = OffsetUpkeep(self.offset_store, self.registry, services.config)
        self._replays: dict[type, Replay] = {
            GroupMetadataKey: self.classic.replay,
            **ShareGroupReplay(self.registry, self.share.on_gone).methods(),
            **ConsumerGroupReplay(self.registry, self.consumer.on_member_replayed).methods(),
        }

    def classic_protocol(self, group_id: str) -> ClassicProtocol:
        """The classic protocol of a group, chosen by its kind. A missing group is created with the
        protocol its first member uses."""
        group = self.registry.get(group_id)
        return self._classic_protocols[GroupType.CLASSIC if group is None else group.type]

    def on_arrival(self, group_id: str, member_id: str) -> None:
        """A member's request has arrived, and others of the group come first: it lives."""
        self.classic.on_arrival(group_id, member_id)
        self.consumer.on_arrival(group_id, member_id)

    def replay(self, record: CoordinatorRecord, producer_id: int) -> None:
        """See `CoordinatorShard`; only offsets may belong to a transaction."""
        key = record.key
        if isinstance(key, OffsetCommitKey):
            self._replay_offset(key, cast(OffsetAndMetadata | None, record.value), producer_id)
        else:
            self._replays[type(key)](key, record.value)

    def _replay_offset(
        self, key: OffsetCommitKey, value: OffsetAndMetadata | None, producer_id: int
    ) -> None:
        """Replays an offset; makes its group if missing, so that the offset can be found, listed
        and expired."""
        self.offset_store.replay(key, value, producer_id)
        if value is not None:
            self.classic.ensure_offset_group(key.group_id)

    def replay_end_transaction_marker(
        self,
        producer_id: int,
        producer_epoch: int,  # noqa: ARG002 - the log lets no older epoch's marker in
        result: TransactionResult,
    ) -> None:
        """See `CoordinatorShard`."""
        self.offset_store.complete_transaction(producer_id, result)

    def on_transactional_append(
        self, producer_id: int, records: Sequence[CoordinatorRecord]
    ) -> None:
        """See `CoordinatorShard`."""
        for record in records:
            self.offset_store.pending.on_append(producer_id, cast(OffsetCommitKey, record.key))

    def on_transactional_failure(
        self, producer_id: int, records: Sequence[CoordinatorRecord]
    ) -> None:
        """See `CoordinatorShard`."""
        for record in records:
            key = cast(OffsetCommitKey, record.key)
            self.offset_store.pending.on_append_failed(producer_id, key)

    def on_loaded(self) -> None:
        """See `CoordinatorShard`."""
        for group_id in self.offset_store.group_ids():
            self.classic.ensure_offset_group(group_id)
        self.classic.on_loaded()
        self.consumer.on_loaded()
        self.share.on_loaded()

    def on_unloaded(self) -> None:
        """See `CoordinatorShard`."""
        groups = [group.on_unloaded for group in self.registry]
        run_each([*groups, self.consumer.on_unloaded, self.share.on_unloaded])
