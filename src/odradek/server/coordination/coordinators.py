"""The coordinators of one broker, with what they decide about: share partitions and schedules.

They are built in the order in which each needs the others, and follow the metadata in that order,
after the replicas: a group asks for the states of share partitions, a transaction writes the
offsets of groups.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from odradek.background import run_each
from odradek.client.core.producing.partitioner import partition_for_key
from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.config.features import TRANSACTION_VERSION
from odradek.controller import Controller, ProducerIdManager
from odradek.metadata.cache import MetadataCache
from odradek.metadata.store import ListenerStage, MetadataStore
from odradek.model import SHARE_GROUP_STATE_TOPIC
from odradek.purgatory import DelayedOperationPurgatory
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.schedule.manager import ScheduleManager
from odradek.replication.schedule.services import ReleaseServices
from odradek.replication.share.manager import SharePartitionManager
from odradek.server.coordination.groups import GroupCoordination
from odradek.server.coordination.release_routing import RoutedReleases
from odradek.server.coordination.share_states import ShareCoordination
from odradek.server.coordination.transactions import TransactionCoordination
from odradek.server.peers.channels import PeerChannels
from odradek.timer import Timer

TOPIC_CHANGE_TIMEOUT_MS: Final = 30_000


class Coordinators:
    """Groups, transactions, share groups and schedules of the partitions that this broker leads."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timer: Timer,
        metadata: MetadataCache,
        store: MetadataStore,
        controller: Controller,
        producer_ids: ProducerIdManager,
        replicas: ReplicaManager,
        peers: PeerChannels,
        new_uuid: Callable[[], UUID],
        is_present: Callable[[str, str], bool],
    ) -> None:
        """`is_present` says whether the connection of a group's member is still open."""
        self._controller = controller
        self.share_states: Final = ShareCoordination(
            config,
            clock,
            timer,
            replicas,
            metadata,
            peers.to_replicate,
            self._create_share_state_topic,
        )
        self.share_partitions: Final = SharePartitionManager(
            config, clock, timer, replicas, self.share_states.states
        )
        self._releases: Final = RoutedReleases(
            config, timer, replicas, metadata, peers.to_replicate
        )
        self.schedules: Final = ScheduleManager(
            ReleaseServices(
                clock, timer, replicas, self._releases, producer_ids.next_id, partition_for_key
            )
        )
        self.groups: Final = GroupCoordination(
            config,
            clock,
            timer,
            replicas,
            metadata,
            new_uuid,
            is_present,
            self.share_states.states,
        )
        self.transactions: Final = TransactionCoordination(
            config,
            clock,
            timer,
            replicas,
            metadata,
            self.groups.coordinator,
            producer_ids.next_id,
            peers.to_replicate,
            lambda: metadata.image.feature_level(TRANSACTION_VERSION),
        )
        for follow in (
            self.share_states.apply_delta,
            self.share_partitions.apply_delta,
            self.schedules.apply_delta,
            self.groups.apply_delta,
            self.transactions.apply_delta,
        ):
            store.subscribe(ListenerStage.COORDINATORS, follow)

    @property
    def purgatories(self) -> tuple[DelayedOperationPurgatory, ...]:
        """The purgatories of members and of ends of transactions."""
        return (
            *self.groups.purgatories,
            *self.transactions.purgatories,
            *self.share_states.purgatories,
        )

    def shutdown(self) -> None:
        """Answers or drops what waits, and coordinates nothing any more."""
        run_each(
            [
                self.transactions.shutdown,
                self.schedules.shutdown,
                self.share_partitions.shutdown,
                self.share_states.shutdown,
                self.groups.shutdown,
                self._releases.close,
            ]
        )

    def _create_share_state_topic(self, on_done: Callable[[], None]) -> None:
        self._controller.auto_create_topics(
            [SHARE_GROUP_STATE_TOPIC],
            TOPIC_CHANGE_TIMEOUT_MS,
            lambda _results: on_done(),  # the metadata tells whether it is there
        )
