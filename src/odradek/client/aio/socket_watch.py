"""Watches for bytes that TLS has passed on and the socket has not taken. TLS does not report them:
while the socket's transport has room it passes on a request of any size."""

import asyncio
from collections.abc import Callable
from typing import cast


class SocketWatch(asyncio.BufferedProtocol):
    """Stands between a socket's transport and the TLS on it, after `begin`."""

    def __init__(self, transport: asyncio.Transport, on_drained: Callable[[], None]) -> None:
        """`on_drained` is called whenever the socket has taken all."""
        self._transport = transport
        self._on_drained = on_drained
        self._tls: asyncio.BufferedProtocol | None = None
        self.is_full = False

    def begin(self) -> None:
        """Watches from now on; a second call does nothing."""
        if self._tls is None and not self._transport.is_closing():
            self._tls = cast(asyncio.BufferedProtocol, self._transport.get_protocol())
            self.is_full = self._transport.get_write_buffer_size() > 0
            self._transport.set_protocol(self)
            self._transport.set_write_buffer_limits(0)

    # --- what the socket's transport calls ----------------------------------------------------

    def pause_writing(self) -> None:
        """The socket does not take all."""
        self.is_full = True
        self._below.pause_writing()

    def resume_writing(self) -> None:
        """The socket has taken all. TLS may hand on more at once."""
        self.is_full = False
        self._below.resume_writing()
        if not self.is_full:
            self._on_drained()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Returns the buffer to receive into."""
        return cast(memoryview, self._below.get_buffer(sizehint))

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        self._below.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        """The broker has ended."""
        return self._below.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._below.connection_lost(exc)

    @property
    def _below(self) -> asyncio.BufferedProtocol:
        assert self._tls is not None, "nothing is watched before it begins"
        return self._tls
