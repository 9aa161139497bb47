"""One socket to one broker: sends a request, waits for its answer.

Answers come in the order of the requests, so a caller may send several before it receives.
Whatever goes wrong with the socket or with what came over it is a NETWORK_EXCEPTION, which
is retriable: the connection is closed then and another one may do better.
"""

import socket
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from odradek.client.addresses import Address
from odradek.client.apis import API_VERSIONS, ClientApi, agree
from odradek.errors import BrokerError, ErrorCode
from odradek.protocol import messages
from odradek.protocol.framing import SIZE_BYTES, encode_size
from odradek.protocol.header import (
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from odradek.protocol.primitives import Buffer, ProtocolError

RESPONSE_MAX_BYTES: Final = 1 << 30


class Answer(NamedTuple):
    """A response: its frame, and where in it the body begins."""

    frame: memoryview
    position: int


class _Sent(NamedTuple):
    correlation_id: int
    header_version: int


class BlockingConnection:
    """A connection with the broker's API versions at hand. Close it after any error."""

    def __init__(self, address: Address, *, client_id: str, timeout_s: float) -> None:
        """Connects and asks for the broker's versions.

        Raises:
            BrokerError: NETWORK_EXCEPTION; nobody answers there.
        """
        self.address = address
        self._client_id = client_id
        self._next_correlation_id = 0
        self._unanswered: deque[_Sent] = deque()
        try:
            self._socket = socket.create_connection(address, timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise self._network_exception(error) from error
        try:
            self.versions = self._ask_versions()
        except BrokerError:
            self.close()
            raise

    def agree(self, api: ClientApi) -> int:
        """The version of an API to speak on this connection.

        Raises:
            BrokerError: UNSUPPORTED_VERSION.
        """
        return agree(api, self.versions)

    def request(self, api: ClientApi, version: int, body: Sequence[Buffer]) -> Answer:
        """Sends a request and waits for its answer.

        Raises:
            BrokerError: NETWORK_EXCEPTION.
        """
        self.send(api, version, body)
        return self.receive()

    def send(self, api: ClientApi, version: int, body: Sequence[Buffer]) -> None:
        """Sends a request; `receive` gives its answer.

        Raises:
            BrokerError: NETWORK_EXCEPTION.
        """
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        flexible_from = version if messages.is_flexible(api.key, version) else version + 1
        header = encode_request_header(
            api.key,
            version,
            correlation_id,
            self._client_id,
            request_header_version(api.key, version, flexible_from),
        )
        size = encode_size(len(header) + sum(map(len, body)))
        try:
            self._socket.sendall(b"".join((size, header, *body)))
        except OSError as error:
            raise self._network_exception(error) from error
        header_version = response_header_version(api.key, version, flexible_from)
        self._unanswered.append(_Sent(correlation_id, header_version))

    def receive(self) -> Answer:
        """Waits for the answer to the oldest unanswered request.

        Raises:
            BrokerError: NETWORK_EXCEPTION.
        """
        assert self._unanswered, "nothing was asked"
        sent = self._unanswered.popleft()
        size = int.from_bytes(self._receive_exactly(SIZE_BYTES), "big", signed=True)
        if not 0 < size <= RESPONSE_MAX_BYTES:
            raise self._network_exception(f"an answer of {size} bytes")
        frame = self._receive_exactly(size)
        try:
            correlation_id, position = decode_response_header(frame, sent.header_version)
        except ProtocolError as error:
            raise self._network_exception(error) from error
        if correlation_id != sent.correlation_id:
            raise self._network_exception(
                f"answer {correlation_id} came instead of {sent.correlation_id}"
            )
        return Answer(frame, position)

    def close(self) -> None:
        """Closes the socket; harmless when it is closed."""
        self._socket.close()

    def _receive_exactly(self, count: int) -> memoryview:
        data = memoryview(bytearray(count))
        received = 0
        while received < count:
            try:
                arrived = self._socket.recv_into(data[received:])
            except OSError as error:
                raise self._network_exception(error) from error
            if not arrived:
                raise self._network_exception("the broker closed the connection")
            received += arrived
        return data

    def _ask_versions(self) -> Mapping[int, tuple[int, int]]:
        version = API_VERSIONS.max_version
        request = messages.encode_request(API_VERSIONS.key, version, {})
        answer = self.request(API_VERSIONS, version, [request])
        try:
            response = messages.decode_response(API_VERSIONS.key, version, *answer)
        except ProtocolError as error:
            raise self._network_exception(error) from error
        if response.error_code:
            raise BrokerError(ErrorCode(int(response.error_code)), f"from {self.address}")
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _network_exception(self, reason: object) -> BrokerError:
        return BrokerError(ErrorCode.NETWORK_EXCEPTION, f"{self.address}: {reason}")
