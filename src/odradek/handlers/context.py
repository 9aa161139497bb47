"""The services handlers may reach: the floors below, narrowed to one record that never changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.background import Background, InlineBackground
from odradek.handlers.api import Api
from odradek.handlers.records.parked_fetches import ParkedFetches
from odradek.handlers.replicas.control_connections import ControlConnections
from odradek.handlers.request import RequestObserver, RequestQuotas

if TYPE_CHECKING:
    from odradek.clock import Clock
    from odradek.config.broker import BrokerConfig
    from odradek.controller.acl_control import AclControl
    from odradek.controller.controller import Controller
    from odradek.controller.producer_ids import ProducerIdManager
    from odradek.coordinator.group_coordinator import GroupCoordinator
    from odradek.coordinator.share.share_coordinator import ShareCoordinator
    from odradek.coordinator.share_groups.share_group_coordinator import ShareGroupCoordinator
    from odradek.coordinator.transactions.markers import MarkerWriter
    from odradek.coordinator.transactions.transaction_coordinator import TransactionCoordinator
    from odradek.handlers.records.before_append import BeforeAppend
    from odradek.handlers.records.fetch_sessions import FetchSessionCache
    from odradek.handlers.records.gathered_appends import GatheredAppends
    from odradek.handlers.share.share_sessions import ShareSessionCache
    from odradek.handlers.telemetry.client_metrics import ClientMetricsManager
    from odradek.handlers.transactions.transaction_verification import TransactionVerifier
    from odradek.metadata.cache import MetadataCache
    from odradek.metadata.control import ControlledBroker
    from odradek.replication.replica_manager import ReplicaManager
    from odradek.replication.share.manager import SharePartitionManager
    from odradek.security.delegation_tokens import DelegationTokens
    from odradek.storage.manager.log_manager import LogManager


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """Built once by the server. `apis` is the table that routes and that ApiVersions shows."""

    broker_id: int
    apis: Mapping[int, Api]
    config: "BrokerConfig"
    clock: "Clock"
    metadata: "MetadataCache"
    controller: "Controller"
    replicas: "ReplicaManager"
    groups: "GroupCoordinator"
    transactions: "TransactionCoordinator"
    # Asks the coordinator of a transactional id; writes into partitions led here.
    verifier: "TransactionVerifier"
    markers: "MarkerWriter"
    share_states: "ShareCoordinator"
    share_groups: "ShareGroupCoordinator"
    share_partitions: "SharePartitionManager"
    share_sessions: "ShareSessionCache"
    producer_ids: "ProducerIdManager"
    fetch_sessions: "FetchSessionCache"
    client_metrics: "ClientMetricsManager"
    gathered: "GatheredAppends"
    log_manager: "LogManager"
    observer: RequestObserver | None = None
    # Carries out a controller's requests; only in a ZooKeeper cluster.
    controlled: "ControlledBroker | None" = None
    control_connections: ControlConnections = field(default_factory=ControlConnections)
    quotas: RequestQuotas | None = None
    # If there is an authorizer.
    acls: "AclControl | None" = None
    # If there is a key for them.
    tokens: "DelegationTokens | None" = None
    # Steps between a produce request and its append, in their order.
    before_append: "tuple[BeforeAppend, ...]" = ()
    parked_fetches: ParkedFetches = field(default_factory=ParkedFetches)
    background: Background = field(default_factory=InlineBackground)
