"""What handlers may reach: the floors below, narrowed to one record that never changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.handlers.api import Api
from odradek.handlers.parked_fetches import ParkedFetches
from odradek.handlers.produce_batch import ProduceBatch
from odradek.handlers.request import RequestObserver

if TYPE_CHECKING:
    from odradek.clock import Clock
    from odradek.config.broker import BrokerConfig
    from odradek.controller.controller import Controller
    from odradek.controller.producer_ids import ProducerIdManager
    from odradek.coordinator.group_coordinator import GroupCoordinator
    from odradek.handlers.fetch_sessions import FetchSessionCache
    from odradek.metadata.cache import MetadataCache
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
    producer_ids: "ProducerIdManager"
    fetch_sessions: "FetchSessionCache"
    log_manager: "LogManager"
    observer: RequestObserver | None = None
    # What hot handlers keep between a request and its answer.
    produce_batch: ProduceBatch = field(default_factory=ProduceBatch)
    parked_fetches: ParkedFetches = field(default_factory=ParkedFetches)
