"""Odradek: Apache Kafka's protocol, storage and semantics in Python."""

from typing import TYPE_CHECKING

from odradek._pure import install_if_asked
from odradek.version import VERSION

install_if_asked(__name__)

if TYPE_CHECKING:
    from odradek.clock import ManualClock
    from odradek.server.cluster import Cluster
    from odradek.server.in_process import Broker

__all__ = ["Broker", "Cluster", "ManualClock", "__version__"]
__version__ = VERSION
_HOMES = {
    "Broker": "odradek.server.in_process",
    "Cluster": "odradek.server.cluster",
    "ManualClock": "odradek.clock",
}


def __getattr__(name: str) -> object:
    """Imports what is named when it is first asked for: a client needs no broker."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found
