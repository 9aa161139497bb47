"""TLS between the transport and a connection: records in, plain bytes to the connection; and back.

The transport stays a plain one, so that a connection is admitted before its handshake, which costs
more than all that follows, and closed when it takes too long. As the connection sees it, this is
its transport.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from odradek.log_limit import LimitedLog
from odradek.model import KafkaPrincipal
from odradek.network.connection import Connection
from odradek.network.transport import Transport
from odradek.protocol.primitives import Buffer

RECORD_BYTES: Final = 16 * 1024
SCRATCH_BYTES: Final = 256 * 1024
FLUSH_BYTES: Final = 1024 * 1024
_HANDSHAKE: Final = 0x16


class PeerRefused(Exception):
    """A certificate whose principal is not admitted; the text is for the log."""


class TlsTerms(Protocol):
    """The terms a listener sets for its clients."""

    def context(self) -> ssl.SSLContext:
        """The newest context, for a connection that has just come."""
        ...

    def principal_of(self, certificate: bytes | None) -> KafkaPrincipal:
        """The principal of a certificate, in DER; None without a certificate.

        Raises:
            PeerRefused: it is not admitted.
        """
        ...


class TlsListener:
    """The state that the connections of one listener share."""

    def __init__(self, terms: TlsTerms, log: LimitedLog) -> None:
        self.terms = terms
        self.log = log
        # Records are taken over at once, so all connections receive into the same memory.
        self.scratch: Final = memoryview(bytearray(SCRATCH_BYTES))


class TlsProtocol(asyncio.BufferedProtocol):
    """One connection's TLS. Its certificate gives its principal, unless a login follows."""

    def __init__(
        self,
        listener: TlsListener,
        admit: Callable[[Any], Connection | None],
        on_lost: Callable[[Connection], None],
    ) -> None:
        self._listener = listener
        self._admit = admit
        self._on_lost = on_lost
        self._connection: Connection | None = None
        self._socket: Transport | None = None
        self._plain: asyncio.BaseTransport | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._is_established = False
        self._is_paused = False
        self._is_closing = False

    # --- called by the transport ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admits the connection, or drops it."""
        self._socket = cast(Transport, transport)
        self._plain = transport
        self._connection = self._admit(self)
        if self._connection is None:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Ends the connection."""
        self._is_closing = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.connection_lost()
            self._on_lost(connection)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002, asyncio's signature
        """Returns the buffer to receive into."""
        return self._listener.scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Takes over the received bytes, and decrypts them."""
        if self._is_closing:
            return
        received = self._listener.scratch[:nbytes]
        if self._tls is None and not self._begin(received):
            return
        self._incoming.write(received)
        self._advance()

    def pause_writing(self) -> None:
        """Stops the handling of frames."""
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Continues."""
        if self._connection is not None:
            self._connection.resume_writing()

    # --- called by the connection, whose transport this is --------------------------------------

    def get_extra_info(self, name: str) -> Any:
        """Asks the transport about its socket."""
        return None if self._plain is None else self._plain.get_extra_info(name)

    def writelines(self, list_of_data: list[Buffer], /) -> None:
        """Encrypts and sends."""
        tls = self._tls
        if tls is None or self._is_closing:
            return
        for piece in _pieces(list_of_data):
            begin = 0
            while begin < len(piece):
                begin += tls.write(piece[begin:])
                if self._outgoing.pending >= FLUSH_BYTES:
                    self._flush()
        self._flush()

    def pause_reading(self) -> None:
        """No more calls of `get_buffer` until reading is resumed."""
        self._is_paused = True
        if not self._is_closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Undoes `pause_reading`; bytes received before are decrypted in a separate turn."""
        self._is_paused = False
        if not self._is_closing:
            self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._advance)

    def get_write_buffer_size(self) -> int:
        """How many bytes are written and have not left, encrypted ones."""
        return self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Sends TLS's close_notify, and closes when everything written has left."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._tls is not None and self._is_established:
            with suppress(ssl.SSLError):  # the client's own close_notify, which is not awaited
                self._tls.unwrap()
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Closes at once."""
        self._is_closing = True
        self._transport.abort()

    # --- records --------------------------------------------------------------------------------

    @property
    def _transport(self) -> Transport:
        assert self._socket is not None, "nothing is asked before there is a transport"
        return self._socket

    def _begin(self, received: memoryview) -> bool:
        """Makes ready for the handshake, if this is one."""
        if received[0] != _HANDSHAKE:
            self._refuse(
                "what it sends is no TLS: the client uses PLAINTEXT or SASL_PLAINTEXT where this "
                "listener has TLS (security.protocol)"
            )
            return False
        context = self._listener.terms.context()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        return True

    def _advance(self) -> None:
        if self._is_closing or self._tls is None:
            return
        try:
            if not self._is_established:
                self._tls.do_handshake()
                self._establish(self._tls)
            self._decrypt(self._tls)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._refuse(f"TLS: {describe_error(error)}")
        except PeerRefused as error:
            self._refuse(str(error))
        finally:
            self._flush()

    def _establish(self, tls: ssl.SSLObject) -> None:
        connection = self._connection
        assert connection is not None, "a handshake is somebody's"
        self._is_established = True
        if connection.gate is None:
            connection.principal = self._listener.terms.principal_of(tls.getpeercert(True))
            connection.is_established = True

    def _decrypt(self, tls: ssl.SSLObject) -> None:
        """Passes all plain bytes to the connection, as long as it accepts them."""
        while not (self._is_paused or self._is_closing):
            connection = self._connection
            if connection is None or not (tls.pending() or self._incoming.pending):
                return
            count = self._fill(tls, connection.get_buffer())
            if count:
                connection.buffer_updated(count)
            else:
                self.close()  # the client has sent its close_notify

    def _fill(self, tls: ssl.SSLObject, view: memoryview) -> int:
        """How many bytes are in the buffer now; 0 at the end.

        Raises:
            ssl.SSLWantReadError: there are none yet.
        """
        filled = 0
        try:
            while filled < len(view):
                count = cast(int, tls.read(len(view) - filled, view[filled:]))
                if count == 0:
                    break
                filled += count
        except ssl.SSLWantReadError:
            if not filled:
                raise
        except ssl.SSLZeroReturnError:
            pass
        return filled

    def _flush(self) -> None:
        if self._outgoing.pending and self._plain is not None and not self._plain.is_closing():
            self._transport.writelines([self._outgoing.read()])

    def _refuse(self, reason: str) -> None:
        """Ends the connection with the alert that TLS has for it, if any."""
        connection = self._connection
        if connection is not None:
            self._listener.log.warning(f"Closing {connection.connection_id}: {reason}")
        self._flush()
        self._is_closing = True
        self._transport.close()


def describe_error(error: ssl.SSLError) -> str:
    """Describes an error in OpenSSL's words."""
    reason = str(error.reason or error).replace("_", " ").lower()
    detail = getattr(error, "verify_message", None)
    return f"{reason} ({detail})" if detail else reason


def _pieces(buffers: list[Buffer]) -> list[memoryview]:
    """Returns the same bytes, with small buffers joined: each would be a separate record."""
    pieces: list[memoryview] = []
    small: list[Buffer] = []
    size = 0
    for buffer in buffers:
        if len(buffer) < RECORD_BYTES and size < RECORD_BYTES:
            small.append(buffer)
            size += len(buffer)
            continue
        if small:
            pieces.append(memoryview(b"".join(small)))
            small, size = [], 0
        pieces.append(memoryview(buffer))
    if small:
        pieces.append(memoryview(b"".join(small)))
    return pieces
