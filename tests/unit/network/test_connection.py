"""The state machine of a connection: order, muting, batching, back-pressure, bad sizes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.network.fakes import FakeTransport, Harness, framed

from odradek.network.memory.receive_buffers import READ_BUFFER_BYTES, SETUP_BUFFER_BYTES

TWO_BUFFERS = [b"e" * 1000] * (2 * READ_BUFFER_BYTES // 1000)


def test_answers_have_a_size_and_leave_in_one_write_per_read() -> None:
    """Goal: the replies of one socket read cost one system call."""
    harness = Harness()
    harness.receive(framed(b"one", b"two", b"three"))
    assert harness.transport.writes == [framed(b"one", b"two", b"three")]
    assert harness.handler.reads_ended == 1


@given(st.lists(st.binary(max_size=300), max_size=30), st.integers(1, 997))
def test_frames_survive_any_cut(bodies: list[bytes], step: int) -> None:
    """Goal: frames arrive whole and once, however TCP cuts the stream."""
    bodies = [b"e" + body for body in bodies]
    harness = Harness()
    stream = framed(*bodies)
    for begin in range(0, len(stream), step):
        harness.receive(stream[begin : begin + step])
    assert harness.handler.handled == bodies
    assert harness.transport.written == stream


@given(st.lists(st.tuples(st.integers(0, 700_000), st.integers(1, 400_000)), max_size=6))
def test_large_and_small_frames_mix(sizes: list[tuple[int, int]]) -> None:
    """Goal: growing, reusing and compacting receive buffers never loses or mixes a byte."""
    harness = Harness()
    bodies = [bytes([65 + index]) * size for index, (size, _) in enumerate(sizes) if size]
    stream = framed(*bodies)
    position = 0
    for _, step in sizes * 20:
        harness.receive(stream[position : position + step])
        position += step
    harness.receive(stream[position:])
    assert harness.handler.handled == bodies


def test_a_large_frame_is_received_where_it_is_handled() -> None:
    """Goal: rows of large frames are not copied: each starts its buffer and is not read beyond."""
    harness = Harness()
    body = b"e" * 1_000_000
    harness.receive(framed(body))
    room = harness.connection.get_buffer()
    assert len(room) == len(body) + 4
    stream = framed(body, body)
    room[:] = stream[: len(room)]
    harness.connection.buffer_updated(len(room))
    assert harness.handler.handled == [body, body]


def test_memory_is_set_aside_as_the_bytes_come() -> None:
    """Goal: announcing the largest frame costs the announcer's victim next to nothing."""
    harness = Harness(frame_max_bytes=100 << 20)
    body = b"e" * (90 << 20)
    stream = framed(body)
    harness.receive(stream[:1000])
    for received in (1000, 5 << 20, 20 << 20):
        harness.receive(stream[harness.connection.waiting_bytes : received])
        assert harness.connection.buffer_bytes <= max(4 << 20, 4 * received)
    harness.receive(stream[harness.connection.waiting_bytes :])
    assert harness.handler.handled == [body]


def test_an_idle_connection_holds_no_buffer() -> None:
    """Goal: memory does not grow with the number of idle clients."""
    harness = Harness()
    harness.receive(framed(b"one"))
    assert harness.pool.retained_bytes == READ_BUFFER_BYTES


def test_a_buffer_that_got_nothing_is_given_back() -> None:
    """uvloop asks for another one when a read has filled the last: for each idle client of large
    requests one of their size would stay."""
    harness = Harness()
    harness.receive(framed(b"e" * READ_BUFFER_BYTES))
    assert len(harness.connection.get_buffer()) >= READ_BUFFER_BYTES
    harness.turn()
    assert not harness.connection.buffer_bytes
    assert harness.pool.retained_bytes == 3 * READ_BUFFER_BYTES, "that of a read, and a larger one"


def test_a_buffer_that_got_something_is_kept() -> None:
    harness = Harness()
    frame = framed(b"e" * READ_BUFFER_BYTES)
    harness.receive(frame + frame[:100])
    harness.turn()
    assert harness.connection.waiting_bytes == 100
    harness.receive(frame[100:])
    assert harness.transport.written == frame * 2


def test_a_buffer_of_which_a_request_has_its_frame_is_kept() -> None:
    """Another connection would write into the request."""
    harness = Harness()
    harness.receive(framed(b"e" * READ_BUFFER_BYTES))
    harness.receive(framed(b"park"))
    harness.turn()
    assert harness.connection.buffer_bytes
    harness.handler.parked[0].send([b"done"])
    assert not harness.connection.buffer_bytes


def test_an_unanswered_request_mutes_its_connection() -> None:
    """Goal: one request in flight per connection; the next is handled after the answer."""
    harness = Harness()
    harness.receive(framed(b"first", b"park", b"last"))
    assert harness.handler.handled == [b"first", b"park"]
    assert harness.transport.written == framed(b"first")
    harness.handler.parked[0].send([b"an", b"swer"])
    assert harness.transport.written == framed(b"first", b"answer")
    assert harness.handler.handled[-1] == b"park", "not on the answerer's stack"
    harness.turn()
    assert harness.transport.written == framed(b"first", b"answer", b"last")


def test_batched_requests_are_carried_out_together_and_answered_in_order() -> None:
    """Goal: a burst of small produce requests is one append, and order holds around it."""
    harness = Harness()
    harness.receive(framed(b"b1", b"echo", b"b2", b"none", b"b3"))
    assert harness.handler.handled == [b"b1", b"echo", b"b2", b"none", b"b3"]
    assert harness.handler.reads_ended == 1
    assert harness.transport.writes == [framed(b"b1", b"echo", b"b2", b"b3")]


def test_batched_requests_that_wait_mute_after_the_read() -> None:
    """Goal: acks=all waits for replicas without the connection running ahead without bound."""
    harness = Harness()
    harness.receive(framed(b"w1", b"w2"))
    harness.receive(framed(b"echo"))
    assert harness.handler.handled == [b"w1", b"w2"]
    second, first = harness.handler.parked[1], harness.handler.parked[0]
    second.send([b"2"])
    assert harness.transport.written == b"", "the first answer is not there yet"
    first.send([b"1"])
    harness.turn()
    assert harness.transport.written == framed(b"1", b"2", b"echo")


def test_the_frame_of_a_parked_request_stays_untouched() -> None:
    """Goal: receiving goes on behind a parked frame but never over it."""
    harness = Harness()
    harness.receive(framed(b"parked-frame"))
    frame = harness.handler.parked[0].frame
    harness.receive_while_reading(framed(*TWO_BUFFERS))
    assert not harness.transport.reading, "a full connection that waits must stop reading"
    assert bytes(frame) == b"parked-frame"


def test_a_released_frame_gives_its_buffer_back_before_the_answer() -> None:
    """Ten thousand waiting consumers would hold 2.5 GB of receive buffers."""
    harness = Harness()
    harness.receive(framed(b"released"))
    assert harness.connection.buffer_bytes == 0
    assert harness.pool.retained_bytes == READ_BUFFER_BYTES
    harness.receive(framed(b"echo"))
    assert harness.handler.handled == [b"released"], "it is muted as ever"
    harness.handler.parked[0].send([b"answer"])
    harness.turn()
    assert harness.transport.written == framed(b"answer", b"echo")
    assert harness.connection.buffer_bytes == 0


def test_a_frame_is_released_once() -> None:
    """Its memory would be counted as free while another exchange still owns a part of it."""
    harness = Harness(request_memory_bytes=1 << 20)
    harness.receive(framed(b"released", b"parked"))
    first = harness.handler.parked[0]
    first.release_frame()
    with pytest.raises(AssertionError, match="after its release"):
        len(first.frame)
    first.send([b"1"])
    harness.turn()
    assert harness.connection.buffer_bytes == READ_BUFFER_BYTES, "the second one is still owned"
    assert harness.memory.used_bytes == 4 + len(b"parked")
    harness.handler.parked[1].release_frame()
    assert (harness.connection.buffer_bytes, harness.memory.used_bytes) == (0, 0)
    harness.connection.connection_lost()
    harness.handler.parked[1].send([b"2"])
    assert harness.memory.used_bytes == 0


def test_what_was_batched_lets_go_of_its_frame_at_the_end_of_the_read() -> None:
    """Produces that wait for replicas would hold a buffer for each connection."""
    harness = Harness()
    harness.receive(framed(b"w1", b"w2"))
    assert harness.connection.buffer_bytes == 0
    with pytest.raises(AssertionError, match="after its release"):
        len(harness.handler.parked[0].frame)


@given(st.lists(st.sampled_from([b"e", b"p", b"b", b"w", b"r", b"n"]), max_size=30), st.data())
def test_memory_that_is_owned_is_never_written_to(kinds: list[bytes], data: st.DataObject) -> None:
    """Records that are still to be appended would be those of another request."""
    harness = Harness()
    bodies = [kind + bytes([index]) * 30_000 for index, kind in enumerate(kinds)]
    rest = framed(*bodies)
    owned: dict[int, bytes] = {}
    answered = 0
    while rest or answered < len(harness.handler.parked):
        if harness.transport.reading and rest:
            size = data.draw(st.integers(1, 200_000))
            room = harness.connection.get_buffer()
            size = min(size, len(room), len(rest))
            room[:size] = rest[:size]
            rest = rest[size:]
            harness.connection.buffer_updated(size)
        elif answered < len(harness.handler.parked):
            exchange = harness.handler.parked[answered]
            answered += 1
            if id(exchange) in owned:
                assert bytes(exchange.frame) == owned[id(exchange)]
            exchange.send([b"ok"])
        for exchange in harness.handler.parked[answered:]:
            if exchange._frame is not None:
                owned.setdefault(id(exchange), bytes(exchange.frame))
                assert bytes(exchange.frame) == owned[id(exchange)]
        harness.turn()
    assert harness.handler.handled == bodies
    assert harness.connection.buffer_bytes == 0


def test_a_throttled_connection_handles_nothing_until_its_time_is_over() -> None:
    """A client over its quota would go on at full speed, or never be served again."""
    harness = Harness()
    harness.receive(framed(b"quota", b"echo"))
    assert harness.transport.written == framed(b"quota"), "the answer leaves at once"
    harness.timer.advance_clock(99)
    harness.turn()
    assert harness.handler.handled == [b"quota"]
    harness.timer.advance_clock(1)
    harness.turn()
    assert harness.transport.written == framed(b"quota", b"echo")


def test_throttling_again_takes_the_longer_of_both() -> None:
    """A client could shorten its punishment by one more request."""
    harness = Harness()
    harness.connection.throttle(500)
    harness.connection.throttle(100)
    harness.connection.throttle(0)
    harness.receive(framed(b"echo"))
    harness.timer.advance_clock(499)
    harness.turn()
    assert harness.handler.handled == []
    harness.connection.throttle(500)
    harness.timer.advance_clock(1)
    harness.turn()
    assert harness.handler.handled == []
    harness.timer.advance_clock(499)
    harness.turn()
    assert harness.handler.handled == [b"echo"]


def test_a_throttled_connection_that_ends_leaves_nothing_in_the_timer() -> None:
    """Connections that come and go would pile up in the wheel."""
    harness = Harness()
    harness.connection.throttle(500)
    harness.connection.connection_lost()
    assert harness.timer.size == 0


def test_a_muted_connection_resumes_reading() -> None:
    """Goal: back-pressure ends when the answer has been given, and nothing is lost by it."""
    harness = Harness()
    stream = framed(b"park", *TWO_BUFFERS)
    rest = harness.receive_while_reading(stream)
    assert rest
    harness.handler.parked[0].send([b"park"])
    harness.turn()
    assert harness.transport.reading
    harness.receive(rest)
    assert harness.transport.written == stream


def test_a_slow_reader_stops_the_handling_of_its_frames() -> None:
    """Goal: a client that sends and does not read cannot fill the broker's memory."""
    harness = Harness()
    harness.connection.pause_writing()
    rest = harness.receive_while_reading(framed(*TWO_BUFFERS))
    assert harness.handler.handled == []
    assert rest
    harness.connection.resume_writing()
    harness.turn()
    assert len(harness.handler.handled) > 100
    harness.receive(rest)
    assert len(harness.handler.handled) == len(TWO_BUFFERS)


def test_many_large_answers_of_one_read_are_written_early() -> None:
    """Goal: 3 000 tiny requests for large answers do not pile up 3 000 large answers."""
    harness = Harness()
    write = harness.transport.writelines

    def full_after_write(buffers: list[bytes]) -> None:
        write(buffers)
        harness.connection.pause_writing()

    harness.transport.writelines = full_after_write  # type: ignore[method-assign]
    large = b"b" * 300_000
    original = harness.handler.handle_frame

    def answer_large(exchange: object) -> None:
        original(exchange)  # type: ignore[arg-type]

    harness.handler.handle_frame = answer_large  # type: ignore[method-assign]
    harness.receive_while_reading(framed(*[b"e" * 60_000] * 100))
    assert len(harness.transport.writes) == 1
    assert len(harness.transport.written) < 2_000_000 + len(large)


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1, 0x47455420])
def test_forbidden_sizes_close(size: int, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: socket.request.max.bytes; what came before is still answered, with one log line."""
    harness = Harness(frame_max_bytes=1000)
    harness.receive(framed(b"good") + struct.pack(">i", size) + b"garbage")
    assert harness.transport.written == framed(b"good")
    assert harness.transport.closed
    assert len(caplog.records) == 1
    assert str(size) in caplog.text


@pytest.mark.parametrize(
    ("first_bytes", "remark"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "looks like TLS"),
        (b"GET / HTTP/1.1\r\n", "looks like HTTP"),
        (b"POST /topics HTTP/1.1\r\n", "looks like HTTP"),
        (b"PRI * HTTP/2.0\r\n", "looks like HTTP"),
        (b"\xff\xff\xff\xff", None),
    ],
)
def test_the_log_says_what_a_stranger_seems_to_speak(
    first_bytes: bytes, remark: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The error for a browser or a TLS client at the port would tell of a size of 369295617."""
    harness = Harness()
    harness.receive(first_bytes)
    assert harness.transport.closed
    assert "looks like" not in caplog.text if remark is None else remark in caplog.text


def test_a_mistake_while_going_on_ends_the_connection() -> None:
    """Its client would wait for an answer for ever, and nobody would see why."""
    harness = Harness()
    harness.receive(framed(b"park", b"echo"))

    def explode(exchange: object) -> None:
        raise AssertionError("two and two")

    harness.handler.handle_frame = explode  # type: ignore[method-assign,assignment]
    harness.handler.parked[0].send([b"answer"])
    with pytest.raises(AssertionError, match="two and two"):
        harness.turn()
    assert harness.transport.aborted


def test_a_handler_can_drop_the_connection() -> None:
    """Goal: answers given before the violation leave, nothing after it is handled."""
    harness = Harness()
    harness.receive(framed(b"good", b"xxxx", b"after"))
    assert harness.transport.written == framed(b"good")
    assert harness.transport.closed
    assert harness.handler.handled == [b"good", b"xxxx"]


def test_answers_after_the_end_are_dropped() -> None:
    """Goal: a fetch that wakes up after its client has gone harms nobody."""
    harness = Harness()
    harness.receive(framed(b"park", b"more"))
    harness.connection.connection_lost()
    harness.handler.parked[0].send([b"too late"])
    harness.turn()
    assert harness.transport.written == b""
    assert harness.handler.closed == ["here-there-1"]


def test_answering_twice_is_our_own_fault() -> None:
    """Goal: a handler's mistake is found at once and not as a shifted answer."""
    harness = Harness()
    harness.receive(framed(b"park"))
    harness.handler.parked[0].send([b"1"])
    with pytest.raises(AssertionError, match="twice"):
        harness.handler.parked[0].send([b"2"])


def test_request_memory_is_shared_and_comes_back() -> None:
    """Goal: queued.max.request.bytes holds frames of others back until memory is free."""
    harness = Harness(request_memory_bytes=100)
    harness.receive(framed(b"p" * 200))
    other_transport = FakeTransport()
    other = harness.connect(other_transport)
    stream = framed(b"second")
    other.get_buffer()[: len(stream)] = stream
    other.buffer_updated(len(stream))
    assert len(harness.handler.handled) == 1
    harness.handler.parked[0].send([b"done"])
    harness.turn()
    assert harness.handler.handled[1:] == [b"second"]
    assert other_transport.written == stream
    assert harness.memory.used_bytes == 0


def test_request_memory_of_a_lost_connection_is_released() -> None:
    """Goal: clients that die in the middle of a frame do not leak the budget."""
    harness = Harness(request_memory_bytes=1_000_000)
    harness.receive(framed(b"park") + framed(b"x" * 500_000)[:1000])
    harness.connection.connection_lost()
    assert harness.memory.used_bytes == 0
    harness.handler.parked[0].send([b"late"])
    assert harness.memory.used_bytes == 0


@pytest.mark.parametrize("body", [b"first", bytes(3 * SETUP_BUFFER_BYTES)])
def test_who_waits_for_its_turn_has_memory_for_what_has_come_and_little_beyond(body: bytes) -> None:
    """A rate of connections is to protect from thousands at once, all of whom send a request."""
    harness = Harness()
    harness.connection.hold()
    left = harness.receive_while_reading(framed(body))
    assert harness.connection.buffer_bytes == SETUP_BUFFER_BYTES
    harness.connection.let_in()
    harness.turn()
    harness.receive(left)
    assert harness.handler.handled == [body]
    assert len(harness.connection.get_buffer()) == READ_BUFFER_BYTES
