"""One socket to one broker: sends a request, waits for its answer.

Answers come in the order of the requests, so a caller may send several before it receives.
Whatever goes wrong with the socket or with what came over it is a `NetworkError`, which is
retriable: the connection is closed then and another one may do better.
"""

import math
import socket
import ssl
import time
from collections import deque
from collections.abc import Sequence

from odradek.client.addresses import Address
from odradek.client.apis import ClientApi
from odradek.client.core.connection import RENEWED_AFTER, ConnectionCore, ConnectionState
from odradek.client.core.handshake import Answer, LoginSource, LoginTerms
from odradek.client.errors import AuthenticationError, KafkaError, NetworkError, in_words
from odradek.client.security import NO_SECURITY, ClientSecurity
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
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        """Connects and asks for the broker's versions. An answer may take `timeout_s`, and so may
        the set-up, unless it has a time-out of its own.

        Raises:
            KafkaError: nobody answers there, or the broker refuses.
        """
        self.address = address
        self._login = security.login
        terms = None if self._login is None else _login_terms(self._login)
        self._core = ConnectionCore(client_id, login=terms)
        self._renew_at_s = math.inf  # by the monotonic clock
        self._answers: deque[Answer] = deque()
        self._last_used_s = time.monotonic()
        self._was_silent = False
        try:
            self._socket = socket.create_connection(address, setup_timeout_s or timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls is not None:
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=address.host)
        except ssl.SSLError as error:
            self._socket.close()
            raise AuthenticationError(f"{address}: TLS: {error.reason or error}") from error
        except OSError as error:
            raise NetworkError(f"{address}: {in_words(error)}") from error
        try:
            self._core.connected()
            self._flush()
            while self._core.state is not ConnectionState.READY:
                self._receive_some()
        except BaseException:  # of whoever is interrupted, too
            self.close()
            raise
        self._socket.settimeout(timeout_s)

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._core.state is ConnectionState.CLOSED

    @property
    def was_silent(self) -> bool:
        """Whether it was given up because no answer came."""
        return self._was_silent

    @property
    def in_flight_count(self) -> int:
        """How many requests wait for their answers."""
        return self._core.in_flight_count

    @property
    def idle_ms(self) -> float:
        """How long ago it was used last."""
        return (time.monotonic() - self._last_used_s) * 1000

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
        if timeout_ms is not None:
            self._socket.settimeout(timeout_ms / 1000)
        self.send(api, version, body)
        return self.receive()

    def send(self, api: ClientApi, version: int, body: Sequence[Buffer]) -> None:
        """Sends a request; `receive` gives its answer.

        Raises:
            NetworkError: the connection broke.
        """
        if self.is_closed:
            raise NetworkError(f"{self.address}: closed")
        self._last_used_s = time.monotonic()
        if self._last_used_s >= self._renew_at_s:
            self._renew_login()
        self._core.send(api, version, body, None)
        self._flush()

    def _renew_login(self) -> None:
        self._renew_at_s = math.inf
        if self._login is None:
            return
        try:
            self._core.renew_login(_login_terms(self._login))
        except KafkaError:
            self.close()  # the session ends soon, and the next connection asks anew
            raise

    def receive(self) -> Answer:
        """Waits for the answer to the oldest unanswered request.

        Raises:
            NetworkError: the connection broke.
        """
        while not self._answers:
            if self.is_closed:
                raise NetworkError(f"{self.address}: closed")
            assert self._core.in_flight_count, "nothing was asked"
            self._receive_some()
        return self._answers.popleft()

    def close(self, cause: KafkaError | None = None) -> None:  # noqa: ARG002 - nobody waits
        """Closes the socket; harmless when it is closed."""
        self._core.lost()
        self._socket.close()

    def _flush(self) -> None:
        try:
            self._socket.sendall(b"".join(self._core.take_outgoing()))
        except OSError as error:
            raise self._broken(error) from error

    def _receive_some(self) -> None:
        try:
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
            self._renew_at_s = time.monotonic() + lifetime_ms * RENEWED_AFTER / 1000

    def _broken(self, reason: object) -> NetworkError:
        self._was_silent = isinstance(reason, TimeoutError)
        self.close()
        return NetworkError(f"{self.address}: {in_words(reason)}")


def _login_terms(login: LoginSource) -> LoginTerms:
    """How to log in now; waits while somebody has to be asked for that.

    Raises:
        KafkaError: it is not to be had.
    """
    terms = login.at_hand()
    if terms is not None:
        return terms
    try:
        return login.fetch().result(login.limit_ms / 1000)
    except TimeoutError:
        raise NetworkError(f"no token was given within {login.limit_ms} ms") from None
