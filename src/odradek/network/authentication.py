"""The gate of a listener with SASL: no request passes before its connection is logged in.

One a connection. `security` has the rules of a login; here are the frames, their responses, and the
delay before a refused login is answered.
"""

import logging
from typing import Final, final

from odradek.log_limit import LimitedLog, printable
from odradek.network.connection import Connection
from odradek.protocol.exchange import Exchange, RequestHandler
from odradek.security.sasl.authenticator import Authenticator, LoginRules, Next
from odradek.timer import TimerTask

_LOG: Final = logging.getLogger(__name__)


@final
class LoginGates:
    """Makes the gates of a listener."""

    def __init__(
        self, rules: LoginRules, log: LimitedLog, receive_max_bytes: int, failure_delay_ms: int
    ) -> None:
        """Before a login frames have at most `receive_max_bytes`; the last answer to a refused one
        leaves after `failure_delay_ms`."""
        self.rules = rules
        self.log = log
        self.receive_max_bytes = receive_max_bytes
        self.failure_delay_ms = failure_delay_ms

    def guard(self, connection: Connection) -> None:
        """Puts a gate before a connection that has just come."""
        connection.frame_max_bytes = self.receive_max_bytes
        connection.gate = LoginGate(self, connection)


@final
class LoginGate(RequestHandler):
    """Takes the frames of one connection: handles those of its logins, and passes on all others."""

    def __init__(self, gates: LoginGates, connection: Connection) -> None:
        self._gates = gates
        self._connection = connection
        self._login = Authenticator(gates.rules)

    def handle_frame(self, exchange: Exchange) -> None:
        """See `RequestHandler`."""
        login = self._login
        if not login.is_complete:
            self._log_in(exchange)
            return
        frame = exchange.frame
        if len(frame) >= 2 and login.begins_again(frame[0] << 8 | frame[1]):
            self._log_in(exchange)
        elif login.is_expired():
            self._close(exchange, "its session has expired, and it did not authenticate again")
        else:
            self._connection.context.handler.handle_frame(exchange)

    def end_of_read(self) -> None:
        """See `RequestHandler`; the connection ends a read at its broker's."""
        self._connection.context.handler.end_of_read()

    def connection_closed(self, connection_id: str) -> None:
        """See `RequestHandler`."""

    def _log_in(self, exchange: Exchange) -> None:
        step = self._login.receive(exchange.frame)
        if step.next is Next.HAND_ON:
            self._connection.context.handler.handle_frame(exchange)
        elif step.next is Next.CLOSE:
            self._refuse(exchange, step.answer, step.reason)
        else:
            assert step.answer is not None, "an answer is there to be sent"
            if self._login.is_complete:
                self._open()
            exchange.send([step.answer])

    def _open(self) -> None:
        connection = self._connection
        connection.principal = self._login.principal
        connection.frame_max_bytes = connection.context.frame_max_bytes
        connection.is_established = True

    def _refuse(self, exchange: Exchange, answer: bytes | None, reason: str) -> None:
        """Answers, and closes the connection, after a delay, which slows down the guessing of
        passwords."""
        connection = self._connection
        self._gates.log.warning(f"Refused {connection.connection_id}: {printable(reason)}")
        exchange.release_frame()

        def end() -> None:
            if answer is not None:
                exchange.send([answer])
                connection.close()
            else:
                exchange.close()

        if self._gates.failure_delay_ms <= 0:
            end()
        else:
            connection.context.timer.add(TimerTask(self._gates.failure_delay_ms, end))

    def _close(self, exchange: Exchange, reason: str) -> None:
        _LOG.info("Closing %s: %s", self._connection.connection_id, reason)
        exchange.close()
