"""asyncio's view of a connection: a thin shell that forwards to `Connection`.

An interpreted class, since asyncio wants a `BufferedProtocol`; all costly work is behind its two
calls per read.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from odradek.network.connection import Connection
from odradek.network.transport import Transport


class SocketProtocol(asyncio.BufferedProtocol):
    """Made by the listener for every accepted socket.

    `admit` creates the connection, or returns None if it is over a limit; `on_lost` is called at
    the end of every connection that was created.
    """

    def __init__(
        self,
        admit: Callable[[asyncio.BaseTransport], Connection | None],
        on_lost: Callable[[Connection], None],
    ) -> None:
        self._admit = admit
        self._on_lost = on_lost
        self._connection: Connection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admits the connection, or drops it."""
        self._connection = self._admit(transport)
        if self._connection is None:
            cast(Transport, transport).abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Ends the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.connection_lost()
            self._on_lost(connection)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002, asyncio's signature
        """Returns the buffer to receive into."""
        return self._live().get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Handles what was received."""
        self._live().buffer_updated(nbytes)

    def pause_writing(self) -> None:
        """Stops the handling of frames."""
        self._live().pause_writing()

    def resume_writing(self) -> None:
        """Continues."""
        self._live().resume_writing()

    def _live(self) -> Connection:
        assert self._connection is not None, "the transport calls only while it is connected"
        return self._connection
