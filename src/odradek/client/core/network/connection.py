"""One connection to one broker, without its socket.

A connection is made in steps: the socket connects, then the handshake asks and is answered; only
then requests are taken. A SASL login is the last part of the handshake; the shell does TLS before
it. A login may be repeated on a connection that is ready: requests are held back meanwhile.

    CONNECTING --connected--> HANDSHAKE --last step answered--> READY --closed--> CLOSED

Answers come in the order of the requests, each with the correlation id of its request; any other
means that one side has lost count, and the connection cannot be used any more.
"""

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from odradek.client.apis import ClientApi, VersionRanges, agree
from odradek.client.core.network.frames import (
    HANDSHAKE_MAX_BYTES,
    RESPONSE_MAX_BYTES,
    FrameReceiver,
)
from odradek.client.core.network.handshake import (
    Answer,
    LoginSteps,
    LoginTerms,
    Question,
    handshake,
)
from odradek.client.core.network.traffic import Traffic
from odradek.protocol.framing import SIZE_BYTES, encode_size
from odradek.protocol.header import (
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from odradek.protocol.primitives import Buffer, ProtocolError

# Of a session's lifetime; the rest is for the next login itself.
RENEWED_AFTER: Final = 0.85
# Of it as well: the broker has counted from a moment before its answer came.
OVER_AFTER: Final = 0.95
_LARGEST_CORRELATION_ID: Final = 0x7FFFFFFF
# The context of the handshake's own requests.
_OF_HANDSHAKE: Final = object()
# The context of a login's.
_OF_LOGIN: Final = object()


class ConnectionState(Enum):
    """The states of a connection."""

    CONNECTING = "connecting"
    HANDSHAKE = "handshake"
    READY = "ready"
    CLOSED = "closed"


class ConnectionEvent(Enum):
    """An event that changes a connection's state."""

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


class Answered(NamedTuple):
    """An answer with the context that `send` got."""

    context: object
    answer: Answer


class _Sent(NamedTuple):
    correlation_id: int
    header_version: int
    context: object
    sent_ms: int


class ConnectionCore:
    """Requests in, buffers out; bytes in, answers out. One per socket.

    The `context` of a request is any object by which the shell finds its caller. After an exception
    the connection has to be closed; `lost` then returns the contexts that still wait.
    """

    def __init__(
        self, client_id: str, *, traffic: Traffic | None = None, login: LoginTerms | None = None
    ) -> None:
        self._client_id = client_id
        self._traffic = traffic
        self._handshake = handshake()
        self._login = login
        self._login_steps: LoginSteps | None = None
        self._held: list[tuple[list[Buffer], _Sent | None]] = []
        self.is_held = False
        self._session_lifetime_ms: int | None = None
        self._receiver = FrameReceiver(HANDSHAKE_MAX_BYTES)
        self._next_correlation_id = 0
        self._in_flight: deque[_Sent] = deque()
        self._outgoing: list[Buffer] = []
        self.state = ConnectionState.CONNECTING
        self.versions: VersionRanges = {}

    @property
    def in_flight_count(self) -> int:
        """How many requests wait for their answers."""
        return len(self._in_flight) + len(self._held)

    def agree(self, api: ClientApi) -> int:
        """The version of an API to speak on this connection.

        Raises:
            UnsupportedVersion: there is none.
        """
        return agree(api, self.versions)

    def connected(self) -> None:
        """The socket is there: the handshake begins."""
        self._move(ConnectionEvent.CONNECTED)
        self._go_on(None)

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
        buffers: list[Buffer] = [encode_size(size) + header, *body]
        sent_ms = 0 if self._traffic is None else self._traffic.sent(SIZE_BYTES + size)
        sent = None
        if is_answered:
            header_version = response_header_version(api.key, version, api.flexible_from)
            sent = _Sent(correlation_id, header_version, context, sent_ms)
        is_held = self.is_held or self._login_steps is not None
        if is_held and context is not _OF_LOGIN:
            self._held.append((buffers, sent))
        else:
            self._put(buffers, sent)

    def renew_login(self, terms: LoginTerms | None = None) -> None:
        """Logs in again, by new terms if there are any, before the session ends; requests wait
        until that is done. Does nothing while that is under way, or without a login."""
        self._login = terms or self._login
        if self.state is ConnectionState.READY and self._login_steps is None:
            self._begin_login()

    def hold(self) -> None:
        """Keeps requests until the login has been renewed: the broker closes a connection on which
        a request comes after its session."""
        self.is_held = True

    @property
    def has_held(self) -> bool:
        """Whether requests wait for the end of a login."""
        return bool(self._held)

    def take_session_lifetime_ms(self) -> int | None:
        """The lifetime of a session that has just begun, 0 being for ever; None if none has begun
        since the last call."""
        lifetime_ms, self._session_lifetime_ms = self._session_lifetime_ms, None
        return lifetime_ms

    def _put(self, buffers: list[Buffer], sent: _Sent | None) -> None:
        self._outgoing += buffers
        if sent is not None:
            self._in_flight.append(sent)

    def take_outgoing(self) -> list[Buffer]:
        """Takes the bytes to write to the socket now."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def get_buffer(self) -> memoryview:
        """Returns the buffer for the socket's next bytes; never empty."""
        return self._receiver.get_buffer()

    def buffer_updated(self, count: int) -> list[Answered]:
        """Takes in `count` received bytes; returns the answers that they complete.

        Look at `state` and `take_outgoing` afterwards: the handshake may have continued.

        Raises:
            ProtocolError: the data is no response, or not the expected one. KafkaError: the broker
                refuses the handshake.
        """
        answered: list[Answered] = []
        for frame in self._receiver.buffer_updated(count):
            # Answered callers stop waiting only if the whole read was valid: `lost` also returns
            # the caller of a bad response, and those whose good ones came just before it.
            one = self._match(len(answered), frame)
            if one.context is _OF_HANDSHAKE:
                self._in_flight.popleft()
                self._go_on(one.answer)
            elif one.context is _OF_LOGIN:
                del self._in_flight[len(answered)]  # behind those that were asked before it
                self._on_login(one.answer)
            else:
                answered.append(one)
        for _ in answered:
            self._in_flight.popleft()
        return answered

    def lost(self) -> list[object]:
        """Ends the connection; returns the contexts of the requests without answer."""
        self._move(ConnectionEvent.LOST)
        held = [sent for _, sent in self._held if sent is not None]
        contexts = [sent.context for sent in (*self._in_flight, *held)]
        self._in_flight.clear()
        self._held = []
        self._login_steps = None
        self._outgoing = []
        return [each for each in contexts if each is not _OF_HANDSHAKE and each is not _OF_LOGIN]

    def _move(self, event: ConnectionEvent) -> None:
        target = TRANSITIONS[self.state].get(event)
        assert target is not None, f"{event.name} cannot happen to a connection {self.state.name}"
        self.state = target

    def _match(self, index: int, frame: memoryview) -> Answered:
        if index >= len(self._in_flight):
            raise ProtocolError("a response came without a request", 0)
        sent = self._in_flight[index]
        correlation_id, position = decode_response_header(frame, sent.header_version)
        if correlation_id != sent.correlation_id:
            raise ProtocolError(f"answer {correlation_id} came instead of {sent.correlation_id}", 0)
        if self._traffic is not None:
            self._traffic.received(SIZE_BYTES + len(frame), sent.sent_ms)
        return Answered(sent.context, Answer(frame, position))

    def _go_on(self, answer: Answer | None) -> None:
        """Sends the handshake's next question, or begins the login, or ends the handshake."""
        try:
            asked = next(self._handshake) if answer is None else self._handshake.send(answer)
        except StopIteration as end:
            self.versions = end.value
            if self._login is None:
                self._handshake_done()
            else:
                self._begin_login()
        else:
            self.send(asked.api, asked.version, [asked.body], _OF_HANDSHAKE)

    def _handshake_done(self) -> None:
        self._receiver.frame_max_bytes = RESPONSE_MAX_BYTES
        self._move(ConnectionEvent.HANDSHAKE_DONE)

    def _begin_login(self) -> None:
        if self._login is not None:
            self.is_held = False
            self._login_steps = self._login.begin(self.versions)
            self._ask_login(next(self._login_steps))

    def _ask_login(self, question: Question) -> None:
        self.send(question.api, question.version, [question.body], _OF_LOGIN)

    def _on_login(self, answer: Answer) -> None:
        steps = self._login_steps
        assert steps is not None, "a login is answered while it is under way"
        try:
            self._ask_login(steps.send(answer))
        except StopIteration as end:
            self._session_lifetime_ms = end.value
            self._login_steps = None
            if self.state is ConnectionState.HANDSHAKE:
                self._handshake_done()
            held, self._held = self._held, []
            for buffers, sent in held:
                self._put(buffers, sent)
