"""Raw sockets to a broker whose listener is protected."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.deadlines import deadline_s

import odradek
from odradek.protocol import messages
from odradek.protocol.header import encode_request_header, request_header_version

TIMEOUT_S = deadline_s(20)
FLEXIBLE_FROM = {3: 9, 17: 99, 18: 3, 36: 2}


class Wire:
    """A client's socket, which sends and receives whole frames."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected

    def send(self, frame: bytes) -> None:
        self.socket.sendall(len(frame).to_bytes(4, "big") + frame)

    def ask(self, key: int, version: int, **values: object) -> None:
        """Sends a request."""
        header_version = request_header_version(key, version, FLEXIBLE_FROM[key])
        frame = encode_request_header(key, version, 1, "wire", header_version)
        self.send(frame + messages.encode_request(key, version, values))

    def frame(self) -> bytes | None:
        """The next answer; None where the broker has closed, which is more than to be silent."""
        try:
            size = self._exactly(4)
            return None if size is None else self._exactly(int.from_bytes(size, "big"))
        except ConnectionError:
            return None

    def _exactly(self, count: int) -> bytes | None:
        received = b""
        while len(received) < count:
            some = self.socket.recv(count - len(received))
            if not some:
                return None
            received += some
        return received


@contextmanager
def connected(broker: odradek.Broker) -> Iterator[Wire]:
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    with socket.create_connection((host, int(port)), TIMEOUT_S) as one:
        yield Wire(one)
