"""What do groups cost a broker: settling, heartbeats, commits, and the reload of offsets?

    python -m benchmarks.groups                          # all figures, commits over a socket
    python -m benchmarks.groups --peer HOST:PORT         # commits also to that broker, e.g. Kafka
    python -m benchmarks.groups --members 100000 --groups 1000 --offsets 1000000 --json

Commits are pipelined over one connection to a broker process, one partition each; with a peer,
rounds alternate. The other three are measured in this process, from the request's frame to the
answer's bytes, without sockets: heartbeats as the part of a core that all members take at one
heartbeat each 3 s, settling from the last JoinGroup to the last answer of a SyncGroup, reloading
from the bytes of the log. The last line is one JSON object.
"""

import argparse
import contextlib
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from odradek.clock import SystemClock
from odradek.config import BrokerConfig
from odradek.coordinator.group_coordinator import GroupCoordinator
from odradek.coordinator.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadataValue,
)
from odradek.coordinator.group_shard import GroupShard
from odradek.coordinator.offset_records import OffsetAndMetadata, OffsetCommitKey
from odradek.coordinator.partition_writer import LogBounds, OnCommitted, PartitionWriter
from odradek.coordinator.record_codec import GroupRecordCodec
from odradek.coordinator.records import CoordinatorRecord
from odradek.coordinator.runtime import CoordinatorRuntime, RuntimeSettings
from odradek.coordinator.services import GroupServices, ShardServices
from odradek.handlers import heartbeat, join_group, sync_group
from odradek.handlers.context import Api
from odradek.handlers.dispatcher import Dispatcher
from odradek.protocol import messages
from odradek.protocol.exchange import Exchange
from odradek.protocol.header import encode_request_header
from odradek.purgatory import DelayedOperationPurgatory
from odradek.records.batch import parse_header, stamp
from odradek.records.builder import RecordBatchBuilder
from odradek.timer import SystemTimer

HEARTBEAT_INTERVAL_S = 3.0
RECORDS_PER_BATCH = 100
PIPELINED = 64
SETTLING_MEMBERS = 100
SETTLING_PARTITIONS = 1_000
APIS = {
    11: Api(11, "JoinGroup", 0, 9, 6, join_group.handle),
    12: Api(12, "Heartbeat", 0, 4, 4, heartbeat.handle),
    14: Api(14, "SyncGroup", 0, 5, 4, sync_group.handle),
}


class MemoryLog(PartitionWriter):
    """One partition of batches in memory; everything is committed at once."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.index: dict[int, int] = {}
        self.end = 0

    def append(self, _partition: int, batch: bytearray, on_committed: OnCommitted) -> None:
        stamp(batch, 0, self.end, 0)
        self.index[self.end] = len(self.batches)
        self.batches.append(bytes(batch))
        self.end = parse_header(batch, 0).last_offset + 1
        on_committed(None)

    def bounds(self, _partition: int) -> LogBounds:
        return LogBounds(0, self.end)

    def read(self, _partition: int, offset: int, max_bytes: int) -> bytes:
        first = self.index[offset]
        size, last = 0, first
        while last < len(self.batches) and (last == first or size < max_bytes):
            size += len(self.batches[last])
            last += 1
        return b"".join(self.batches[first:last])


class Coordinator:
    """A coordinator of one partition, behind a dispatcher and without sockets."""

    def __init__(self, log: MemoryLog) -> None:
        clock = SystemClock()
        self.timer = SystemTimer(clock)
        config = BrokerConfig({"broker.id": "1", "group.initial.rebalance.delay.ms": "1000"})
        services = GroupServices(
            config,
            clock,
            DelayedOperationPurgatory("Rebalance", self.timer),
            DelayedOperationPurgatory("Heartbeat", self.timer),
            uuid4,
        )
        self.deferred: list[Any] = []
        self.runtime = CoordinatorRuntime[GroupShard](
            log,
            GroupRecordCodec(),
            clock,
            self.deferred.append,
            lambda: 1,
            lambda partition, append: GroupShard(partition, ShardServices(services, append)),
            RuntimeSettings(lambda: 1_000_000),
            DelayedOperationPurgatory("GroupWrite", self.timer),
        )
        context: Any = SimpleNamespace(
            apis=APIS, observer=None, groups=GroupCoordinator(self.runtime, clock)
        )
        self.dispatcher = Dispatcher(context, lambda _context: None)
        self.runtime.on_elected(0, 0)
        while self.deferred:
            self.deferred.pop()()


class Call(Exchange):
    """A request that keeps its answer."""

    def __init__(self, frame: bytes) -> None:
        super().__init__(
            memoryview(bytearray(frame)),
            connection_id="c",
            client_host="127.0.0.1",
            client_port=1,
            listener_name="PLAINTEXT",
            local_host="127.0.0.1",
            local_port=9092,
            principal="User:ANONYMOUS",
            received_ms=0,
        )
        self.answer: bytes | None = None

    def send(self, buffers: list[Any]) -> None:
        self.answer = b"".join(bytes(buffer) for buffer in buffers)


def frame_of(api_key: int, version: int, flexible_from: int, **fields: object) -> bytes:
    """A request's bytes, without the size."""
    header_version = 2 if version >= flexible_from else 1
    header = encode_request_header(api_key, version, 1, "bench", header_version)
    return header + messages.encode_request(api_key, version, fields)


def fill(log: MemoryLog, records: Iterator[CoordinatorRecord]) -> None:
    codec = GroupRecordCodec()
    builder = RecordBatchBuilder()
    for record in records:
        builder.append(0, *codec.encode(record))
        if builder.record_count == RECORDS_PER_BATCH:
            log.append(0, bytearray(builder.build()), lambda _error: None)
            builder = RecordBatchBuilder()
    if builder.record_count:
        log.append(0, bytearray(builder.build()), lambda _error: None)


def measure_reload(offsets: int) -> dict[str, float]:
    """Seconds to replay that many committed offsets, by the clock and of the CPU."""
    log = MemoryLog()
    value = OffsetAndMetadata(123_456, 7, "", 1_700_000_000_000)
    fill(
        log,
        (
            CoordinatorRecord(OffsetCommitKey(f"group-{n // 100}", "orders", n % 100), value)
            for n in range(offsets)
        ),
    )
    began, cpu = time.perf_counter(), time.process_time()
    Coordinator(log)
    return {
        "reload_s": round(time.perf_counter() - began, 2),
        "reload_cpu_s": round(time.process_time() - cpu, 2),
    }


def measure_heartbeats(members: int, groups: int) -> dict[str, float]:
    """CPU of a heartbeat, what all members take of a core, and what they take of memory."""
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    log = MemoryLog()
    size = members // groups
    fill(log, (stable_group(f"group-{n}", size) for n in range(groups)))
    coordinator = Coordinator(log)
    memory_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
    frames = [
        frame_of(12, 4, 4, group_id=f"group-{n}", generation_id=1, member_id=f"group-{n}-{m}")
        for n in range(groups)
        for m in range(size)
    ]
    calls = [Call(frame) for frame in frames]
    handle = coordinator.dispatcher.handle_frame
    advance = coordinator.timer.advance_clock
    began = time.process_time()
    for count, call in enumerate(calls):
        handle(call)
        if count % 100 == 0:
            advance(0)
    cpu_s = time.process_time() - began
    assert calls[0].answer == calls[-1].answer
    per_heartbeat_us = 1e6 * cpu_s / len(calls)
    return {
        "heartbeat_us": round(per_heartbeat_us, 2),
        "heartbeat_core_share": round(cpu_s / HEARTBEAT_INTERVAL_S, 3),
        "members_mb": round(memory_mb, 1),
    }


def stable_group(group_id: str, members: int) -> CoordinatorRecord:
    each = tuple(
        MemberMetadataValue(
            f"{group_id}-{n}", None, "bench", "/127.0.0.1", 300_000, 45_000, b"s" * 40, b"a" * 40
        )
        for n in range(members)
    )
    value = GroupMetadataValue("consumer", 1, "range", each[0].member_id, 0, each)
    return CoordinatorRecord(GroupMetadataKey(group_id), value)


def measure_settling() -> dict[str, float]:
    """Milliseconds from the last JoinGroup to the last member's assignment."""
    coordinator = Coordinator(MemoryLog())
    joins = [Call(join_frame()) for _ in range(SETTLING_MEMBERS)]
    handle = coordinator.dispatcher.handle_frame
    for join in joins:
        handle(join)
    while joins[0].answer is None:  # the initial delay, which is not ours to measure
        coordinator.timer.advance_clock(10)
        began = time.perf_counter()
    # A second rebalance, begun by a newcomer: everybody joins again.
    results = [decode(11, 3, join) for join in joins]
    newcomer = Call(join_frame())
    handle(newcomer)
    again = [Call(join_frame(result.member_id)) for result in results]
    for join in again[:-1]:
        handle(join)
    began = time.perf_counter()
    handle(again[-1])
    everyone = [decode(11, 3, join) for join in (*again, newcomer)]
    leader = next(each for each in everyone if each.leader == each.member_id)
    share = b"p" * (4 * SETTLING_PARTITIONS // len(everyone))
    assignments = [{"member_id": each.member_id, "assignment": share} for each in leader.members]
    syncs = [
        Call(
            frame_of(
                14,
                2,
                4,
                group_id="settling",
                generation_id=each.generation_id,
                member_id=each.member_id,
                assignments=assignments if each is leader else (),
            )
        )
        for each in everyone
    ]
    for sync in syncs:
        handle(sync)
    took_ms = 1000 * (time.perf_counter() - began)
    assert all(sync.answer for sync in syncs)
    return {"settle_ms": round(took_ms, 1)}


def join_frame(member_id: str = "") -> bytes:
    return frame_of(
        11,
        3,
        6,
        group_id="settling",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b"s" * 40}],
    )


def decode(api_key: int, version: int, call: Call) -> Any:
    assert call.answer is not None, "a member was not answered"
    return messages.decode_response(api_key, version, memoryview(call.answer), 4)


@contextlib.contextmanager
def broker() -> Iterator[str]:
    """A broker process on a directory of its own."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "odradek", "start", "--data-dir", directory]
        with subprocess.Popen(
            [*command, "--listener", "PLAINTEXT://127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                yield process.stdout.readline().split("bootstrap=")[1].split()[0]
            finally:
                process.terminate()


def measure_commits(address: str, commits: int) -> float:
    """Commits a second of one connection that keeps `PIPELINED` of them on their way."""
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        find = frame_of(10, 4, 3, key_type=0, coordinator_keys=["bench"])
        for _ in range(50):
            connection.sendall(sized(find))
            receive(connection)
            time.sleep(0.05)
        partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        topics = [{"name": topic, "partitions": [partition]}]
        fields = {"group_id": "bench", "generation_id_or_member_epoch": -1, "topics": topics}
        burst = sized(frame_of(8, 8, 8, **fields)) * PIPELINED
        began = time.perf_counter()
        for _ in range(commits // PIPELINED):
            connection.sendall(burst)
            for _ in range(PIPELINED):
                answer = receive(connection)
        took_s = time.perf_counter() - began
    assert answer[-4:-2] == b"\0\0", f"the last commit failed: {answer.hex()}"
    return commits / took_s


def sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def receive(connection: socket.socket) -> bytes:
    size = int.from_bytes(exactly(connection, 4), "big")
    return exactly(connection, size)


def exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return data


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--offsets", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help="another broker, whose commits are measured as well")
    parser.add_argument("--json", action="store_true", help="nothing but the JSON object")
    arguments = parser.parse_args()
    figures: dict[str, float] = measure_heartbeats(arguments.members, arguments.groups)
    figures |= measure_settling()
    figures |= measure_reload(arguments.offsets)
    with broker() as ours:
        rounds: dict[str, list[float]] = {"commits_per_s": [], "peer_commits_per_s": []}
        for _ in range(arguments.rounds):
            rounds["commits_per_s"].append(measure_commits(ours, arguments.commits))
            if arguments.peer:
                theirs = measure_commits(arguments.peer, arguments.commits)
                rounds["peer_commits_per_s"].append(theirs)
    figures |= {name: round(statistics.median(found)) for name, found in rounds.items() if found}
    if arguments.peer:
        figures["commit_ratio"] = round(figures["commits_per_s"] / figures["peer_commits_per_s"], 2)
    if not arguments.json:
        for name, figure in figures.items():
            print(f"{name:24} {figure:>12,}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
