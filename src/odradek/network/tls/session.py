"""TLS of one connection: records in, plain bytes to the connection; plain bytes in, records out.

The transport stays a plain one, so that a connection is admitted before its handshake, which costs
more than all that follows, and closed when it takes too long. As the connection sees it, the
session is its transport.

An answer is encrypted piece by piece, as the socket takes it: what waits for a slow client is not
held twice, and the memory of a piece is used again while the processor's caches still have it.
With the whole answer at once half of a broker's time went to fresh pages of memory.

OpenSSL gets what has come piece by piece, too: its BIO keeps the memory of the most that it held,
and it handles all of TLS's own messages in one call. A client may send nothing else: the rest then
waits for the loop's next turn.

`TlsSession` is compiled, since some clients send a record of TLS for each record of theirs.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast, final

from odradek.log_limit import LimitedLog, printable
from odradek.network.connection import Connection
from odradek.network.tls.terms import PeerRefused, TlsTerms
from odradek.network.transport import Transport, advance_or_abort
from odradek.protocol.primitives import Buffer

RECORD_BYTES: Final = 16 * 1024
# So much is encrypted before it is handed to the socket: more than transports like to hold, so
# that they send it at once.
PIECE_BYTES: Final = 64 * 1024
# The most that waits in the socket of a client to whom TLS has something of its own to say: more
# than a piece, and than transports hold besides.
MOST_UNREAD_BYTES: Final = 256 * 1024
# OpenSSL gets so much at once: more than any record has.
_FEED_BYTES: Final = 20 * 1024
# When so much more has come than plain bytes and their records, others have their turn. OpenSSL may
# hold one record's.
_MOST_EXCESS_BYTES: Final = 18 * 1024
_OVERHEAD_BYTES: Final = 32  # of a record
_NOTHING: Final = memoryview(b"")
_HANDSHAKE: Final = 0x16


@final
class TlsSession:
    """One connection's TLS. Its certificate gives its principal, unless a login follows."""

    def __init__(self, terms: TlsTerms, log: LimitedLog, transport: asyncio.BaseTransport) -> None:
        self._terms = terms
        self._log = log
        self._plain = transport
        self._transport = cast(Transport, transport)
        self._connection: Connection | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._is_established = False
        # What has come and OpenSSL has not got; in the listener's memory while `received` runs.
        self._unfed: memoryview = _NOTHING
        self._excess_bytes = 0
        self._is_behind = False  # it reads nothing before it has handled what has come
        self._is_reading_paused = False
        self._is_closing = False
        self._has_client_ended = False  # by its close_notify
        # What the connection has written and is not encrypted yet, while the socket is full.
        self._is_full = False
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0

    # --- called by the protocol ----------------------------------------------------------------

    def admit(self, admit: Callable[[Any], Connection | None]) -> None:
        """Asks the listener for the connection; drops the socket if there is none."""
        self._connection = admit(self)
        if self._connection is None:
            self.abort()
        elif self._connection.is_held:
            self._connection.on_let_in = self._advance_soon

    def lost(self) -> Connection | None:
        """Ends the session; returns its connection, which has ended too."""
        self._is_closing = True
        self._forget_unsent()
        self._unfed = _NOTHING
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection.connection_lost()
        return connection

    def received(self, records: memoryview) -> None:
        """Decrypts the received bytes; keeps a copy of those that have to wait."""
        if self._is_closing:
            return
        if self._tls is None and not self._begin(records):
            return
        self._unfed = memoryview(b"".join((self._unfed, records))) if self._unfed else records
        try:
            self._advance()
        finally:
            left = self._unfed
            self._unfed = memoryview(bytes(left)) if left and not self._is_closing else _NOTHING

    def pause_writing(self) -> None:
        """Encrypts nothing more; the connection handles no frame meanwhile."""
        self._is_full = True
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Goes on with what is not encrypted yet, then with frames."""
        self._is_full = False
        self._send_more()
        if self._connection is not None and not self._is_full:
            self._connection.resume_writing()

    # --- called by the connection, whose transport this is --------------------------------------

    def get_extra_info(self, name: str) -> Any:
        """Asks the transport about its socket."""
        return self._plain.get_extra_info(name)

    def writelines(self, list_of_data: list[Buffer], /) -> None:
        """Encrypts and sends, the first ones at once, as long as the socket takes them."""
        if self._tls is None or self._is_closing:
            return
        for piece in _pieces(list_of_data):
            self._unsent.append(piece)
            self._unsent_bytes += len(piece)
        self._send_more()

    def pause_reading(self) -> None:
        """No more calls of `get_buffer` until reading is resumed."""
        self._is_reading_paused = True
        if not (self._is_closing or self._is_behind):
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Undoes `pause_reading`; bytes received before are decrypted in a separate turn."""
        self._is_reading_paused = False
        if not self._is_closing:
            if not self._is_behind:
                self._transport.resume_reading()
            self._advance_soon()

    def get_write_buffer_size(self) -> int:
        """How many bytes are written and have not left, encrypted or not."""
        return self._transport.get_write_buffer_size() + self._unsent_bytes

    def close(self) -> None:
        """Sends TLS's close_notify, and closes when everything written has left."""
        if self._is_closing:
            return
        while self._unsent:
            self._encrypt_some()
            self._flush()
        self._is_closing = True
        if self._tls is not None and self._is_established:
            with suppress(ssl.SSLError):  # the client's own close_notify, which is not awaited
                self._tls.unwrap()
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Closes at once."""
        self._is_closing = True
        self._forget_unsent()
        self._transport.abort()

    # --- plain bytes to records ------------------------------------------------------------------

    def _send_more(self) -> None:
        while self._unsent and not self._is_full and not self._is_closing:
            self._encrypt_some()
            self._flush()

    def _encrypt_some(self) -> None:
        tls, unsent = self._tls, self._unsent
        assert tls is not None, "nothing is written before the handshake"
        while unsent and self._outgoing.pending < PIECE_BYTES:
            piece = unsent[0]
            try:
                count = tls.write(piece[:RECORD_BYTES])
            except ssl.SSLError as error:
                # The client is in the middle of a message of TLS. What answers it may be somebody
                # else's request, which must not fail for it.
                self._drop(f"TLS takes no response: {describe_error(error)}")
                return
            self._unsent_bytes -= count
            if count < len(piece):
                unsent[0] = piece[count:]
            else:
                unsent.popleft()

    def _forget_unsent(self) -> None:
        self._unsent.clear()
        self._unsent_bytes = 0

    def _flush(self) -> None:
        """Hands the records to the socket. Once that takes no more, what waits is forgotten: its
        end is told in a later turn."""
        if self._plain.is_closing():
            self._forget_unsent()
        elif self._outgoing.pending:
            self._transport.writelines([self._outgoing.read()])

    # --- records to plain bytes ------------------------------------------------------------------

    def _begin(self, records: memoryview) -> bool:
        """Makes ready for the handshake, if this is one."""
        if records[0] != _HANDSHAKE:
            self._refuse(
                "what it sends is no TLS: the client uses PLAINTEXT or SASL_PLAINTEXT where this "
                "listener has TLS (security.protocol)"
            )
            return False
        context = self._terms.context()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        return True

    def _advance_soon(self) -> None:
        asyncio.get_running_loop().call_soon(advance_or_abort, self._advance, self)

    def _advance(self) -> None:
        if self._is_closing or self._tls is None:
            return
        try:
            self._excess_bytes = 0
            if not self._is_established:
                if self._must_wait():
                    return
                self._shake_hands(self._tls)
            self._decrypt(self._tls)
        except ssl.SSLWantReadError:
            if self._connection is not None:
                self._connection.give_back()
        except ssl.SSLError as error:
            self._refuse(f"TLS: {describe_error(error)}")
        except PeerRefused as error:
            self._refuse(str(error))
        finally:
            self._tell()
            self._catch_up()

    def _catch_up(self) -> None:
        """Reads again when all that has come is handled."""
        if self._is_behind and not self._unfed:
            self._is_behind = False
            if not (self._is_closing or self._is_reading_paused):
                self._transport.resume_reading()

    def _fall_behind(self) -> None:
        """Lets others have their turn, and reads nothing meanwhile."""
        if not self._is_behind:
            self._is_behind = True
            self._transport.pause_reading()
        self._advance_soon()

    def _feed(self) -> None:
        """Hands OpenSSL the next piece, unless it has a whole record."""
        unfed = self._unfed
        if unfed and self._incoming.pending < _FEED_BYTES:
            piece = unfed[:_FEED_BYTES]
            self._incoming.write(piece)
            self._excess_bytes += len(piece)
            self._unfed = unfed[_FEED_BYTES:] if len(unfed) > _FEED_BYTES else _NOTHING

    def _tell(self) -> None:
        """Sends what TLS itself has to say, such as new keys that the client has asked for."""
        if not self._outgoing.pending:
            return
        self._flush()
        unread_bytes = self._transport.get_write_buffer_size()
        if self._is_full and unread_bytes > MOST_UNREAD_BYTES:
            self._drop(f"it asks TLS for more and more, and leaves {unread_bytes} bytes unread")

    def _must_wait(self) -> bool:
        """Whether its turn has not come: a handshake is what rates of connections are to limit."""
        connection = self._connection
        if connection is None or not connection.is_held:
            return False
        if len(self._unfed) > PIECE_BYTES:
            self._drop("it sends more than the begin of a handshake before it has an answer")
        return True

    def _shake_hands(self, tls: ssl.SSLObject) -> None:
        """Completes the handshake.

        Raises:
            ssl.SSLWantReadError: the client has not sent all of its part yet.
        """
        while not self._is_established:
            self._feed()
            try:
                tls.do_handshake()
                self._establish(tls)
            except ssl.SSLWantReadError:
                if not self._unfed:
                    raise

    def _establish(self, tls: ssl.SSLObject) -> None:
        connection = self._connection
        assert connection is not None, "a handshake is somebody's"
        self._is_established = True
        if connection.gate is None:
            connection.principal = self._terms.principal_of(tls.getpeercert(True))
            connection.is_established = True

    def _decrypt(self, tls: ssl.SSLObject) -> None:
        """Passes all plain bytes to the connection, as long as it accepts them."""
        while not (self._is_reading_paused or self._is_closing):
            connection, waiting_bytes = self._connection, self._incoming.pending
            if connection is None or not (tls.pending() or waiting_bytes or self._unfed):
                return
            if self._unfed and self._excess_bytes - waiting_bytes > _MOST_EXCESS_BYTES:
                self._fall_behind()
                return
            count = self._fill(tls, connection.get_buffer())
            if count:
                connection.buffer_updated(count)
            else:
                connection.give_back()
            if self._has_client_ended:
                self.close()

    def _fill(self, tls: ssl.SSLObject, view: memoryview) -> int:
        """How many bytes are in the buffer now; 0 at the end, or if more of what has come has none.

        Raises:
            ssl.SSLWantReadError: there are none yet.
        """
        filled, room = 0, len(view)
        incoming = self._incoming
        # Of a read into a buffer the stubs say that it gives bytes.
        read = cast(Callable[[int, memoryview], int], cast(object, tls.read))
        try:
            while filled < room:
                self._feed()
                count = read(room - filled, view[filled:])
                if count == 0:
                    self._has_client_ended = True
                    break
                filled += count
                self._excess_bytes -= count + _OVERHEAD_BYTES
                if not (incoming.pending or self._unfed):
                    break  # a read that finds nothing costs more than one of a record
        except ssl.SSLWantReadError:
            if not (filled or self._unfed):
                raise
        return filled

    def _refuse(self, reason: str) -> None:
        """Ends the connection with the alert that TLS has for it, if any."""
        self._warn(reason)
        self._flush()
        self._is_closing = True
        self._forget_unsent()
        self._transport.close()

    def _drop(self, reason: str) -> None:
        self._warn(reason)
        self.abort()

    def _warn(self, reason: str) -> None:
        connection = self._connection
        if connection is not None:
            self._log.warning(f"Closing {connection.connection_id}: {printable(reason)}")


def describe_error(error: ssl.SSLError) -> str:
    """Describes an error in OpenSSL's words."""
    # Some have none, whatever the stubs say: compiled code would not take it as an attribute.
    reason = str(getattr(error, "reason", None) or error).replace("_", " ").lower()
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
