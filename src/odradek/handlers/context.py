"""What handlers may reach: the floors below, narrowed to one record that never changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.handlers.api import Api
from odradek.handlers.parked_fetches import ParkedFetches
from odradek.handlers.request import RequestObserver, RequestQuotas

if TYPE_CHECKING:
    from odradek.clock import Clock
    from odradek.config.broker import BrokerConfig
    from odradek.controller.controller import Controller
    from odradek.controller.producer_ids import ProducerIdManager
    from odradek.coordinator.group_coordinator import GroupCoordinator
    from odradek.coordinator.transactions.markers import MarkerWriter
    from odradek.coordinator.transactions.transaction_coordinator import TransactionCoordinator
    from odradek.coordinator.transactions.writes import TransactionWrites
    from odradek.handlers.before_append import BeforeAppend
    from odradek.handlers.fetch_sessions import FetchSessionCache
    from odradek.handlers.telemetry.client_metrics import ClientMetricsManager
    from odradek.metadata.cache import MetadataCache
    from odradek.metadata.control import ControlledBroker
    from odradek.replication.append import AppendRequest
    from odradek.replication.replica_manager import ReplicaManager
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
    # Asks whichever broker coordinates a transactional id; writes into partitions led here.
    transaction_writes: "TransactionWrites"
    markers: "MarkerWriter"
    producer_ids: "ProducerIdManager"
    fetch_sessions: "FetchSessionCache"
    client_metrics: "ClientMetricsManager"
    log_manager: "LogManager"
    observer: RequestObserver | None = None
    # What a controller commands, where one commands over the wire.
    controlled: "ControlledBroker | None" = None
    quotas: RequestQuotas | None = None
    # Steps between a produce request and its append, in their order.
    before_append: "tuple[BeforeAppend, ...]" = ()
    # Produce requests of the socket read that is being handled, in their order. Their frames are
    # theirs until its end, where all are appended with one write for each partition.
    gathered: "list[AppendRequest]" = field(default_factory=list)
    parked_fetches: ParkedFetches = field(default_factory=ParkedFetches)

    def append_gathered(self) -> None:
        """Appends and answers what is gathered.

        An answer may let a connection go on and gather more; that belongs to its own read.
        """
        gathered = self.gathered
        if gathered:
            requests = tuple(gathered)
            gathered.clear()
            self.replicas.append_records(requests)
