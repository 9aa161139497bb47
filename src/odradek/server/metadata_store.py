"""Where the metadata of a broker is kept: in its own directory, or in ZooKeeper.

What else depends on that comes along: the APIs that are served, what a controller commands, how
the broker hands over before it stops.
"""

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from odradek.background import Background
from odradek.config import BrokerConfig
from odradek.handlers.api import Api
from odradek.handlers.table import API_TABLE, ZOOKEEPER_API_TABLE
from odradek.metadata.cache import MetadataCache
from odradek.metadata.control import ControlledBroker, ControlPlane
from odradek.metadata.embedded import EmbeddedMetadataStore, SharedMetadata
from odradek.metadata.embedded.journal import Journal
from odradek.metadata.store import MetadataStore


class EmbeddedMetadata(NamedTuple):
    """In this process, shared by the brokers that it has."""

    store: EmbeddedMetadataStore
    shared: SharedMetadata
    apis: Mapping[int, Api] = API_TABLE
    controlled: None = None


class ZooKeeperMetadata(NamedTuple):
    """In ZooKeeper, and a controller that speaks to the other brokers."""

    store: MetadataStore
    plane: ControlPlane
    controlled: ControlledBroker
    apis: Mapping[int, Api] = ZOOKEEPER_API_TABLE


def embedded_metadata(
    config: BrokerConfig,
    cache: MetadataCache,
    background: Background,
    dice: Random,
    shared: SharedMetadata | None,
    *,
    ephemeral: bool,
) -> EmbeddedMetadata:
    """A store of its own, on a journal unless it is `ephemeral`, or a session on a shared one."""
    if shared is None:
        journal = None if ephemeral else _open_journal(config)
        shared = SharedMetadata(background, dice.randbytes, journal)
    return EmbeddedMetadata(EmbeddedMetadataStore(cache, shared), shared)


def _open_journal(config: BrokerConfig) -> Journal:
    # An ephemeral broker does not pay for loading sqlite3.
    from odradek.metadata.embedded.database import Database

    return Database(config.log_dirs[0])
