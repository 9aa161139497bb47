"""Joins the group coordinator to this broker, with the expiry of offsets."""

from collections.abc import Callable, Mapping
from uuid import UUID

from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.coordinator.classic.delayed import MemberKey
from odradek.coordinator.group_coordinator import GroupCoordinator
from odradek.coordinator.group_shard import GroupShard
from odradek.coordinator.modern.deadlines import SessionKey
from odradek.coordinator.modern.topic_metadata import TopicMetadata
from odradek.coordinator.records.record_codec import GroupRecordCodec
from odradek.coordinator.runtime.settings import LOAD_SLICE_BYTES, RuntimeSettings
from odradek.coordinator.runtime.shard import Append, Execute
from odradek.coordinator.services import GroupServices, ShardServices
from odradek.coordinator.share_groups.share_group_coordinator import ShareGroupCoordinator
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import MetadataDelta
from odradek.model import GROUP_METADATA_TOPIC
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.share.persister import SharePersister
from odradek.server.coordination.base import Coordination
from odradek.timer import Timer


class GroupCoordination(Coordination[GroupShard]):
    """The group coordinator of one broker, with its purgatories and its upkeep."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timer: Timer,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        new_uuid: Callable[[], UUID],
        is_present: Callable[[str, str], bool],
        share_states: SharePersister,
    ) -> None:
        super().__init__(
            GROUP_METADATA_TOPIC,
            config,
            clock,
            timer,
            replicas,
            metadata,
            GroupRecordCodec(),
            self._make_shard,
            _runtime_settings(config),
            "GroupWrite",
        )
        self._services = GroupServices(
            config,
            clock,
            self._purgatory("Rebalance"),
            self._purgatory("Heartbeat"),
            new_uuid,
            TopicMetadata(metadata),
            is_present,
        )
        self.coordinator = GroupCoordinator(self._runtime, config, clock)
        metadata.on_published(self._on_published)
        self.share_groups = ShareGroupCoordinator(self._runtime, share_states)
        self._repeat(
            lambda: config["offsets.retention.check.interval.ms"], self.coordinator.expire_offsets
        )

    def _make_shard(
        self, partition: int, _leader_epoch: int, append: Append, execute: Execute
    ) -> GroupShard:
        return GroupShard(partition, ShardServices(self._services, append, execute))

    def expire_session(self, group_id: str, member_id: str) -> None:
        """Ends a member's session now, as if its time were over."""
        for key in (MemberKey(group_id, member_id), SessionKey(group_id, member_id)):
            self._services.heartbeats.expire(key)

    def _on_published(self, delta: MetadataDelta) -> None:
        """Forgets the offsets of deleted topics. A topic that is only missing from the metadata may
        still exist, so its offsets stay."""
        removed = {topic.topic_id: topic.name for topic in delta.topics_removed}
        if removed and delta.are_deleted and GROUP_METADATA_TOPIC not in removed.values():
            # After the change is applied: an append in the middle of it would be too early.
            self._timer.call_threadsafe(lambda: self._on_topics_deleted(removed))

    def _on_topics_deleted(self, removed: Mapping[UUID, str]) -> None:
        known = self._metadata.image.topic_by_id
        gone = frozenset(name for topic_id, name in removed.items() if known(topic_id) is None)
        if gone:
            self.coordinator.on_topics_deleted(gone)


def _runtime_settings(config: BrokerConfig) -> RuntimeSettings:
    return RuntimeSettings(
        config["offsets.topic.compression.codec"],
        min(config["offsets.load.buffer.size"], LOAD_SLICE_BYTES),
        config["offsets.commit.timeout.ms"],
    )
