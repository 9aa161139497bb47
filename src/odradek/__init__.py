"""Odradek: Apache Kafka's protocol, storage and semantics in Python."""

from typing import TYPE_CHECKING

from odradek._lazy import exports
from odradek._pure import install_if_asked
from odradek.version import VERSION

install_if_asked(__name__)

if TYPE_CHECKING:
    from odradek.clock import ManualClock
    from odradek.server.cluster import Cluster
    from odradek.server.in_process import Broker

__all__ = ["Broker", "Cluster", "ManualClock", "__version__"]
__version__ = VERSION
__getattr__ = exports(
    __name__,
    {
        "Broker": "odradek.server.in_process",
        "Cluster": "odradek.server.cluster",
        "ManualClock": "odradek.clock",
    },
)
