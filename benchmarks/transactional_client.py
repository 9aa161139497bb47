"""Transactional producers that cost little: prepared requests, patched for each use.

They speak the newer protocol: a transaction's first write adds its partitions, and every EndTxn is
answered with the next epoch. A broker that is not done with the markers of the transaction before
refuses the first write for the moment; it is asked again after a millisecond.
"""

import heapq
import selectors
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Final

from fastcrc import crc32

from benchmarks.commits import ask_until, exactly, frame_of, sized
from odradek.errors import ErrorCode
from odradek.protocol.direct.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    encode_produce_request,
)
from odradek.protocol.header import encode_request_header
from odradek.records.builder import RecordBatchBuilder

PRODUCE, FIND_COORDINATOR, INIT_PRODUCER_ID, END_TXN = 0, 10, 22, 26
RETRY_S: Final = 0.001
TRANSACTION_TIMEOUT_MS: Final = 600_000
_IDENTITY: Final = struct.Struct(">qh")
_CRC: Final = struct.Struct(">I")
_ERROR: Final = struct.Struct(">h")
# In a record batch: its checksum, what that covers, and its producer.
_CRC_AT, _ATTRIBUTES_AT, _PRODUCER_AT = 17, 21, 43
# In the answers to InitProducerId and EndTxn: correlation id, tags, throttle time, then these.
_ERROR_AT, _IDENTITY_AT = 9, 11


class TransactionalProducer:
    """One connection and its transactional id."""

    def __init__(
        self,
        address: str,
        name: str,
        topic: str,
        partitions: Sequence[int],
        values: Sequence[bytes],
    ) -> None:
        host, _, port = address.rpartition(":")
        self.connection = socket.create_connection((host, int(port)))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.identity = self._initialize(name)
        builder = RecordBatchBuilder(
            producer_id=0, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        for value in values:
            builder.append(1_700_000_000_000, None, value)
        self._batch = bytearray(builder.build())
        self._produce, self._batches_at = _produce_frame(name, topic, partitions, self._batch)
        # Correlation id, tags, how many topics, the name behind its length, how many partitions,
        # an index: all lengths are of one byte.
        assert len(partitions) < 127, "the length would be of two bytes"
        self._error_at = 4 + 1 + 1 + 1 + len(topic) + 1 + 4
        self._ends = {each: _end_frame(name, each) for each in (True, False)}

    def _initialize(self, name: str) -> tuple[int, int]:
        find = frame_of(FIND_COORDINATOR, 4, 3, key_type=1, coordinator_keys=[name])
        ask_until(self.connection, sized(find), lambda answer: name.encode() in answer)
        asked = {"transactional_id": name, "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS}
        frame = sized(frame_of(INIT_PRODUCER_ID, 4, 2, **asked))
        answer = ask_until(self.connection, frame, _is_initialized)
        return _IDENTITY.unpack_from(answer, _IDENTITY_AT)

    def send_records(self) -> None:
        """The only write of a transaction."""
        batch, frame = self._batch, self._produce
        _IDENTITY.pack_into(batch, _PRODUCER_AT, *self.identity)
        _CRC.pack_into(batch, _CRC_AT, crc32.iscsi(bytes(memoryview(batch)[_ATTRIBUTES_AT:])))
        for position in self._batches_at:
            frame[position : position + len(batch)] = batch
        self.connection.sendall(frame)

    def send_end(self, is_commit: bool) -> None:
        """EndTxn."""
        frame = self._ends[is_commit]
        _IDENTITY.pack_into(frame, len(frame) - 12, *self.identity)
        self.connection.sendall(frame)

    def receive_written(self) -> bool:
        """Whether the write was taken, which it may not be yet."""
        code = _ERROR.unpack_from(self._receive(), self._error_at)[0]
        assert code in (ErrorCode.NONE, *_RETRIED), f"a write failed: {ErrorCode(code).name}"
        return code == ErrorCode.NONE

    def receive_ended(self) -> None:
        """The answer to EndTxn, which brings the next epoch."""
        answer = self._receive()
        code = _ERROR.unpack_from(answer, _ERROR_AT)[0]
        assert code == ErrorCode.NONE, f"an end failed: {ErrorCode(code).name}"
        self.identity = _IDENTITY.unpack_from(answer, _IDENTITY_AT)

    def _receive(self) -> bytes:
        return exactly(self.connection, int.from_bytes(exactly(self.connection, 4), "big"))

    def write(self) -> None:
        """Writes, and waits until it is written."""
        self.send_records()
        while not self.receive_written():
            time.sleep(RETRY_S)
            self.send_records()

    def transact(self, is_commit: bool = True) -> float:
        """One transaction; the seconds from its first write to the acknowledgement of its end."""
        began = time.perf_counter()
        self.write()
        self.send_end(is_commit)
        self.receive_ended()
        return time.perf_counter() - began


def _is_initialized(answer: bytes) -> bool:
    return _ERROR.unpack_from(answer, _ERROR_AT)[0] == ErrorCode.NONE


_RETRIED: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""The markers before are on their way, or a topic has just been made."""


def _produce_frame(
    name: str, topic: str, partitions: Sequence[int], batch: bytearray
) -> tuple[bytearray, list[int]]:
    """A request that writes the batch to every partition, and where in it the batches are."""
    entries = [ProducePartition(each, bytes(batch)) for each in partitions]
    request = ProduceRequest(name, -1, 30_000, [ProduceTopic(topic, None, entries)])
    body = b"".join(bytes(each) for each in encode_produce_request(request, 12))
    frame = bytearray(sized(encode_request_header(PRODUCE, 12, 1, "bench", 2) + body))
    positions, found = [], frame.find(batch)
    while found >= 0:
        positions.append(found)
        found = frame.find(batch, found + len(batch))
    assert len(positions) == len(partitions), "every partition has its batch"
    return frame, positions


def _end_frame(name: str, is_commit: bool) -> bytearray:
    fields = {"transactional_id": name, "producer_id": 0, "producer_epoch": 0}
    return bytearray(sized(frame_of(END_TXN, 5, 3, committed=is_commit, **fields)))


def run_commits(producers: Sequence[TransactionalProducer], seconds: float) -> int:
    """Transactions one after another with each producer, all at the same time, for so long; how
    many were committed."""
    committed = 0
    deadline = time.monotonic() + seconds
    later: list[tuple[float, int]] = []
    steps: dict[int, Callable[[], None]] = {}
    with selectors.DefaultSelector() as selector:

        def write(number: int) -> None:
            producers[number].send_records()
            steps[number] = lambda: on_written(number)

        def on_written(number: int) -> None:
            producer = producers[number]
            if producer.receive_written():
                producer.send_end(True)
                steps[number] = lambda: on_ended(number)
            else:
                heapq.heappush(later, (time.monotonic() + RETRY_S, number))

        def on_ended(number: int) -> None:
            nonlocal committed
            producers[number].receive_ended()
            committed += 1
            if time.monotonic() < deadline:
                write(number)
            else:
                selector.unregister(producers[number].connection)

        for number, producer in enumerate(producers):
            selector.register(producer.connection, selectors.EVENT_READ, number)
            write(number)
        while selector.get_map():
            for key, _ in selector.select(RETRY_S if later else 1):
                steps[key.data]()
            while later and later[0][0] <= time.monotonic():
                write(heapq.heappop(later)[1])
    return committed
