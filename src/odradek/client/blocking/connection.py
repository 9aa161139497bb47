"""One socket to one broker: sends a request, waits for its answer.

Answers come in the order of the requests, so a caller may send several before it receives.
Whatever goes wrong with the socket or with what came over it is a `NetworkError`, which is
retriable: the connection is closed then and another one may do better.
"""

import socket
from collections import deque
from collections.abc import Sequence

from odradek.client.addresses import Address
from odradek.client.apis import ClientApi
from odradek.client.core.connection import Answer, ConnectionCore, ConnectionState
from odradek.client.errors import KafkaError, NetworkError
from odradek.protocol.primitives import Buffer, ProtocolError


class BlockingConnection:
    """A connection with the broker's API versions at hand. Close it after any error."""

    def __init__(self, address: Address, *, client_id: str, timeout_s: float) -> None:
        """Connects and asks for the broker's versions.

        Raises:
            KafkaError: nobody answers there, or the broker refuses.
        """
        self.address = address
        self._core = ConnectionCore(client_id)
        self._answers: deque[Answer] = deque()
        try:
            self._socket = socket.create_connection(address, timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise self._network_error(error) from error
        try:
            self._core.connected()
            self._flush()
            while self._core.state is not ConnectionState.READY:
                self._receive_some()
        except KafkaError:
            self.close()
            raise

    def agree(self, api: ClientApi) -> int:
        """The version of an API to speak on this connection.

        Raises:
            UnsupportedVersion: there is none.
        """
        return self._core.agree(api)

    def request(self, api: ClientApi, version: int, body: Sequence[Buffer]) -> Answer:
        """Sends a request and waits for its answer.

        Raises:
            NetworkError: the connection broke.
        """
        self.send(api, version, body)
        return self.receive()

    def send(self, api: ClientApi, version: int, body: Sequence[Buffer]) -> None:
        """Sends a request; `receive` gives its answer.

        Raises:
            NetworkError: the connection broke.
        """
        self._core.send(api, version, body, None)
        self._flush()

    def receive(self) -> Answer:
        """Waits for the answer to the oldest unanswered request.

        Raises:
            NetworkError: the connection broke.
        """
        while not self._answers:
            assert self._core.in_flight_count, "nothing was asked"
            self._receive_some()
        return self._answers.popleft()

    def close(self) -> None:
        """Closes the socket; harmless when it is closed."""
        self._core.lost()
        self._socket.close()

    def _flush(self) -> None:
        try:
            self._socket.sendall(b"".join(self._core.take_outgoing()))
        except OSError as error:
            raise self._network_error(error) from error

    def _receive_some(self) -> None:
        try:
            count = self._socket.recv_into(self._core.get_buffer())
        except OSError as error:
            raise self._network_error(error) from error
        if not count:
            raise self._network_error("the broker closed the connection")
        try:
            answered = self._core.buffer_updated(count)
        except ProtocolError as error:
            raise self._network_error(error) from error
        self._answers.extend(one.answer for one in answered)
        self._flush()

    def _network_error(self, reason: object) -> NetworkError:
        return NetworkError(f"{self.address}: {reason}")
