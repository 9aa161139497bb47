"""Where the metadata of a broker is kept: in its own directory, or in ZooKeeper.

What else depends on that comes along: the APIs that are served, what a controller commands, how
the broker hands over before it stops.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from odradek.background import Background
from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.controller.replicas.elections import plan_controlled_shutdown, plan_election
from odradek.controller.replicas.reassignments import plan_reassignment
from odradek.controller.results import ElectionType
from odradek.handlers.api import Api
from odradek.handlers.table import API_TABLE, ZOOKEEPER_API_TABLE
from odradek.metadata.cache import MetadataCache
from odradek.metadata.control import ControlledBroker, ControlPlane
from odradek.metadata.embedded import EmbeddedMetadataStore, SharedMetadata
from odradek.metadata.embedded.journal import Journal
from odradek.metadata.store import MetadataStore, MetadataStoreError
from odradek.server.errors import StartError
from odradek.server.peers.channels import PeerChannels
from odradek.server.peers.control_plane import SocketControlPlane
from odradek.storage import checkpoints, names
from odradek.timer import Timer

if TYPE_CHECKING:
    from odradek.metadata.zookeeper import ZooKeeperSettings


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


def zookeeper_metadata(
    config: BrokerConfig,
    cache: MetadataCache,
    clock: Clock,
    timer: Timer,
    dice: Random,
    peers: PeerChannels,
) -> ZooKeeperMetadata:
    """A store on the ensemble that `zookeeper.connect` names; not connected yet."""
    # Who does not stand in a cluster need not have kazoo.
    from odradek.metadata.zookeeper import ReplicaPlans, open_store

    name = config.inter_broker_listener_name
    plane = SocketControlPlane(cache, timer, name, peers.to_control)
    plans = ReplicaPlans(
        controlled_shutdown=plan_controlled_shutdown,
        reassignment=plan_reassignment,
        preferred_election=partial(plan_election, election_type=ElectionType.PREFERRED),
    )
    store = open_store(
        *(cache, config.broker_id, zookeeper_settings(config), plane, timer, clock),
        asyncio.get_running_loop().call_soon_threadsafe,
        dice.randbytes,
        plans,
    )
    return ZooKeeperMetadata(store, plane, store)


def zookeeper_settings(config: BrokerConfig) -> "ZooKeeperSettings":
    """How to reach the ensemble; the first connection may take as long as a session lives, unless
    it is told otherwise."""
    from odradek.metadata.zookeeper import ZooKeeperSettings

    session_timeout_ms: int = config["zookeeper.session.timeout.ms"]
    connection_timeout_ms: int | None = config["zookeeper.connection.timeout.ms"]
    return ZooKeeperSettings(
        config["zookeeper.connect"],
        session_timeout_ms,
        session_timeout_ms if connection_timeout_ms is None else connection_timeout_ms,
        config["zookeeper.max.in.flight.requests"],
    )


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

    try:
        return generate_broker_id(zookeeper_settings(config), config["reserved.broker.max.id"])
    except MetadataStoreError as error:
        raise StartError(str(error)) from error


def _held_broker_id(directory: str) -> int | None:
    try:
        with open(f"{directory}/{names.META_PROPERTIES}", "rb") as file:
            found = checkpoints.parse_meta_properties(file.read())
    except (OSError, checkpoints.CorruptCheckpoint):
        return None  # what is wrong with it is told when the logs are opened
    held = found.get("node.id", found.get("broker.id"))
    return int(held) if held is not None and held.isdigit() else None
