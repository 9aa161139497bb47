"""One request by HTTP, with limits of time and size that the server cannot stretch.

A socket's time-out starts again with every byte, so a slow response would take for ever; here the
whole response has one deadline. Redirects are not followed. It blocks: for threads.
"""

import io
import socket
import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, IncompleteRead, RemoteDisconnected
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from odradek.clock import monotonic_s

LARGEST_BYTES: Final = 1 << 20
_CUT_OFF: Final = "it closed the connection before the end of its answer"
PORTS: Final = {"http": 80, "https": 443}


class BadAnswer(Exception):
    """An answer after which a repetition does not help."""


class HttpAnswer(NamedTuple):
    """A status, the relevant headers, and a body of at most `LARGEST_BYTES`."""

    status: int
    location: str | None
    body: bytes


class Patience(NamedTuple):
    """The time-outs of a connection, TLS included, and of the whole answer after it."""

    connect_ms: int
    read_ms: int


def exchange(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
    patience: Patience,
    context: ssl.SSLContext | None,
) -> HttpAnswer:
    """Sends a request to a URL of http, or of https by the `context`.

    Raises:
        OSError: nobody answers, or not in time.
        BadAnswer: it is no HTTP, or larger than an answer may be.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or PORTS[parts.scheme]
    target = parts.path or "/"
    if parts.query:
        target = f"{target}?{parts.query}"
    with _connected(host, port, patience.connect_ms, context) as connected:
        connection = HTTPConnection(host, port)
        connection.sock = _TimedSocket(connected, patience.read_ms)
        try:
            connection.request(method, target, body, dict(headers))
            answer = connection.getresponse()
            content = answer.read(LARGEST_BYTES + 1)
        except (RemoteDisconnected, IncompleteRead):
            raise ConnectionResetError(_CUT_OFF) from None
        except HTTPException as error:
            # Its text may have what was sent.
            raise BadAnswer(
                f"it answers something else than HTTP ({type(error).__name__})"
            ) from None
        finally:
            connection.close()
    if len(content) > LARGEST_BYTES:
        raise BadAnswer(f"it answers {answer.status} with more than {LARGEST_BYTES} bytes")
    if answer.length:
        raise ConnectionResetError(_CUT_OFF)
    return HttpAnswer(answer.status, answer.getheader("Location"), content)


def _connected(
    host: str, port: int, connect_ms: int, context: ssl.SSLContext | None
) -> socket.socket:
    """A connection to the first address of the host that accepts one."""
    deadline_s = monotonic_s() + connect_ms / 1000
    failure = OSError(f"the name {host} has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        connected = socket.socket(family, kind, protocol)
        try:
            connected.settimeout(_left_s(deadline_s))
            connected.connect(address)
            if context is None:
                return connected
            connected.settimeout(_left_s(deadline_s))
            return context.wrap_socket(connected, server_hostname=host)
        except OSError as error:
            connected.close()
            failure = error
            if isinstance(error, TimeoutError):
                failure = TimeoutError(f"no connection within {connect_ms} ms")
    raise failure


def _left_s(deadline_s: float) -> float:
    left_s = deadline_s - monotonic_s()
    if left_s <= 0:
        raise TimeoutError
    return left_s


class _TimedSocket:
    """A socket as `HTTPConnection` uses one, with one deadline for all that goes over it."""

    def __init__(self, connected: socket.socket, limit_ms: int) -> None:
        self._socket = connected
        self._limit_ms = limit_ms
        self._deadline_s = monotonic_s() + limit_ms / 1000

    def sendall(self, data: bytes) -> None:
        """Sends all, while there is time."""
        self._hurry()
        self._socket.sendall(data)

    def receive(self, buffer: Any) -> int:
        """Waits for some bytes, for as long as there is time for all."""
        try:
            self._hurry()
            return self._socket.recv_into(buffer)
        except TimeoutError:
            raise TimeoutError(f"no whole answer within {self._limit_ms} ms") from None

    def makefile(self, mode: str) -> io.BufferedReader:
        """The file that an answer is read from."""
        assert mode == "rb", f"an answer is read as {mode}"
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        """Leaves the socket open, as those do of which there are files; `exchange` closes it."""

    def _hurry(self) -> None:
        self._socket.settimeout(_left_s(self._deadline_s))


class _Reader(io.RawIOBase):
    """The bytes of a socket as a file."""

    def __init__(self, source: _TimedSocket) -> None:
        self._source = source

    def readable(self) -> bool:
        """It is there to be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """See `_TimedSocket.receive`."""
        return self._source.receive(buffer)
