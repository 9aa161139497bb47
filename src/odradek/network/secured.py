"""The parts of a listener that is not PLAINTEXT: TLS under its connections, and a login before
their requests."""

import asyncio
from collections.abc import Callable
from typing import Any

from odradek.network.authentication import LoginGates
from odradek.network.connection import Connection
from odradek.network.socket_protocol import SocketProtocol
from odradek.network.tls.protocol import TlsListener, TlsProtocol


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
        """Passes on no frame of a connection before its client is authenticated."""
        connection.is_established = False
        if self._gates is not None:
            self._gates.guard(connection)
