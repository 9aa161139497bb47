"""A transport and a request handler that only remember what was done to them."""

import logging
import struct
from collections.abc import Callable

from odradek.clock import ManualClock
from odradek.log_limit import LimitedLog
from odradek.network.connection import Connection, ConnectionContext
from odradek.network.memory.receive_buffers import BufferPool
from odradek.network.memory.request_memory import RequestMemory
from odradek.network.memory.response_memory import ResponseMemory
from odradek.network.turns import Turns
from odradek.protocol.exchange import Exchange, RequestHandler
from odradek.timer import MockTimer


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


class FakeTransport:
    """Collects writes; never full unless the test says so."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.reading = True
        self.closed = False
        self.aborted = False
        self.unread_bytes = 0

    @property
    def written(self) -> bytes:
        return b"".join(self.writes)

    def writelines(self, buffers: list[bytes]) -> None:
        assert not self.closed, "written after close"
        self.writes.append(b"".join(buffers))

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def pause_reading(self) -> None:
        assert self.reading, "paused twice"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "resumed while reading"
        self.reading = True

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class FakeHandler(RequestHandler):
    """Echoes a frame, unless its first letter asks for something else.

    `T` takes 4 ms, by `clock`; `p` parks the request until the test answers it, `b` batches it
    until the end of the read, `w` batches it and leaves it unanswered even then, `r` is parked
    without its frame, `n` answers nothing, `x` drops the connection, `q` throttles for 100 ms.
    Parked ones are in `parked`, in order.
    """

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock
        self.handled: list[bytes] = []
        self.parked: list[Exchange] = []
        self.batch: list[Exchange] = []
        self.reads_ended = 0
        self.closed: list[str] = []

    def handle_frame(self, exchange: Exchange) -> None:
        body = bytes(exchange.frame)
        self.handled.append(body)
        match body[:1]:
            case b"p":
                self.parked.append(exchange)
            case b"b" | b"w":
                exchange.batched = True
                self.batch.append(exchange)
            case b"r":
                exchange.release_frame()
                self.parked.append(exchange)
            case b"q":
                exchange.throttle(100)
                exchange.send([body])
            case b"T":
                assert self.clock is not None, "somebody has to have time"
                self.clock.advance(4)
                exchange.send([body])
            case b"n":
                exchange.no_op()
            case b"x":
                exchange.close()
            case _:
                exchange.send([body])

    def end_of_read(self) -> None:
        self.reads_ended += 1
        batch, self.batch = self.batch, []
        for exchange in batch:
            if exchange.frame[:1] == b"w":
                self.parked.append(exchange)
            else:
                exchange.send([bytes(exchange.frame)])

    def connection_closed(self, connection_id: str) -> None:
        self.closed.append(connection_id)


class Harness:
    """A connection over a fake transport, with a loop that runs when told."""

    def __init__(
        self,
        frame_max_bytes: int = 1 << 26,
        request_memory_bytes: int = -1,
        *,
        has_control_plane: bool = False,
    ) -> None:
        self.timer = MockTimer()
        self.clock = self.timer.manual_clock
        self.handler = FakeHandler(self.clock)
        self.pool = BufferPool()
        self.memory = RequestMemory(request_memory_bytes)
        self.dropped: list[int] = []
        self.answers = ResponseMemory(self.clock, self.dropped.append, 1000, 30_000)
        self.soon: list[Callable[[], None]] = []
        turns = Turns(self.clock, self.soon.append) if has_control_plane else None
        self.context = self.make_context(frame_max_bytes, turns)
        self.transport = FakeTransport()
        self.connection = self.connect(self.transport)

    def make_context(self, frame_max_bytes: int, turns: Turns | None) -> ConnectionContext:
        return ConnectionContext(
            self.handler,
            "PLAINTEXT",
            self.clock,
            self.pool,
            self.memory,
            self.answers,
            frame_max_bytes,
            self.soon.append,
            self.timer,
            LimitedLog(logging.getLogger("test"), self.clock),
            turns,
        )

    def connect(self, transport: FakeTransport) -> Connection:
        return Connection(self.context, transport, "here-there-1", "there", 5, "here", 9092)

    def receive(self, data: bytes) -> None:
        """Delivers bytes as a socket would: as many as the offered buffer takes, repeatedly."""
        while data:
            assert self.transport.reading, "the connection stopped reading"
            room = self.connection.get_buffer()
            part = data[: len(room)]
            room[: len(part)] = part
            data = data[len(part) :]
            self.connection.buffer_updated(len(part))

    def receive_while_reading(self, data: bytes) -> bytes:
        """Delivers until the connection stops reading; answers what was not taken."""
        while data and self.transport.reading:
            part = data[: len(self.connection.get_buffer())]
            self.receive(part)
            data = data[len(part) :]
        return data

    def turn(self) -> None:
        """One turn of the loop: runs what was scheduled."""
        soon, self.soon[:] = list(self.soon), []
        for call in soon:
            call()
