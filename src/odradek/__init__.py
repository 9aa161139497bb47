"""Odradek: Apache Kafka's protocol, storage and semantics in Python."""

from typing import TYPE_CHECKING

from odradek._pure import install_if_asked
from odradek.version import VERSION

install_if_asked(__name__)

if TYPE_CHECKING:
    from odradek.server.in_process import Broker

__all__ = ["Broker", "__version__"]
__version__ = VERSION


def __getattr__(name: str) -> object:
    """Imports the broker when it is first asked for: a client needs none of it."""
    if name != "Broker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from odradek.server.in_process import Broker

    globals()["Broker"] = Broker
    return Broker
