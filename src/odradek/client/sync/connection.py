"""One socket to one broker: sends a request, waits for its answer.

Answers come in the order of the requests, so a caller may send several before it receives. Any
error of the socket or its data is a `NetworkError`, which is retriable: the connection is closed
then, and another one may work.
"""

import math
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence

from odradek.client.addresses import Address
from odradek.client.apis import ClientApi
from odradek.client.core.network.connection import RENEWED_AFTER, ConnectionCore, ConnectionState
from odradek.client.core.network.handshake import Answer, LoginSource, LoginTerms
from odradek.client.errors import KafkaError, NetworkError, in_words
from odradek.client.security import NO_SECURITY, ClientSecurity, tls_failure
from odradek.clock import monotonic_s
from odradek.protocol.primitives import Buffer, ProtocolError


class BlockingConnection:
    """A connection with the broker's API versions at hand."""

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        timeout_s: float,
        setup_timeout_s: float | None = None,
        share_s: Callable[[], float] = lambda: math.inf,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        """Connects to the first address of a name that answers, and asks for the broker's versions.
        An answer may take `timeout_s`, and so may the set-up with each address, unless that has its
        own time-out; neither takes longer than `share_s` returns when it begins.

        Raises:
            KafkaError: nobody answers there, or the broker refuses.
        """
        self.address = address
        self._login = security.login
        self._tls = security.tls
        self._timeout_s = timeout_s
        self._share_s = share_s
        self._deadline_s = math.inf  # as all of these, by the monotonic clock
        self._renew_at_s = math.inf
        self._answers: deque[Answer] = deque()
        self._last_used_s = monotonic_s()
        terms = None if self._login is None else _login_terms(self._login, share_s())
        failure = NetworkError(f"{address}: the name has no address")
        for host in _resolved(address):
            self._core = ConnectionCore(client_id, login=terms)
            try:
                self._open(host, setup_timeout_s or timeout_s)
                return
            except NetworkError as error:
                failure = error
        raise failure

    def _open(self, host: str, timeout_s: float) -> None:
        self._was_silent = False
        self._begin_waiting(timeout_s)
        try:
            self._socket = socket.create_connection((host, self.address.port), self._left_s())
        except OSError as error:
            raise NetworkError(f"{self.address}: {in_words(error)}") from error
        try:
            self._greet()
        except OSError as error:
            raise self._broken(error) from error
        except BaseException:  # also on an interrupt
            self.close()
            raise

    def _greet(self) -> None:
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._begin_tls()
        self._core.connected()
        self._flush()
        while self._core.state is not ConnectionState.READY:
            self._receive_some()

    def _begin_tls(self) -> None:
        if self._tls is None:
            return
        self._limit_waiting()
        try:
            self._socket = self._tls.wrap_socket(self._socket, server_hostname=self.address.host)
        except ssl.SSLError as error:
            raise tls_failure(self.address, error) from error

    @property
    def is_closed(self) -> bool:
        """Whether no request can be sent any more."""
        return self._core.state is ConnectionState.CLOSED

    @property
    def was_silent(self) -> bool:
        """Whether the connection was given up because a request timed out."""
        return self._was_silent

    @property
    def in_flight_count(self) -> int:
        """How many requests wait for their answers."""
        return self._core.in_flight_count

    @property
    def idle_ms(self) -> float:
        """The time since its last use."""
        return (monotonic_s() - self._last_used_s) * 1000

    def agree(self, api: ClientApi) -> int:
        """The version of an API to speak on this connection.

        Raises:
            UnsupportedVersion: there is none.
        """
        return self._core.agree(api)

    def request(
        self, api: ClientApi, version: int, body: Sequence[Buffer], timeout_ms: int | None = None
    ) -> Answer:
        """Sends a request and waits for its answer.

        Raises:
            NetworkError: the connection broke, or no answer came in time.
        """
        timeout_s = self._timeout_s if timeout_ms is None else timeout_ms / 1000
        self._send(api, version, body, timeout_s)
        return self._received()

    def send(self, api: ClientApi, version: int, body: Sequence[Buffer]) -> None:
        """Sends a request; `receive` gives its answer.

        Raises:
            NetworkError: the connection broke.
        """
        self._send(api, version, body, self._timeout_s)

    def _send(self, api: ClientApi, version: int, body: Sequence[Buffer], timeout_s: float) -> None:
        if self.is_closed:
            raise NetworkError(f"{self.address}: closed")
        self._last_used_s = monotonic_s()
        if self._last_used_s >= self._renew_at_s:
            self._renew_login()
        self._begin_waiting(timeout_s)
        self._core.send(api, version, body, None)
        self._flush()

    def _renew_login(self) -> None:
        self._renew_at_s = math.inf
        if self._login is None:
            return
        try:
            self._core.renew_login(_login_terms(self._login, self._share_s()))
        except KafkaError:
            self.close()  # the session ends soon, and the next connection asks again
            raise

    def receive(self) -> Answer:
        """Waits for the answer to the oldest unanswered request.

        Raises:
            NetworkError: the connection broke, or no answer came in time.
        """
        self._begin_waiting(self._timeout_s)
        return self._received()

    def _received(self) -> Answer:
        while not self._answers:
            if self.is_closed:
                raise NetworkError(f"{self.address}: closed")
            assert self._core.in_flight_count, "nothing was asked"
            self._receive_some()
        return self._answers.popleft()

    def close(self, cause: KafkaError | None = None) -> None:  # noqa: ARG002 - nobody waits
        """Closes the socket; a second call does nothing."""
        self._core.lost()
        self._socket.close()

    def _begin_waiting(self, timeout_s: float) -> None:
        self._deadline_s = monotonic_s() + min(timeout_s, self._share_s())

    def _left_s(self) -> float:
        left_s = self._deadline_s - monotonic_s()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s

    def _limit_waiting(self) -> None:
        """Limits the socket to the remaining time: a broker may send, and take, byte by byte."""
        self._socket.settimeout(self._left_s())

    def _flush(self) -> None:
        unsent = memoryview(b"".join(self._core.take_outgoing()))
        try:
            while unsent:
                self._limit_waiting()
                unsent = unsent[self._socket.send(unsent) :]
        except OSError as error:
            raise self._broken(error) from error

    def _receive_some(self) -> None:
        try:
            self._limit_waiting()
            count = self._socket.recv_into(self._core.get_buffer())
        except OSError as error:
            raise self._broken(error) from error
        if not count:
            raise self._broken("the broker closed the connection")
        try:
            answered = self._core.buffer_updated(count)
        except ProtocolError as error:
            raise self._broken(error) from error
        except KafkaError:
            self.close()  # a login that was refused would hold back all that is asked later
            raise
        self._note_session()
        self._answers.extend(one.answer for one in answered)
        self._flush()

    def _note_session(self) -> None:
        lifetime_ms = self._core.take_session_lifetime_ms()
        if lifetime_ms:
            self._renew_at_s = monotonic_s() + lifetime_ms * RENEWED_AFTER / 1000

    def _broken(self, reason: object) -> NetworkError:
        self._was_silent = isinstance(reason, TimeoutError)
        self.close()
        return NetworkError(f"{self.address}: {in_words(reason)}")


def _login_terms(login: LoginSource, share_s: float) -> LoginTerms:
    """The terms of a login; waits, for `share_s` at most, for a request of a token.

    Raises:
        KafkaError: there are none.
    """
    terms = login.at_hand()
    if terms is not None:
        return terms
    limit_s = min(login.limit_ms / 1000, share_s)
    try:
        return login.fetch().result(limit_s)
    except TimeoutError:
        raise NetworkError(f"no token was given within {round(limit_s * 1000)} ms") from None


def _resolved(address: Address) -> list[str]:
    """The addresses of a name, in the order in which they are to be tried."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, ValueError, OverflowError) as error:
        # A broker's metadata about the others may contain no valid host or port.
        raise NetworkError(f"{address}: {in_words(error)}") from error
    return list(dict.fromkeys(str(each[4][0]) for each in found))
