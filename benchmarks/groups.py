"""What do groups cost a broker: settling, heartbeats, commits, and the reload of offsets?

    python -m benchmarks.groups                          # all figures
    python -m benchmarks.groups --kafka                  # commits also to an Apache Kafka
    python -m benchmarks.groups --peer HOST:PORT --only-commits
    python -m benchmarks.groups --members 100000 --groups 1000 --offsets 1000000 --json

Commits go to a broker process, see `benchmarks.commits`. The others are measured in this process
and without sockets: heartbeats as the part of a core that all members take at one heartbeat each
3 s, settling from the last JoinGroup to the last answer of a SyncGroup, reloading and expiry from
the bytes of the log, with the longest turn that the loop was held up. Members of the newer
protocol settle on a clock that is moved: that figure is heartbeat intervals, with the CPU they
cost beside it. The last line is one JSON object.
"""

import argparse
import contextlib
import heapq
import json
import resource
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from tools import kafka_node

from benchmarks.broker import Target, in_turn, our_broker, pid_listening_on, ratios
from benchmarks.commits import frame_of, measure_commits
from odradek.background import InlineBackground
from odradek.cli.start import ease_collector
from odradek.clock import Clock, ManualClock, SystemClock
from odradek.config import BrokerConfig
from odradek.coordinator.assignors import Partitions
from odradek.coordinator.consumer.requests import HeartbeatRequest, HeartbeatResult
from odradek.coordinator.group_coordinator import GroupCoordinator
from odradek.coordinator.group_shard import GroupShard
from odradek.coordinator.modern.topic_metadata import TopicMetadata
from odradek.coordinator.records.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadataValue,
)
from odradek.coordinator.records.offset_records import OffsetAndMetadata, OffsetCommitKey
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.records.record_codec import GroupRecordCodec
from odradek.coordinator.runtime.partition_writer import LogBounds, OnCommitted, PartitionWriter
from odradek.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.coordinator.runtime.settings import RuntimeSettings
from odradek.coordinator.services import GroupServices, ShardServices
from odradek.handlers.context import Api
from odradek.handlers.dispatcher import Dispatcher
from odradek.handlers.groups import heartbeat, join_group, sync_group
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import MetadataDelta, PartitionImage, TopicImage
from odradek.protocol import messages
from odradek.protocol.exchange import Exchange
from odradek.purgatory import DelayedOperationPurgatory
from odradek.records.batch import parse_header, stamp
from odradek.records.builder import RecordBatchBuilder
from odradek.timer import SystemTimer

HEARTBEAT_INTERVAL_S = 3.0
RECORDS_PER_BATCH = 100
CONNECTIONS = (1, 16)
SETTLING_MEMBERS = 100
SETTLING_PARTITIONS = 1_000
SETTLING_INTERVAL_MS = 200
CONSUMER_RESTS_MS = (0, 1_000)
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

    def append(
        self, _partition: int, batch: bytearray, on_committed: OnCommitted, _version: int = 0
    ) -> None:
        header = parse_header(batch)
        stamp(batch, header, self.end, 0)
        self.index[self.end] = len(self.batches)
        self.batches.append(bytes(batch))
        self.end = header.last_offset + 1
        on_committed(None)

    def max_batch_bytes(self, _partition: int) -> int:
        return 1_000_000

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

    def __init__(self, log: MemoryLog, clock: Clock | None = None, **settings: int) -> None:
        clock = clock or SystemClock()
        self.timer = SystemTimer(clock)
        texts = {name.replace("_", "."): str(value) for name, value in settings.items()}
        config = BrokerConfig(
            {"broker.id": "1", "group.initial.rebalance.delay.ms": "1000", **texts}
        )
        self.metadata = MetadataCache()
        services = GroupServices(
            config,
            clock,
            DelayedOperationPurgatory("Rebalance", self.timer),
            DelayedOperationPurgatory("Heartbeat", self.timer),
            uuid4,
            TopicMetadata(self.metadata),
        )
        self.longest_turn_ms = 0.0
        self.deferred: list[Any] = []
        self.runtime = CoordinatorRuntime[GroupShard](
            log,
            GroupRecordCodec(),
            clock,
            self.deferred.append,
            lambda: 1,
            lambda partition, _epoch, append, execute: GroupShard(
                partition, ShardServices(services, append, execute)
            ),
            RuntimeSettings(),
            DelayedOperationPurgatory("GroupWrite", self.timer),
        )
        self.groups = GroupCoordinator(self.runtime, config, clock)
        context: Any = SimpleNamespace(
            apis=APIS,
            observer=None,
            quotas=None,
            groups=self.groups,
            clock=clock,
            background=InlineBackground(),
        )
        self.dispatcher = Dispatcher(context)
        self.turn(lambda: self.runtime.on_elected(0, 0))

    def turn(self, action: Callable[[], object]) -> None:
        """Runs something and what it defers, and notes the longest of these turns."""
        self.deferred.append(action)
        while self.deferred:
            began = time.thread_time()
            self.deferred.pop()()
            self.longest_turn_ms = max(self.longest_turn_ms, 1000 * (time.thread_time() - began))


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
    """Seconds to replay that many committed offsets, by the clock and of the CPU, and to expire
    them all afterwards."""
    log = MemoryLog()
    value = OffsetAndMetadata(123_456, 7, "", 1_000_000_000_000)
    fill(
        log,
        (
            CoordinatorRecord(OffsetCommitKey(f"group-{n // 100}", "orders", n % 100), value)
            for n in range(offsets)
        ),
    )
    began, cpu = time.perf_counter(), time.process_time()
    coordinator = Coordinator(log)
    figures = {
        "reload_s": round(time.perf_counter() - began, 2),
        "reload_cpu_s": round(time.process_time() - cpu, 2),
        "reload_longest_turn_ms": round(coordinator.longest_turn_ms, 1),
    }
    coordinator.longest_turn_ms = 0.0
    cpu = time.process_time()
    coordinator.turn(coordinator.groups.expire_offsets)
    assert not coordinator.groups.list_groups([], []), "not everything has expired"
    return figures | {
        "expiry_cpu_s": round(time.process_time() - cpu, 2),
        "expiry_longest_turn_ms": round(coordinator.longest_turn_ms, 1),
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


class Consumer:
    """A member of the newer protocol, which gives back what it has to with its next heartbeat."""

    def __init__(self, coordinator: Coordinator, name: str) -> None:
        self.coordinator = coordinator
        self.member_id = name
        self.epoch = 0
        self.owned: Partitions = {}
        self._has_news = False

    def beat(self) -> None:
        """A heartbeat; what its answer assigns or takes away is acknowledged at once by another,
        as Java's client and librdkafka do, which do not wait for their next one with that."""
        self._has_news = True
        while self._has_news:
            self._has_news = False
            self._send()

    def _send(self) -> None:
        request = HeartbeatRequest("settling", self.member_id, self.epoch, owned=self.owned)
        if self.epoch == 0:
            names = frozenset(["orders"])
            request = request._replace(subscribed_topic_names=names, rebalance_timeout_ms=60_000)
        self.coordinator.groups.consumer_heartbeat(request, 1, self._take)

    def _take(self, result: Any) -> None:
        assert isinstance(result, HeartbeatResult), result
        self.epoch = result.member_epoch
        if result.assignment is not None:
            self.owned = result.assignment
            self._has_news = True


def measure_consumer_settling(rest_ms: int) -> dict[str, float]:
    """Milliseconds of heartbeats from the last join to everybody's share, and their CPU, where a
    group rests for that long between two assignments."""
    clock = ManualClock(wall_ms=1_700_000_000_000)
    coordinator = Coordinator(MemoryLog(), clock, group_consumer_assignment_interval_ms=rest_ms)
    add_topic(coordinator.metadata, "orders", SETTLING_PARTITIONS)
    consumers = [Consumer(coordinator, f"member-{n}") for n in range(SETTLING_MEMBERS)]
    share = SETTLING_PARTITIONS // SETTLING_MEMBERS
    due = [(2 * n, n) for n in range(SETTLING_MEMBERS)]  # one after another joins, in 200 ms
    last_join_ms, now_ms, cpu = 2 * (SETTLING_MEMBERS - 1), 0, 0.0
    while any(sum(map(len, each.owned.values())) != share for each in consumers):
        at_ms, number = heapq.heappop(due)
        clock.advance(at_ms - now_ms)
        now_ms = at_ms
        began = time.thread_time()
        consumers[number].beat()
        coordinator.timer.advance_clock(0)
        if now_ms > last_join_ms:
            cpu += time.thread_time() - began
        heapq.heappush(due, (now_ms + SETTLING_INTERVAL_MS, number))
    return {
        f"consumer_settle_rest_{rest_ms}_ms": now_ms - last_join_ms,
        f"consumer_settle_rest_{rest_ms}_cpu_ms": round(1000 * cpu, 1),
    }


def add_topic(metadata: MetadataCache, name: str, partitions: int) -> None:
    images = tuple(PartitionImage(n, 1, 0, 0, (1,), (1,)) for n in range(partitions))
    topic = TopicImage(name, uuid4(), images)
    before = metadata.image
    after = before.with_topics([topic], [])
    metadata.publish(MetadataDelta(before, after, added=[topic], removed=[], changed=[]))


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


def measure_all_commits(arguments: argparse.Namespace) -> dict[str, float]:
    """Commits of our broker, and of another one if there is one, in alternating rounds."""
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(our_broker())
        targets = [Target("odradek", ours, pid_listening_on(ours))]
        peer = arguments.peer
        if arguments.kafka:
            peer = stack.enter_context(kafka_node.kafka_node()).bootstrap_servers
        if peer:
            targets.append(Target("peer", peer, pid_listening_on(peer)))
        for target in targets:
            for connections in CONNECTIONS:
                measure_commits(target, arguments.warm_up, connections)
            target.figures.clear()
        for number in range(arguments.rounds):
            for connections in CONNECTIONS:
                for target in in_turn(targets, number):
                    measure_commits(target, arguments.commits, connections)
    figures = targets[0].medians()
    if peer:
        figures |= {f"peer_{name}": value for name, value in targets[1].medians().items()}
        figures |= {f"{name}_ratio": value for name, value in ratios(*targets).items()}
    return figures


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--offsets", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=60_000, help="in a round")
    parser.add_argument("--warm-up", type=int, default=20_000, help="commits before the first")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help="another broker, whose commits are measured as well")
    parser.add_argument("--kafka", action="store_true", help="start an Apache Kafka as the peer")
    parser.add_argument("--only-commits", action="store_true")
    parser.add_argument("--json", action="store_true", help="nothing but the JSON object")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    ease_collector()  # as `odradek start` does
    if not arguments.only_commits:
        figures |= measure_heartbeats(arguments.members, arguments.groups)
        figures |= measure_settling()
        for rest_ms in CONSUMER_RESTS_MS:
            figures |= measure_consumer_settling(rest_ms)
        figures |= measure_reload(arguments.offsets)
    figures |= measure_all_commits(arguments)
    if not arguments.json:
        for name, figure in figures.items():
            print(f"{name:32} {figure:>12,}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
