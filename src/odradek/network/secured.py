"""The parts of a listener that is more than PLAINTEXT: TLS under its connections, a login before
them."""

import asyncio
from collections.abc import Callable
from typing import Any

from odradek.network.authentication import LoginGates
from odradek.network.connection import Connection
from odradek.network.socket_protocol import SocketProtocol
from odradek.network.tls_protocol import TlsListener, TlsProtocol


class SecuredListener:
    """TLS, SASL or both; see `listener.ListenerSecurity`."""

    def __init__(self, tls: TlsListener | None, gates: LoginGates | None) -> None:
        self._tls = tls
        self._gates = gates

    def protocol(
        self,
        admit: Callable[[Any], Connection | None],
        on_lost: Callable[[Connection], None],
    ) -> asyncio.BaseProtocol:
        """The asyncio protocol of an accepted socket."""
        if self._tls is None:
            return SocketProtocol(admit, on_lost)
        return TlsProtocol(self._tls, admit, on_lost)

    def guard(self, connection: Connection) -> None:
        """Lets nothing of a connection through before its client is known."""
        connection.is_established = False
        if self._gates is not None:
            self._gates.guard(connection)
