"""The mechanism of a cluster on ZooKeeper, in the layout that Apache Kafka 3.9 knows: sessions,
znodes and watches. `odradek.controller.elected` has the election and the controller's decisions."""

from collections.abc import Callable

from odradek.clock import Clock
from odradek.metadata.fail_stop import OnBroken
from odradek.metadata.zookeeper.client import ZooKeeperClient, ZooKeeperLogin, ZooKeeperSettings
from odradek.metadata.zookeeper.connection import require_kazoo
from odradek.timer import Timer

__all__ = ["ZooKeeperLogin", "ZooKeeperSettings", "generate_broker_id", "open_session"]


def open_session(
    settings: ZooKeeperSettings,
    timer: Timer,
    clock: Clock,
    call_soon_threadsafe: Callable[[Callable[[], None]], object],
    on_broken: OnBroken,
) -> ZooKeeperClient:
    """A session of a broker, not connected yet; `on_broken` ends the broker when its metadata code
    raises.

    Raises:
        MetadataStoreError: the client library is missing, or `settings` name no ensemble.
    """
    require_kazoo()
    from odradek.metadata.zookeeper.connection.session import KazooSession

    return KazooSession(settings, timer, clock, call_soon_threadsafe, on_broken)


def generate_broker_id(settings: ZooKeeperSettings, reserved_max_id: int) -> int:
    """A number that no broker has had, above those that may be configured; blocks.

    Raises:
        MetadataStoreError: the client library is missing, or nobody answers.
    """
    require_kazoo()
    from odradek.metadata.zookeeper.connection import session

    return session.generate_broker_id(settings, reserved_max_id)
