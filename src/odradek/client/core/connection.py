"""One connection to one broker, without its socket.

A connection is made in steps: the socket connects, then each step of the handshake asks and is
answered; only then requests are taken. The one step today is ApiVersions; a SASL exchange is a step
behind it, TLS the shell's affair before the first.

    CONNECTING --connected--> HANDSHAKE --last step answered--> READY --closed--> CLOSED

Answers come in the order of the requests, each with the correlation id of its request; anything
else means that one side has lost count, and the connection is of no use any more.
"""

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from odradek.client.apis import API_VERSIONS, ClientApi, VersionRanges, agree
from odradek.client.core import api_versions
from odradek.client.core.frames import HANDSHAKE_MAX_BYTES, RESPONSE_MAX_BYTES, FrameReceiver
from odradek.client.errors import raise_for
from odradek.errors import ErrorCode
from odradek.protocol.framing import encode_size
from odradek.protocol.header import (
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from odradek.protocol.primitives import Buffer, ProtocolError
from odradek.version import VERSION

_LARGEST_CORRELATION_ID: Final = 0x7FFFFFFF


class ConnectionState(Enum):
    """How far a connection is."""

    CONNECTING = "connecting"
    HANDSHAKE = "handshake"
    READY = "ready"
    CLOSED = "closed"


class ConnectionEvent(Enum):
    """What moves it."""

    CONNECTED = "connected"
    HANDSHAKE_DONE = "handshake done"
    LOST = "lost"


TRANSITIONS: Final[dict[ConnectionState, dict[ConnectionEvent, ConnectionState]]] = {
    ConnectionState.CONNECTING: {
        ConnectionEvent.CONNECTED: ConnectionState.HANDSHAKE,
        ConnectionEvent.LOST: ConnectionState.CLOSED,
    },
    ConnectionState.HANDSHAKE: {
        ConnectionEvent.HANDSHAKE_DONE: ConnectionState.READY,
        ConnectionEvent.LOST: ConnectionState.CLOSED,
    },
    ConnectionState.READY: {ConnectionEvent.LOST: ConnectionState.CLOSED},
    ConnectionState.CLOSED: {ConnectionEvent.LOST: ConnectionState.CLOSED},
}


class Answer(NamedTuple):
    """A response: its frame, and where in it the body begins."""

    frame: memoryview
    position: int


class Answered(NamedTuple):
    """An answer with what `send` was given to find its asker again."""

    context: object
    answer: Answer


class _Sent(NamedTuple):
    correlation_id: int
    header_version: int
    context: object


class ConnectionCore:
    """Requests in, buffers out; bytes in, answers out. One per socket.

    `context` of a request is anything that the shell knows its asker by. After an exception the
    connection is to be closed; `lost` then gives back whoever is still waiting.
    """

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._receiver = FrameReceiver(HANDSHAKE_MAX_BYTES)
        self._next_correlation_id = 0
        self._in_flight: deque[_Sent] = deque()
        self._outgoing: list[Buffer] = []
        self.state = ConnectionState.CONNECTING
        self.versions: VersionRanges = {}

    @property
    def in_flight_count(self) -> int:
        """How many requests wait for their answers."""
        return len(self._in_flight)

    def agree(self, api: ClientApi) -> int:
        """The version of an API to speak on this connection.

        Raises:
            UnsupportedVersion: there is none.
        """
        return agree(api, self.versions)

    def connected(self) -> None:
        """The socket is there: the handshake begins."""
        self._move(ConnectionEvent.CONNECTED)
        self._ask_versions(API_VERSIONS.max_version)

    def send(
        self,
        api: ClientApi,
        version: int,
        body: Sequence[Buffer],
        context: object,
        *,
        is_answered: bool = True,
    ) -> None:
        """Puts a request into `outgoing`; a produce without acknowledgement is not answered."""
        assert self.state is not ConnectionState.CLOSED, "nothing is sent on a closed connection"
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & _LARGEST_CORRELATION_ID
        header_version = request_header_version(api.key, version, api.flexible_from)
        header = encode_request_header(
            api.key, version, correlation_id, self._client_id, header_version
        )
        size = len(header) + sum(map(len, body))
        self._outgoing += [encode_size(size) + header, *body]
        if is_answered:
            header_version = response_header_version(api.key, version, api.flexible_from)
            self._in_flight.append(_Sent(correlation_id, header_version, context))

    def take_outgoing(self) -> list[Buffer]:
        """What has to be written to the socket now."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def get_buffer(self) -> memoryview:
        """Where the socket's next bytes are to be written; never empty."""
        return self._receiver.get_buffer()

    def buffer_updated(self, count: int) -> list[Answered]:
        """Takes note of `count` received bytes; returns the answers that they completed.

        Look at `state` and `take_outgoing` afterwards: the handshake may have gone on.

        Raises:
            ProtocolError: what came is no answer, or not to what was asked.
            KafkaError: the broker refuses the handshake.
        """
        answered: list[Answered] = []
        for frame in self._receiver.buffer_updated(count):
            # Who is answered stops waiting only when the whole read was well: `lost` tells the
            # asker of a bad answer, too, and those whose good ones came just before it.
            one = self._match(len(answered), frame)
            if isinstance(one.context, _VersionsAsked):
                self._in_flight.popleft()
                self._on_versions(one.context.version, one.answer)
            else:
                answered.append(one)
        for _ in answered:
            self._in_flight.popleft()
        return answered

    def lost(self) -> list[object]:
        """The connection is no more; returns the contexts of the requests without answer."""
        self._move(ConnectionEvent.LOST)
        contexts = [sent.context for sent in self._in_flight]
        self._in_flight.clear()
        self._outgoing = []
        return [context for context in contexts if not isinstance(context, _VersionsAsked)]

    def _move(self, event: ConnectionEvent) -> None:
        target = TRANSITIONS[self.state].get(event)
        assert target is not None, f"{event.name} cannot happen to a connection {self.state.name}"
        self.state = target

    def _match(self, index: int, frame: memoryview) -> Answered:
        if index >= len(self._in_flight):
            raise ProtocolError("an answer came that nobody asked for", 0)
        sent = self._in_flight[index]
        correlation_id, position = decode_response_header(frame, sent.header_version)
        if correlation_id != sent.correlation_id:
            raise ProtocolError(f"answer {correlation_id} came instead of {sent.correlation_id}", 0)
        return Answered(sent.context, Answer(frame, position))

    def _ask_versions(self, version: int) -> None:
        body = api_versions.encode_request(version, VERSION)
        self.send(API_VERSIONS, version, [body], _VersionsAsked(version))

    def _on_versions(self, version: int, answer: Answer) -> None:
        supported = api_versions.decode_response(version, answer.frame, answer.position)
        if supported.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            # An older broker, which says in its answer how far it goes; the oldest say nothing.
            known = {API_VERSIONS.key: (0, 0), **supported.ranges}
            self._ask_versions(agree(API_VERSIONS, known))
            return
        raise_for(supported.error_code, "the broker refuses to tell its versions")
        self.versions = supported.ranges
        self._receiver.frame_max_bytes = RESPONSE_MAX_BYTES
        self._move(ConnectionEvent.HANDSHAKE_DONE)


class _VersionsAsked(NamedTuple):
    """The context of the handshake's own request."""

    version: int
