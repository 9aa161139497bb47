"""A coordinator over a list instead of a log, and members that do as they are told."""

import itertools
import struct
from collections.abc import Callable, Mapping
from uuid import UUID

from odradek.clock import ManualClock
from odradek.config import BrokerConfig
from odradek.coordinator.classic.requests import (
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from odradek.coordinator.group_coordinator import GroupCoordinator
from odradek.coordinator.group_shard import GroupShard
from odradek.coordinator.modern.topic_metadata import TopicMetadata
from odradek.coordinator.offsets.requests import (
    CommittedPartition,
    CommittedTopic,
    OffsetCommitRequest,
    TopicErrors,
)
from odradek.coordinator.records.record_codec import GroupRecordCodec
from odradek.coordinator.runtime.partition_writer import LogBounds, OnCommitted, PartitionWriter
from odradek.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.coordinator.runtime.settings import LOAD_SLICE_BYTES, RuntimeSettings
from odradek.coordinator.services import GroupServices, ShardServices
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.purgatory import DelayedOperationPurgatory
from odradek.records.batch import parse_header, split_batches
from odradek.records.builder import RecordBatchBuilder
from odradek.records.reader import read_batch
from odradek.records.record import Record
from odradek.timer import MockTimer

_OFFSET = struct.Struct(">q")


class ListLog(PartitionWriter):
    """Partitions in memory. While `holds`, nothing is committed until `commit` is called;
    with a `refusal`, nothing is appended. `refuses` may decide that for each batch. What
    a partition `raises` is a fault of ours."""

    def __init__(self) -> None:
        self.refuses: Callable[[], ErrorCode | None] = lambda: self.refusal
        self.batches: dict[int, list[tuple[int, bytes]]] = {}
        self.ends: dict[int, int] = {}
        self.holds = False
        self.refusal: ErrorCode | None = None
        self.held: list[tuple[int, OnCommitted]] = []
        self.raises: dict[int, Exception] = {}
        self.appends = 0
        self.max_bytes = 1_000_000

    def append(
        self,
        partition: int,
        batch: bytearray,
        on_committed: OnCommitted,
        transaction_version: int = 0,
    ) -> None:
        if partition in self.raises:
            raise self.raises[partition]
        refusal = self.refuses()
        if refusal is None and len(batch) > self.max_bytes:
            refusal = ErrorCode.MESSAGE_TOO_LARGE
        if refusal is not None:
            on_committed(BrokerError(refusal))
            return
        base_offset = self.ends.get(partition, 0)
        _OFFSET.pack_into(batch, 0, base_offset)
        header = parse_header(batch, 0)
        self.batches.setdefault(partition, []).append((base_offset, bytes(batch)))
        self.ends[partition] = header.last_offset + 1
        self.appends += 1
        if self.holds:
            self.held.append((partition, on_committed))
        else:
            self.commit()  # a log is committed in its order
            on_committed(None)

    def commit(self) -> None:
        held, self.held = self.held, []
        for _, on_committed in held:
            on_committed(None)

    def lose(self) -> None:
        """The leadership is lost before anything held was committed."""
        held, self.held = self.held, []
        for _, on_committed in held:
            on_committed(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def cut(self) -> None:
        """The tail that was not committed is gone: another replica has become the leader."""
        held, self.held = self.held, []
        for partition, _ in reversed(held):
            self.ends[partition], _ = self.batches[partition].pop()

    def compact(self, partition: int) -> None:
        """Only the last record of each key is left, and no tombstone."""
        data = b"".join(batch for _, batch in self.batches[partition])
        records = [each for header in split_batches(data) for each in read_batch(data, header)]
        last = {record.key: record for record in records if record.key is not None}
        self.batches[partition] = [
            (record.offset, _batch_of(record))
            for record in sorted(last.values(), key=lambda each: each.offset)
            if record.value is not None
        ]

    def max_batch_bytes(self, partition: int) -> int:
        if partition in self.raises:
            raise self.raises[partition]
        return self.max_bytes

    def bounds(self, partition: int) -> LogBounds:
        return LogBounds(0, self.ends.get(partition, 0))

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        if partition in self.raises:
            raise self.raises[partition]
        found = b""
        for base_offset, batch in self.batches.get(partition, []):
            if base_offset < offset:
                continue
            if found and len(found) + len(batch) > max_bytes:
                break
            found += batch
        return found


def _batch_of(record: Record) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(0, record.key, record.value)
    batch = bytearray(builder.build())
    _OFFSET.pack_into(batch, 0, record.offset)
    return bytes(batch)


class World:
    """A coordinator with a clock that the test moves."""

    def __init__(self, partitions: int = 1, **settings: object) -> None:
        texts = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.config = BrokerConfig(
            {"broker.id": "1", "group.initial.rebalance.delay.ms": "0", **texts}
        )
        self.clock = ManualClock(wall_ms=1_700_000_000_000)
        self.timer = MockTimer(clock=self.clock)
        self.log = ListLog()
        self.metadata = MetadataCache()
        self.partitions = partitions
        self.load_slice_bytes = LOAD_SLICE_BYTES
        self._uuids = itertools.count(1)
        self._build()

    def _build(self) -> None:
        self.rebalances = DelayedOperationPurgatory("Rebalance", self.timer)
        self.heartbeats = DelayedOperationPurgatory("Heartbeat", self.timer)
        self.writes = DelayedOperationPurgatory("GroupWrite", self.timer)
        services = GroupServices(
            self.config,
            self.clock,
            self.rebalances,
            self.heartbeats,
            lambda: UUID(int=next(self._uuids)),
            TopicMetadata(self.metadata),
        )
        self.deferred: list[Callable[[], None]] = []
        self.runtime = CoordinatorRuntime[GroupShard](
            self.log,
            GroupRecordCodec(),
            self.clock,
            self.deferred.append,
            lambda: self.partitions,
            lambda partition, _epoch, append, execute: GroupShard(
                partition, ShardServices(services, append, execute)
            ),
            RuntimeSettings(
                load_slice_bytes=self.load_slice_bytes,
                write_timeout_ms=self.config["offsets.commit.timeout.ms"],
            ),
            self.writes,
        )
        self.groups = GroupCoordinator(self.runtime, self.config, self.clock)
        self.elect()

    def elect(self, epoch: int = 0) -> None:
        for partition in range(self.partitions):
            self.runtime.on_elected(partition, epoch)

    def run_deferred(self) -> None:
        while self.deferred:
            self.deferred.pop(0)()

    def restart(self, *, loses_tail: bool = False) -> None:
        """The broker is killed and starts again: only the log is left, perhaps without what
        was not committed."""
        if loses_tail:
            self.log.cut()
        self.log.held.clear()
        self.rebalances.shutdown()
        self.heartbeats.shutdown()
        self.writes.shutdown()
        self._build()
        self.run_deferred()

    def advance(self, duration_ms: int) -> None:
        self.timer.advance_clock(duration_ms)

    def commit(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], int],
        member: "Member | None" = None,
        *,
        metadata: str = "",
        retention_ms: int = -1,
        version: int = 9,
        linger: bool = False,
    ) -> TopicErrors | BrokerError | None:
        """Commits; the answer, or None when it has not come yet."""
        topics = [
            CommittedTopic(topic, None, [CommittedPartition(partition, offset, -1, metadata)])
            for (topic, partition), offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id,
            "" if member is None else member.member_id,
            None if member is None else member.instance_id,
            -1 if member is None else member.generation_id,
            retention_ms,
            topics,
            version,
        )
        answers: list[TopicErrors | BrokerError] = []
        self.groups.commit_offsets(request, answers.append, linger=linger)
        return answers[0] if answers else None

    def committed(self, group_id: str) -> dict[tuple[str, int], int]:
        return {
            (topic, partition): value.offset
            for topic, partitions in self.groups.fetch_offsets(group_id, None, -1).committed.items()
            for partition, value in partitions.items()
        }


class Member:
    """A member of a group, as a client library keeps it; sends what the test says."""

    def __init__(
        self,
        world: World,
        name: str,
        group_id: str = "g",
        *,
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"m"),),
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        version: int = 9,
    ) -> None:
        self.world = world
        self.name = name
        self.group_id = group_id
        self.instance_id = instance_id
        self.protocols = protocols
        self.protocol_type = protocol_type
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.version = version
        self.member_id = ""
        self.generation_id = -1
        self.joined: list[JoinResult] = []
        self.synced: list[SyncResult] = []

    def send_join(self, reason: str = "") -> None:
        """One JoinGroup; its answer goes to `joined`."""
        request = JoinRequest(
            self.group_id,
            self.member_id,
            self.instance_id,
            self.name,
            "/127.0.0.1",
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocol_type,
            self.protocols,
            reason,
            self.version >= 4,
            self.version >= 9,
        )
        self.world.groups.join(request, self._on_joined)

    def join(self) -> None:
        """Joins as a library does: once more with the id that it is given."""
        self.send_join()
        if self.joined and self.joined[-1].error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.send_join()

    def _on_joined(self, result: JoinResult) -> None:
        self.joined.append(result)
        if result.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = result.member_id
        if result.error_code is ErrorCode.NONE:
            self.generation_id = result.generation_id

    @property
    def leads(self) -> bool:
        return bool(self.joined) and self.joined[-1].leader_id == self.member_id

    def sync(self, assignments: Mapping[str, bytes] | None = None) -> None:
        """One SyncGroup; its answer goes to `synced`."""
        request = SyncRequest(
            self.group_id,
            self.generation_id,
            self.member_id,
            self.instance_id,
            self.protocol_type,
            None,
            assignments or {},
        )
        self.world.groups.sync(request, self.synced.append)

    def beat(self) -> ErrorCode:
        return self.world.groups.heartbeat(
            self.group_id, self.member_id, self.instance_id, self.generation_id
        )

    def leave(self) -> ErrorCode:
        leaving = LeavingMember(self.member_id, self.instance_id, "done")
        outcomes: list[list[ErrorCode] | BrokerError] = []
        self.world.groups.leave(self.group_id, [leaving], outcomes.append)
        (outcome,) = outcomes
        return outcome.code if isinstance(outcome, BrokerError) else outcome[0]


def settle(*members: Member) -> None:
    """Everybody joins, the leader assigns everyone its own name, everybody syncs."""
    for member in members:
        member.join()
    members[0].world.advance(0)
    sync_all(*members)


def sync_all(*members: Member) -> None:
    """Everybody syncs what it has joined; the leader assigns everyone its own name."""
    assignments = {member.member_id: member.name.encode() for member in members}
    for member in members:
        member.sync(assignments if member.leads else None)
