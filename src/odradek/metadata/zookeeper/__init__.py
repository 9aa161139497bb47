"""The metadata store of a cluster on ZooKeeper, in the layout that Apache Kafka 3.9 knows."""

from collections.abc import Callable

from odradek.clock import Clock
from odradek.metadata.cache import MetadataCache
from odradek.metadata.control import ControlPlane
from odradek.metadata.zookeeper.client import ZooKeeperSettings
from odradek.metadata.zookeeper.office.wishes import ReplicaPlans
from odradek.metadata.zookeeper.store import ZooKeeperMetadataStore
from odradek.timer import Timer

__all__ = [
    "ReplicaPlans",
    "ZooKeeperMetadataStore",
    "ZooKeeperSettings",
    "generate_broker_id",
    "open_store",
]


def open_store(
    cache: MetadataCache,
    broker_id: int,
    settings: ZooKeeperSettings,
    plane: ControlPlane,
    timer: Timer,
    clock: Clock,
    call_soon_threadsafe: Callable[[Callable[[], None]], object],
    random_bytes: Callable[[int], bytes],
    plans: ReplicaPlans,
) -> ZooKeeperMetadataStore:
    """The store of a broker, on a session of its own; `load` connects it.

    Raises:
        MetadataStoreError: the client library is missing, or `settings` name no ensemble.
    """
    from odradek.metadata.zookeeper.session import KazooSession

    session = KazooSession(settings, timer, clock, call_soon_threadsafe)
    return ZooKeeperMetadataStore(
        cache, broker_id, session, plane, timer, clock, random_bytes, plans
    )


def generate_broker_id(settings: ZooKeeperSettings, reserved_max_id: int) -> int:
    """A number that no broker has had, above those that may be configured; blocks.

    Raises:
        MetadataStoreError: the client library is missing, or nobody answers.
    """
    from odradek.metadata.zookeeper import session

    return session.generate_broker_id(settings, reserved_max_id)
