"""One client's connection: bytes to exchanges, answers to bytes, in order.

The rules that a client can observe:

- frames are handled strictly in order, and while a request is unanswered no further frame of
  its connection is handled (Kafka mutes the channel), unless its handler said `batched`;
- batched requests of one socket read are carried out together at the end of that read;
- answers leave in the order of the requests, those of one read in one write.

The rules that keep memory bounded:

- a frame is received where it will be handled; only the head of a frame that outgrows its
  buffer is ever copied;
- before its login, or its turn, a connection has memory for the bytes received, and little
  beyond;
- memory that an exchange still owns is not written to (`Exchange` says until when): the
  connection receives behind it, and when the tail is full it stops reading. Once all frames are
  released the buffer goes back, however long the answers take;
- a connection whose answers pile up in the transport handles nothing until they are drained,
  and all connections that do not read share a budget (`ResponseMemory`).

`Connection` is the state machine; it is compiled, so that a small request costs about a
microsecond here. It knows neither asyncio nor sockets: `socket_protocol.py` is the shell.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from odradek.clock import Clock
from odradek.log_limit import LimitedLog
from odradek.model import ANONYMOUS, KafkaPrincipal
from odradek.network.foreign_protocols import describe
from odradek.network.memory.receive_buffers import (
    READ_BUFFER_BYTES,
    SETUP_BUFFER_BYTES,
    BufferPool,
    ReceiveBuffer,
)
from odradek.network.memory.request_memory import RequestMemory
from odradek.network.memory.response_memory import ResponseMemory
from odradek.network.transport import Transport, advance_or_abort
from odradek.network.turns import Turns
from odradek.protocol.exchange import Exchange, RequestHandler
from odradek.protocol.framing import SIZE_BYTES, encode_size, frame_size
from odradek.protocol.primitives import Buffer, ProtocolError
from odradek.timer import Timer, TimerTask

LARGE_FRAME_BYTES: Final = READ_BUFFER_BYTES // 2  # from here on a frame is not read beyond
EAGER_BYTES: Final = 4 * 1024 * 1024  # up to this a frame's memory is set aside at once
FLUSH_BYTES: Final = 1024 * 1024  # answers of one read are written early when they exceed this
TURN_MS: Final = 5  # the longest time of a connection's frames before the others have their turn

# The reasons for which a connection handles no frames at the moment; any combination.
UNANSWERED: Final = 1
WRITE_FULL: Final = 2
MEMORY_FULL: Final = 4
CLOSED: Final = 8
THROTTLED: Final = 16
PAUSED: Final = 32
DEFERRED: Final = 64
HELD: Final = 128


@final
class ConnectionContext:
    """The state that the connections of one listener share."""

    def __init__(
        self,
        handler: RequestHandler,
        listener_name: str,
        clock: Clock,
        buffers: BufferPool,
        memory: RequestMemory,
        answers: ResponseMemory,
        frame_max_bytes: int,
        call_soon: Callable[[Callable[[], None]], object],
        timer: Timer,
        log: LimitedLog,
        turns: Turns | None = None,
    ) -> None:
        """With `turns` the connections handle frames only when it is theirs."""
        self.handler = handler
        self.listener_name = listener_name
        self.clock = clock
        self.buffers = buffers
        self.memory = memory
        self.answers = answers
        self.frame_max_bytes = frame_max_bytes
        self.call_soon = call_soon
        self.timer = timer
        self.log = log
        self.turns = turns


@final
class SocketExchange(Exchange):
    """A request read from a socket; its answer waits here for its turn."""

    def __init__(self, connection: "Connection", frame: memoryview, charged_bytes: int) -> None:
        super().__init__(
            frame,
            connection_id=connection.connection_id,
            client_host=connection.client_host,
            client_port=connection.client_port,
            listener_name=connection.context.listener_name,
            local_host=connection.local_host,
            local_port=connection.local_port,
            principal=connection.principal,
            received_ms=connection.received_ms,
        )
        self.connection = connection
        self.charged_bytes: i64 = charged_bytes
        self.finished = False
        self.answer: list[Buffer] | None = None
        self.cut_bytes: i64 = -1  # how much of the answer leaves; -1: all of it

    def send(self, buffers: list[Buffer]) -> None:
        """Keeps the answer for its turn."""
        self.answer = buffers
        self._finish()

    def send_part(self, buffers: list[Buffer], byte_count: int) -> None:
        """Keeps the answer for its turn, and closes in the middle of it."""
        self.cut_bytes = byte_count
        self.send(buffers)
        self.connection.close()

    def no_op(self) -> None:
        """Lets the next answer take the turn."""
        self._finish()

    def close(self) -> None:
        """Closes the connection after the answers given so far."""
        self._finish()
        self.connection.close()

    def answer_bytes(self) -> int:
        """The memory the broker has left for responses."""
        return self.connection.context.answers.left_bytes

    def throttle(self, throttle_time_ms: int) -> None:
        """Makes the connection handle nothing for so long."""
        self.connection.throttle(throttle_time_ms)

    def release_frame(self) -> None:
        """Gives the memory back to the connection."""
        if self._frame is not None:
            self._frame = None
            self.connection.on_released(self)

    def _finish(self) -> None:
        assert not self.finished, f"a request of {self.connection_id} was answered twice"
        self.finished = True
        self.release_frame()
        self.connection.on_finished()


@final
class Connection:
    """The state of one connection. Lives on the event loop, called by the shell and exchanges.

    Received bytes lie in `_data[_start:_end]`; the next read may fill up to `_limit`. Everything
    before `_start` was handled. There is no buffer (`_receive is None`) exactly when no bytes wait
    and no exchange owns a frame (`_frames_owned`).
    """

    def __init__(
        self,
        context: ConnectionContext,
        transport: Transport,
        connection_id: str,
        client_host: str,
        client_port: int,
        local_host: str,
        local_port: int,
    ) -> None:
        self.context = context
        self.connection_id = connection_id
        self.client_host = client_host
        self.client_port = client_port
        self.local_host = local_host
        self.local_port = local_port
        # Authentication sets it, before any request is handed on.
        self.principal: KafkaPrincipal = ANONYMOUS
        self.is_established = True  # False until the client is authenticated
        # Called when a connection that was held has its turn.
        self.on_let_in: Callable[[], None] | None = None
        # Receives the frames instead of the broker's handler, and hands on those that may pass.
        self.gate: RequestHandler | None = None
        self.frame_max_bytes: i64 = context.frame_max_bytes
        self.received_ms = context.clock.monotonic_ms()  # of the last read
        self._transport = transport
        self._memory = context.memory
        self._receive: ReceiveBuffer | None = None
        self._start: i64 = 0
        self._end: i64 = 0
        self._limit: i64 = 0
        self._expected_bytes: i64 = 0  # what the next buffer should hold: the last large frame
        self._charged_bytes: i64 = 0  # of the frame at `_start`, 0 while it is not paid for
        self._stalls: i64 = 0
        self._advancing = False
        self._turn_began_ms: i64 = 0
        self._reading_paused = False
        self._resume_scheduled = False
        self._frames_owned: i64 = 0
        self._throttle: TimerTask | None = None
        # Requests in order, the first of them unanswered.
        self._unanswered: deque[SocketExchange] = deque()
        self._out: list[Buffer] = []
        self._out_bytes: i64 = 0

    # --- called by the shell -------------------------------------------------------------

    def get_buffer(self) -> memoryview:
        """Returns the buffer for the next bytes; never empty, since a full connection pauses
        reading."""
        receive = self._receive
        if receive is None:
            if not self.is_established or self._stalls & HELD:
                self._expected_bytes = SETUP_BUFFER_BYTES
            receive = self._receive = self.context.buffers.take(self._expected_bytes)
            self._limit = self._expected_bytes or receive.capacity
        return receive.view[self._end : self._limit]

    def buffer_updated(self, byte_count: int) -> None:
        """Handles the frames that received bytes complete."""
        self._end += byte_count
        is_full = self._end == self._limit
        self.received_ms = self.context.clock.monotonic_ms()
        self._advance()
        if is_full and self._receive is None:
            # uvloop asks for the next buffer at once, in case there is more to read.
            self.context.call_soon(self.give_back)

    def give_back(self) -> None:
        """Gives back a buffer that was asked for and got nothing."""
        if self._start == self._end and self._frames_owned == 0:
            self._release_buffer()

    def pause_writing(self) -> None:
        """Stops answering: the transport is over its limit."""
        self._stalls |= WRITE_FULL
        self.context.answers.owe(self, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Continues, since the transport has drained, with the frames received meanwhile."""
        self._stalls &= ~WRITE_FULL
        self.context.answers.paid(self)
        self._resume_soon()

    def connection_lost(self) -> None:
        """Ends the connection. Later answers are dropped."""
        self._stalls |= CLOSED
        charged_bytes = self._charged_bytes
        for exchange in self._unanswered:
            charged_bytes += exchange.charged_bytes
            exchange.charged_bytes = 0
        self._unanswered.clear()
        self._charged_bytes = 0
        if charged_bytes:
            self._memory.release(charged_bytes)
        if self._throttle is not None:
            self._throttle.cancel()
        if self._stalls & WRITE_FULL:
            self.context.answers.paid(self)
        if self._frames_owned == 0:
            self._release_buffer()
        # Else it is not given back: an exchange that waits will still look at its frame.
        self._receive = None
        self._out = []
        self.context.handler.connection_closed(self.connection_id)

    def unread_bytes(self) -> int:
        """The size of responses that the client has not taken yet."""
        return self._transport.get_write_buffer_size()

    def drop(self) -> None:
        """Ends the connection at once, and drops unread answers."""
        self._transport.abort()

    @property
    def idle(self) -> bool:
        """Whether no request of the client is under way."""
        return not self._unanswered

    @property
    def reads(self) -> bool:
        """Whether the next bytes of the client would be read."""
        return not self._reading_paused and not self._stalls & CLOSED

    @property
    def is_held(self) -> bool:
        """Whether its turn has not come: nothing that the client sends is handled."""
        return bool(self._stalls & HELD)

    @property
    def waiting_bytes(self) -> int:
        """Received and not handled yet."""
        return self._end - self._start

    @property
    def buffer_bytes(self) -> int:
        """Memory set aside for receiving."""
        receive = self._receive
        return 0 if receive is None else receive.capacity

    # --- called by exchanges and by the listener ------------------------------------------

    def close(self) -> None:
        """Handles no more frames; closes once the answers so far have left."""
        if self._stalls & CLOSED:
            return
        self._stalls |= CLOSED
        if not self._advancing:
            self._close_transport()

    def pause(self) -> None:
        """Handles no frame and sends no answer until `resume`: the broker is paused."""
        self._stalls |= PAUSED

    def resume(self) -> None:
        """Undoes `pause`: sends the responses and handles the frames that have come meanwhile."""
        if self._stalls & PAUSED:
            self._stalls &= ~PAUSED
            self.on_finished()

    def hold(self) -> None:
        """Handles no frame until `let_in`: the connection waits for its turn."""
        self._stalls |= HELD

    def let_in(self) -> None:
        """Undoes `hold`."""
        self._stalls &= ~HELD
        self._resume_soon()
        if self.on_let_in is not None:
            self.on_let_in()

    def on_finished(self) -> None:
        """Called when an exchange is answered: at once (the frame loop handles it) or later
        (handled here)."""
        if self._advancing or self._stalls & (CLOSED | PAUSED):
            return
        self._collect_answers()
        self._flush()
        if self._stalls == 0 and self._start < self._end:
            self._resume_soon()
        else:
            self._make_room()

    def on_released(self, exchange: SocketExchange) -> None:
        """Called when an exchange has released its frame, perhaps before its answer."""
        self._frames_owned -= 1
        assert self._frames_owned >= 0, f"{self.connection_id} has released more than it received"
        if exchange.charged_bytes:
            self._memory.release(exchange.charged_bytes)
            exchange.charged_bytes = 0
        if self._frames_owned == 0 and not self._advancing and not self._stalls & CLOSED:
            self._make_room()

    def throttle(self, throttle_time_ms: int) -> None:
        """Handles no frame for so long from now; answers leave meanwhile as ever."""
        if self._stalls & CLOSED or throttle_time_ms <= 0:
            return
        task = self._throttle
        if task is None:
            task = self._throttle = TimerTask(throttle_time_ms, self._end_throttle)
        elif self._stalls & THROTTLED:
            ends_in_ms = task.expiration_ms - self.context.timer.now_ms
            throttle_time_ms = max(throttle_time_ms, ends_in_ms)
        self._stalls |= THROTTLED
        task.delay_ms = throttle_time_ms
        self.context.timer.add(task)

    def _end_throttle(self) -> None:
        self._stalls &= ~THROTTLED
        self._resume_soon()

    # --- handling frames -------------------------------------------------------------------

    def _resume_soon(self) -> None:
        """Continues in a separate turn: another connection's frame may be on the stack."""
        if not self._resume_scheduled:
            self._resume_scheduled = True
            self.context.call_soon(self._resume)

    def _resume(self) -> None:
        self._resume_scheduled = False
        self._stalls &= ~(MEMORY_FULL | DEFERRED)
        advance_or_abort(self._advance, self._transport)

    def _advance(self) -> None:
        if self._stalls & CLOSED:
            return
        turns = self.context.turns
        if turns is not None and self._stalls == 0 and not turns.admit(self._resume_soon):
            self._stalls |= DEFERRED
        self._advancing = True
        self._turn_began_ms = self.context.clock.monotonic_ms()
        while self._stalls == 0 and self._handle_frames():
            self.context.handler.end_of_read()
            if self._frames_owned:
                self._release_batched()
            self._collect_answers()
        self._advancing = False
        if self._stalls & CLOSED:
            self._close_transport()
            return
        self._flush()
        self._make_room()

    def _release_batched(self) -> None:
        """Takes back the frames of requests that were carried out and wait for their responses."""
        for exchange in self._unanswered:
            if exchange.batched:
                exchange.release_frame()

    def _close_transport(self) -> None:
        self._flush()
        self._transport.close()

    def _handle_frames(self) -> bool:
        """Handles complete frames until one must be waited for; returns whether there was any."""
        gate = self.gate
        handler = self.context.handler if gate is None else gate
        handled = False
        while self._stalls == 0:
            size = self._frame_bytes()
            if size < 0 or self._end - self._start - SIZE_BYTES < size:
                break
            receive = self._receive
            assert receive is not None, "a complete frame lies in a buffer"
            begin = self._start + SIZE_BYTES
            self._start = begin + size
            if size >= LARGE_FRAME_BYTES or self._expected_bytes:
                self._expect(size)
            charged_bytes = self._charged_bytes
            self._charged_bytes = 0
            exchange = SocketExchange(self, receive.view[begin : self._start], charged_bytes)
            self._frames_owned += 1
            handler.handle_frame(exchange)
            handled = True
            self._take_in(exchange)
            if not exchange.batched:
                self._maybe_defer()
        return handled

    def _maybe_defer(self) -> None:
        """Yields the loop to others when many frames take long; batched ones are done soon."""
        if self._stalls or self._start == self._end:
            return
        if self.context.clock.monotonic_ms() - self._turn_began_ms >= TURN_MS:
            self._stalls |= DEFERRED
            self._resume_soon()

    def _frame_bytes(self) -> i64:
        """Size of the frame at `_start`; -1 while unknown, forbidden, or not to be paid for."""
        start = self._start
        receive = self._receive
        if receive is None or self._end - start < SIZE_BYTES:
            return -1
        size: i64 = -1
        try:
            size = frame_size(receive.data, start, self.frame_max_bytes)
        except ProtocolError as error:
            remark = describe(bytes(receive.view[start : start + SIZE_BYTES]))
            self.context.log.warning(f"Closing {self.connection_id}: {error}{remark}")
            self.close()
            return -1
        # A client that has not logged in cannot use up the memory of other clients' requests.
        if self._memory.limited and self.is_established and not self._charged_bytes:
            if not self._memory.try_charge(size + SIZE_BYTES):
                self._stalls |= MEMORY_FULL
                self._memory.wait(self._resume_soon)
                return -1
            self._charged_bytes = size + SIZE_BYTES
        return size

    def _expect(self, size: i64) -> None:
        """Large frames come in rows: the next buffer is made for one like this."""
        self._expected_bytes = size + SIZE_BYTES if size >= LARGE_FRAME_BYTES else 0

    # --- answers in order --------------------------------------------------------------------

    def _take_in(self, exchange: SocketExchange) -> None:
        """Queues an exchange that was just handled; most are answered by now."""
        if exchange.finished and not self._unanswered:
            self._put_out(exchange)
            if self._out_bytes > FLUSH_BYTES:
                self._flush()
            return
        self._unanswered.append(exchange)
        if not exchange.finished and not exchange.batched:
            self._stalls |= UNANSWERED

    def _collect_answers(self) -> None:
        """Takes the answers whose turn has come; an unanswered request blocks the later ones."""
        unanswered = self._unanswered
        while unanswered and unanswered[0].finished:
            self._put_out(unanswered.popleft())
        if unanswered:
            self._stalls |= UNANSWERED
        else:
            self._stalls &= ~UNANSWERED

    def _put_out(self, exchange: SocketExchange) -> None:
        answer = exchange.answer
        if answer is None:
            return
        size: i64 = 0
        for buffer in answer:
            size += len(buffer)
        self._out.append(encode_size(size))
        if exchange.cut_bytes >= 0:
            answer = [b"".join(answer)[: exchange.cut_bytes]]
        self._out += answer
        self._out_bytes += size

    def _flush(self) -> None:
        if self._out:
            out = self._out
            self._out = []
            self._out_bytes = 0
            self._transport.writelines(out)
            if self._stalls & WRITE_FULL:
                # It was full before, or is so now: an answer that waited has come on top.
                self.context.answers.owe(self, self._transport.get_write_buffer_size())

    # --- room for the next bytes ---------------------------------------------------------------

    def _make_room(self) -> None:
        """Makes room for the next read, or pauses reading."""
        if self._frames_owned == 0:
            if self._start == self._end:
                self._release_buffer()
            elif self._stalls == 0:
                self._fit_frame()
        if self._stalls & CLOSED:
            return
        must_pause = self._receive is not None and self._end == self._limit
        if must_pause != self._reading_paused:
            self._reading_paused = must_pause
            if must_pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _release_buffer(self) -> None:
        receive = self._receive
        if receive is not None:
            self._receive = None
            self._start = self._end = self._limit = 0
            self.context.buffers.give(receive)

    def _fit_frame(self) -> None:
        """Gives the incomplete frame at `_start` the room it needs, in place if possible."""
        receive = self._receive
        assert receive is not None, "bytes that wait lie in a buffer"
        waiting = self._end - self._start
        size = self._frame_bytes()
        if self._stalls:
            return
        needed = SIZE_BYTES + (size if size > 0 else 0)
        room = needed
        eager: i64 = EAGER_BYTES if self.is_established else SETUP_BUFFER_BYTES
        if room > eager:
            # A size is only a promise: more memory than this is set aside as the bytes come.
            room = min(needed, max(eager, 2 * waiting))
        if self._start + room > receive.capacity:
            receive = self._move_to_front(receive, room)
        # The end of a large frame is not read beyond, so that the next one starts a buffer.
        self._limit = receive.capacity
        if needed >= LARGE_FRAME_BYTES:
            self._limit = min(receive.capacity, self._start + needed)

    def _move_to_front(self, receive: ReceiveBuffer, room: i64) -> ReceiveBuffer:
        """Puts the waiting bytes at the front of a buffer with `room`, of this one if it has."""
        waiting = self._end - self._start
        target = receive
        if room > receive.capacity:
            target = self.context.buffers.take(room)
        target.view[:waiting] = receive.view[self._start : self._end]
        if target is not receive:
            self.context.buffers.give(receive)
            self._receive = target
        self._start = 0
        self._end = waiting
        return target
