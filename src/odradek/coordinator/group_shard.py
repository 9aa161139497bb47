"""`GroupShard`: the groups and offsets of one partition of `__consumer_offsets`.

Holds the parts and hands each record to the one that it concerns.
"""

from collections.abc import Callable
from typing import Any

from odradek.coordinator.classic.groups import ClassicGroups
from odradek.coordinator.consumer.classic_members import ClassicMembers
from odradek.coordinator.consumer.consumer_groups import Command, ConsumerGroups, Execute
from odradek.coordinator.consumer.replay import ConsumerGroupReplay
from odradek.coordinator.group import GroupRegistry
from odradek.coordinator.offsets.offsets import OffsetCommands, OffsetStore
from odradek.coordinator.records.group_records import GroupMetadataKey
from odradek.coordinator.records.offset_records import OffsetAndMetadata, OffsetCommitKey
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.runtime.runtime import CoordinatorShard
from odradek.coordinator.services import ShardServices

Replay = Callable[[Any, Any], None]


class GroupShard(CoordinatorShard):
    """Groups of both kinds, and offsets. Called on the broker's loop only.

    `execute` runs what a time-out demands of a group, behind the group's other commands; by
    default at once, which is right where appends are committed at once.
    """

    def __init__(
        self, partition: int, services: ShardServices, execute: Execute | None = None
    ) -> None:
        self.partition = partition
        self.services = services
        self.registry = GroupRegistry()
        self.offset_store = OffsetStore()
        self.classic = ClassicGroups(self.registry, services)
        self.consumer = ConsumerGroups(self.registry, services, execute or self._execute)
        self.classic_members = ClassicMembers(self.consumer)
        self.offsets = OffsetCommands(self.offset_store, self.registry, services.config)
        self._replays: dict[type, Replay] = {
            OffsetCommitKey: self._replay_offset,
            GroupMetadataKey: self.classic.replay,
            **ConsumerGroupReplay(self.registry).methods(),
        }

    def replay(self, record: CoordinatorRecord) -> None:
        """See `CoordinatorShard`."""
        self._replays[type(record.key)](record.key, record.value)

    def _replay_offset(self, key: OffsetCommitKey, value: OffsetAndMetadata | None) -> None:
        """An offset needs a group, so that it can be found, listed and expire."""
        self.offset_store.replay(key, value)
        if value is not None:
            self.classic.ensure_offset_group(key.group_id)

    def _execute(self, _group_id: str, command: Command) -> None:
        records = command().records
        if records:
            self.services.append(records, lambda _error: None)

    def on_loaded(self) -> None:
        """See `CoordinatorShard`."""
        self.classic.on_loaded()
        self.consumer.on_loaded()

    def on_unloaded(self) -> None:
        """See `CoordinatorShard`."""
        for group in self.registry:
            group.on_unloaded()
        self.consumer.on_unloaded()
