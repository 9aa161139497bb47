"""Random and mutated frames at a running broker: it answers or closes, and goes on.

Every request that the broker serves, in every version, is sent as it should be and then
damaged: bits flipped, pieces cut out, doubled, replaced by garbage, sizes that lie. After
each the broker must still serve a well-behaved client, must not have met an exception that
it did not expect, and must not have grown.
"""

import functools
import gc
import logging
import resource
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.deadlines import deadline_s

import odradek
from odradek.handlers.table import API_TABLE
from odradek.protocol import messages
from odradek.records.builder import RecordBatchBuilder

TIMEOUT_S = deadline_s(60)
ANSWER_MAX_BYTES = 4_000_000
GROWTH_MAX_BYTES = 128 * 1024 * 1024
TOPIC = "frames"
FIND_COORDINATOR = 10


def batch(codec: int) -> bytes:
    builder = RecordBatchBuilder(codec)
    for number in range(20):
        builder.append(1_700_000_000_000 + number, b"key", b"value" * number, [("h", b"1")])
    return builder.build()


def richer_fields() -> dict[int, list[dict[str, object]]]:
    """Bodies that reach further into the handlers than empty ones."""
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10_000}
    return {
        0: [
            {
                "acks": acks,
                "timeout_ms": 1000,
                "topic_data": [
                    {"name": TOPIC, "partition_data": [{"index": 0, "records": batch(codec)}]}
                ],
            }
            for acks, codec in [(1, 0), (-1, 1), (0, 2), (1, 3), (1, 4)]
        ],
        1: [
            {
                "max_wait_ms": wait_ms,
                "min_bytes": 1,
                "max_bytes": 100_000,
                "topics": [{"topic": TOPIC, "partitions": [partition]}],
            }
            for wait_ms in (0, 50)
        ],
        2: [
            {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": at}]}]}
            for at in (-1, -2, -3, 1_700_000_000_005)
        ],
        3: [{"topics": [{"name": TOPIC}]}],
        18: [{"client_software_name": "test", "client_software_version": "1.0"}],
        32: [{"resources": [{"resource_type": 2, "resource_name": TOPIC}]}],
    }


@functools.cache
def well_formed() -> list[bytes]:
    """A frame without its size for every API, version and body."""
    richer = richer_fields()
    frames = []
    for api in API_TABLE.values():
        for version in messages.versions(api.key):
            if not api.serves(version):
                continue
            for fields in [{}, *richer.get(api.key, [])]:
                flexible = version >= api.flexible_from
                header = struct.pack(">hhih", api.key, version, 7, 4) + b"test"
                request = messages.encode_request(api.key, version, fields)
                frames.append(header + b"\0" * flexible + request)
    return frames


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A well-formed frame with a few damages."""
    frame = bytearray(draw(st.sampled_from(well_formed())))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(len(frame) - 1, 0)))
        match draw(st.sampled_from(["flip", "cut", "double", "garbage", "number", "truncate"])):
            case "flip" if frame:
                frame[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del frame[at : at + draw(st.integers(1, 40))]
            case "double":
                frame[at:at] = frame[at : at + 30]
            case "garbage":
                frame[at:at] = draw(st.binary(max_size=40))
            case "number":
                number = draw(st.sampled_from([-1, 0, 1, 127, 2**31 - 1, -(2**31), 2**16]))
                frame[at : at + 4] = struct.pack(">i", number)
            case "truncate":
                del frame[at:]
    return bytes(frame)


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def converse(port: int, data: bytes) -> bytes:
    """Sends, says that no more comes, and takes what the broker answers until it closes."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 20):
                answer += part
                assert len(answer) < ANSWER_MAX_BYTES, "an answer without end"
        except (ConnectionResetError, BrokenPipeError):
            pass  # closed on us with bytes unread: as good a refusal as any
    return answer


def create_internal_topics(port: int) -> None:
    """Creates the internal topics by the first FindCoordinator request of each kind: that takes
    some turns of the loop, and a half-closed connection gets no answer after them.
    """
    for frame in well_formed():
        if struct.unpack_from(">h", frame)[0] == FIND_COORDINATOR:
            with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
                connection.sendall(framed(frame))
                assert connection.recv(1)


def assert_alive(port: int) -> None:
    answer = converse(port, framed(struct.pack(">hhih", 18, 0, 42, -1)))
    assert struct.unpack_from(">ii", answer)[1] == 42, "a well-behaved client is not served"


class Unexpected(logging.Handler):
    """Keeps what is logged as an error: an exception that no handler foresaw."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    unexpected = Unexpected()
    logging.getLogger("odradek").addHandler(unexpected)
    logging.getLogger("asyncio").addHandler(unexpected)
    config = {"auto.create.topics.enable": False, "message.max.bytes": 100_000}
    with odradek.Broker(config=config) as broker:
        broker.create_topic(TOPIC, 2)
        number = int(broker.bootstrap_servers.rpartition(":")[2])
        assert_alive(number)
        create_internal_topics(number)
        before = peak_memory()
        yield number
        assert_alive(number)
        gc.collect()
        assert peak_memory() - before < GROWTH_MAX_BYTES
    logging.getLogger("odradek").removeHandler(unexpected)
    logging.getLogger("asyncio").removeHandler(unexpected)
    assert not unexpected.lines, "\n".join(unexpected.lines)


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_every_well_formed_frame_is_answered(port: int) -> None:
    """Goal: the seeds of this test are requests that the broker really takes."""
    for frame in well_formed():
        api_key, _, correlation_id = struct.unpack_from(">hhi", frame)
        answer = converse(port, framed(frame))
        if answer:
            assert struct.unpack_from(">i", answer, 4)[0] == correlation_id
        else:
            # Of no acknowledgement nothing is said; what no ACL can be ends the connection.
            assert api_key in (0, 1, 29, 30, 31), f"API {api_key} is not answered"


@given(st.lists(mutated(), min_size=1, max_size=5))
def test_mutated_frames(port: int, frames: list[bytes]) -> None:
    """Goal: whatever is wrong inside a frame, its sender alone notices."""
    converse(port, b"".join(framed(frame) for frame in frames))
    assert_alive(port)


@given(mutated(), st.sampled_from([-(2**31), -1, 0, 1, 3, 8, 2**20, 104_857_600, 2**31 - 1]))
def test_sizes_that_lie(port: int, frame: bytes, size: int) -> None:
    """Goal: a size is believed only within bounds, and costs no memory before bytes come."""
    converse(port, struct.pack(">i", size) + frame)
    assert_alive(port)


@given(st.binary(max_size=2000))
def test_noise(port: int, noise: bytes) -> None:
    """Goal: what is no Kafka at all (HTTP, TLS, garbage) is closed."""
    converse(port, noise)
    assert_alive(port)
