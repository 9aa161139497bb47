"""asyncio's view of a connection with TLS: a thin shell that forwards to `TlsSession`.

An interpreted class, since asyncio wants a `BufferedProtocol`.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from odradek.log_limit import LimitedLog
from odradek.network.connection import Connection
from odradek.network.tls.session import TlsSession
from odradek.network.tls.terms import TlsTerms

SCRATCH_BYTES: Final = 256 * 1024


class TlsListener:
    """The state that the connections of one listener share."""

    def __init__(self, terms: TlsTerms, log: LimitedLog) -> None:
        self.terms = terms
        self.log = log
        # Records are taken over at once, so all connections receive into the same memory.
        self.scratch: Final = memoryview(bytearray(SCRATCH_BYTES))


class TlsProtocol(asyncio.BufferedProtocol):
    """Made by the listener for every accepted socket; `admit` and `on_lost` as for a plain one."""

    def __init__(
        self,
        listener: TlsListener,
        admit: Callable[[Any], Connection | None],
        on_lost: Callable[[Connection], None],
    ) -> None:
        self._listener = listener
        self._admit = admit
        self._on_lost = on_lost
        self._session: TlsSession | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admits the connection, or drops it."""
        self._session = TlsSession(self._listener.terms, self._listener.log, transport)
        self._session.admit(self._admit)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Ends the connection."""
        connection = self._live().lost()
        if connection is not None:
            self._on_lost(connection)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002, asyncio's signature
        """Returns the buffer to receive into."""
        return self._listener.scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Hands over what was received."""
        self._live().received(self._listener.scratch[:nbytes])

    def eof_received(self) -> None:
        """Sends all that was answered, and closes: the client, which sends no more, may read on."""
        self._live().close()

    def pause_writing(self) -> None:
        """Stops the handling of frames."""
        self._live().pause_writing()

    def resume_writing(self) -> None:
        """Continues."""
        self._live().resume_writing()

    def _live(self) -> TlsSession:
        assert self._session is not None, "the transport calls only while it is connected"
        return self._session
