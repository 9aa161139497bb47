"""`FaultyHandler`: applies the current faults before the dispatcher.

A fault changes the exchange: refused by the dispatcher, held back by the broker's timer, closed, or
wrapped so that its answer is delayed, dropped or cut. The first matching fault applies to a
request; otherwise the dispatcher handles it as usual.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from odradek.handlers.table import API_TABLE
from odradek.model import TopicPartition
from odradek.protocol.exchange import Exchange, RequestHandler
from odradek.protocol.header import RequestHeader, decode_request_header
from odradek.protocol.primitives import Buffer, ProtocolError
from odradek.server.faults.fault import Effect, Fault
from odradek.server.faults.named import Named, named_by
from odradek.timer import TimerTask

if TYPE_CHECKING:
    from odradek.server.broker import BrokerServer

_FLEXIBLE_FROM: Final = {api.key: api.flexible_from for api in API_TABLE.values()}


class FaultyHandler(RequestHandler):
    """The dispatcher of one broker, with faults. `faults()` are those in force, oldest first."""

    def __init__(
        self,
        server: "BrokerServer",
        faults: Callable[[], Sequence[Fault]],
        on_struck: Callable[[Fault], None],
    ) -> None:
        self._server: Final = server
        self._inner: Final = server.dispatcher
        self._faults: Final = faults
        self._on_struck: Final = on_struck

    def handle_frame(self, exchange: Exchange) -> None:
        """Takes a request up, or what a fault has left of it."""
        try:
            header = decode_request_header(exchange.frame, _FLEXIBLE_FROM)
        except ProtocolError:
            self._inner.handle_frame(exchange)
            return
        fault = self._find(exchange, header)
        if fault is None:
            self._inner.handle_frame(exchange)
            return
        fault.struck += 1
        self._on_struck(fault)
        self._strike(fault, exchange, header)

    def end_of_read(self) -> None:
        """See the dispatcher."""
        self._inner.end_of_read()

    def connection_closed(self, connection_id: str) -> None:
        """See the dispatcher."""
        self._inner.connection_closed(connection_id)

    def _find(self, exchange: Exchange, header: RequestHeader) -> Fault | None:
        api = API_TABLE.get(header.api_key)
        if api is None or not api.serves(header.api_version):
            return None
        broker_id = self._server.config.broker_id
        named: Named | None = None
        for fault in self._faults():
            if not fault.filter.admits(broker_id, header.api_key, header.client_id):
                continue
            if fault.filter.looks_inside:
                if named is None:
                    image = self._server.metadata.image
                    sessions = self._server.fetch_sessions
                    named = named_by(header, exchange.frame, image, sessions)
                if not fault.filter.holds(named):
                    continue
            return fault
        return None

    def _strike(self, fault: Fault, exchange: Exchange, header: RequestHeader) -> None:
        match fault.effect:
            case Effect.REFUSE:
                self._inner.refuse(exchange, header, fault.error, _concerned(fault))
            case Effect.DROP_REQUEST:
                exchange.close()
            case Effect.DELAY_REQUEST:
                self._later(fault.delay_ms, lambda: self._handle_late(exchange))
            case Effect.DROP_ANSWER:
                self._wrap(_DroppedAnswer(exchange))
            case Effect.CUT_ANSWER:
                self._wrap(_CutAnswer(exchange))
            case Effect.DELAY_ANSWER:
                self._wrap(_LateAnswer(exchange, lambda act: self._later(fault.delay_ms, act)))
            case _:
                raise AssertionError(f"{fault.effect} is nothing that is done to requests")

    def _later(self, delay_ms: int, act: Callable[[], None]) -> None:
        self._server.timer.add(TimerTask(delay_ms, act))

    def _handle_late(self, exchange: Exchange) -> None:
        self._inner.handle_frame(exchange)
        self._inner.end_of_read()

    def _wrap(self, exchange: "_WrappedExchange") -> None:
        self._inner.handle_frame(exchange)
        exchange.inner.batched = exchange.batched


def _concerned(fault: Fault) -> Callable[[TopicPartition], bool]:
    topic, partition = fault.filter.topic, fault.filter.partition

    def concerns(where: TopicPartition) -> bool:
        return topic in (None, where.topic) and partition in (None, where.partition)

    return concerns


class _WrappedExchange(Exchange):
    """An exchange whose answer does not leave as it should."""

    def __init__(self, inner: Exchange) -> None:
        super().__init__(
            inner.frame,
            connection_id=inner.connection_id,
            client_host=inner.client_host,
            client_port=inner.client_port,
            listener_name=inner.listener_name,
            local_host=inner.local_host,
            local_port=inner.local_port,
            principal=inner.principal,
            received_ms=inner.received_ms,
        )
        self.inner: Final = inner

    def release_frame(self) -> None:
        self.inner.release_frame()
        super().release_frame()

    def answer_bytes(self) -> int:
        return self.inner.answer_bytes()

    def throttle(self, throttle_time_ms: int) -> None:
        self.inner.throttle(throttle_time_ms)

    def send(self, buffers: list[Buffer]) -> None:
        raise NotImplementedError

    def no_op(self) -> None:
        """There is no answer to be done anything to."""
        self.inner.no_op()

    def close(self) -> None:
        self.inner.close()


class _DroppedAnswer(_WrappedExchange):
    def send(self, buffers: list[Buffer]) -> None:  # noqa: ARG002 - that is the fault
        self.inner.close()

    def no_op(self) -> None:
        self.inner.close()


class _CutAnswer(_WrappedExchange):
    def send(self, buffers: list[Buffer]) -> None:
        self.inner.send_part(buffers, sum(map(len, buffers)) // 2)


class _LateAnswer(_WrappedExchange):
    def __init__(self, inner: Exchange, later: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(inner)
        self._later: Final = later

    def send(self, buffers: list[Buffer]) -> None:
        self._later(lambda: self.inner.send(buffers))
