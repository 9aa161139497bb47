"""The store of a broker's metadata: in its own directory, or in ZooKeeper.

Other parts depend on that too: the served APIs, a controller's requests, how the broker hands over
before it stops.
"""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from odradek.background import Background
from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.handlers.api import Api
from odradek.handlers.table import API_TABLE, ZOOKEEPER_API_TABLE
from odradek.metadata.cache import MetadataCache
from odradek.metadata.control import ControlledBroker, ControlPlane
from odradek.metadata.fail_stop import OnBroken
from odradek.metadata.sqlite import EmbeddedMetadataStore, SharedMetadata
from odradek.metadata.sqlite.journal import Journal
from odradek.metadata.store import MetadataStore, MetadataStoreError
from odradek.server.errors import StartError
from odradek.server.peers.channels import PeerChannels
from odradek.server.peers.control_plane import SocketControlPlane
from odradek.storage import checkpoints, names
from odradek.storage.manager.log_manager import LogManager
from odradek.timer import Timer


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
    rng: Random,
    shared: SharedMetadata | None,
    on_broken: OnBroken,
    *,
    ephemeral: bool,
) -> EmbeddedMetadata:
    """A separate store, on a journal unless it is `ephemeral`, or a session on a shared one."""
    if shared is None:
        journal = None if ephemeral else _open_journal(config)
        shared = SharedMetadata(background, rng.randbytes, journal)
    store = EmbeddedMetadataStore(cache, shared, on_broken, background.defer)
    return EmbeddedMetadata(store, shared)


def _open_journal(config: BrokerConfig) -> Journal:
    # An ephemeral broker does not pay for loading sqlite3.
    from odradek.metadata.sqlite.database import Database

    return Database(config.log_dirs[0])


def zookeeper_metadata(
    config: BrokerConfig,
    cache: MetadataCache,
    clock: Clock,
    timer: Timer,
    rng: Random,
    peers: PeerChannels,
    on_broken: OnBroken,
    logs: Callable[[], LogManager],
) -> ZooKeeperMetadata:
    """A store on the ensemble that `zookeeper.connect` names; not connected yet. `logs` gives the
    logs here once they are open."""
    # A broker that stands alone does without kazoo, and without the modules of an election.
    from odradek.controller.zookeeper_store import ZooKeeperMetadataStore
    from odradek.metadata.zookeeper import open_session
    from odradek.server.security.zookeeper import zookeeper_settings

    loop = asyncio.get_running_loop()
    session = open_session(
        zookeeper_settings(config), timer, clock, loop.call_soon_threadsafe, on_broken
    )
    plane = SocketControlPlane(cache, timer, config.inter_broker_listener_name, peers.to_control)
    store = ZooKeeperMetadataStore(
        cache,
        config.broker_id,
        session,
        plane,
        timer,
        clock,
        rng.randbytes,
        on_broken,
        ids_in_logs=lambda: logs().topic_ids,
        is_missing_logs=lambda: logs().is_missing_logs,
        keeps_acls=bool(config["authorizer.class.name"]),
        keeps_tokens=bool(config["delegation.token.secret.key"]),
    )
    return ZooKeeperMetadata(store, plane, store)


def find_broker_id(config: BrokerConfig) -> int:
    """The number of a broker that was given none: that of its directories, else a new one from
    ZooKeeper, beyond those that people give. Blocks.

    Raises:
        StartError: there is none to be had.
    """
    for directory in config.log_dirs:
        held = _held_broker_id(directory)
        if held is not None:
            return held
    if not config["broker.id.generation.enable"]:
        raise StartError("A broker needs a broker.id, or broker.id.generation.enable=true")
    from odradek.metadata.zookeeper import generate_broker_id
    from odradek.server.security.zookeeper import zookeeper_settings

    try:
        return generate_broker_id(zookeeper_settings(config), config["reserved.broker.max.id"])
    except MetadataStoreError as error:
        raise StartError(str(error)) from error


def _held_broker_id(directory: str) -> int | None:
    try:
        with open(f"{directory}/{names.META_PROPERTIES}", "rb") as file:
            found = checkpoints.parse_meta_properties(file.read())
    except (OSError, checkpoints.CorruptCheckpoint):
        return None  # its error is reported when the logs are opened
    held = found.get("node.id", found.get("broker.id"))
    return int(held) if held is not None and held.isdigit() else None
