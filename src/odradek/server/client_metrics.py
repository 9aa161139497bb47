"""Builds the receiver of clients' own metrics (KIP-714) from a broker's settings."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.background import Background
from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.handlers.api import Api
from odradek.handlers.table import all_told
from odradek.handlers.telemetry.client_metrics import ClientMetricsManager
from odradek.metadata.cache import MetadataCache

if TYPE_CHECKING:
    from odradek.handlers.telemetry.pushed_metrics import PushedMetrics


def client_metrics_manager(
    config: BrokerConfig,
    metadata: MetadataCache,
    clock: Clock,
    background: Background,
    new_uuid: Callable[[], UUID],
) -> ClientMetricsManager:
    """Makes the follower of the subscriptions, with a receiver where the settings ask for one."""
    max_bytes = config["telemetry.max.bytes"]
    receiver = _receiver(clock) if config["telemetry.receiver"] else None
    return ClientMetricsManager(metadata, clock, max_bytes, new_uuid, background, receiver)


def _receiver(clock: Clock) -> "PushedMetrics":
    from odradek.handlers.telemetry.pushed_metrics import PushedMetrics

    return PushedMetrics(clock)


def with_telemetry(apis: Mapping[int, Api], config: BrokerConfig) -> Mapping[int, Api]:
    """The table of advertised APIs, with those of telemetry if there is a receiver."""
    return all_told(apis) if config["telemetry.receiver"] else apis
