"""Calls about share groups: which records are held, by whom and until when; start, lag, reset."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from odradek.coordinator.share.shard import SharePartitionState
from odradek.coordinator.share.share_coordinator import coordinator_key
from odradek.coordinator.share_groups.group import ShareGroup
from odradek.coordinator.share_groups.share_group_coordinator import Errors
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.group_settings import GroupSettings
from odradek.model import SHARE_GROUP_STATE_TOPIC, TopicPartition
from odradek.replication.share.persister import SharePartitionKey
from odradek.replication.share.states import FINAL_STATES, RecordState
from odradek.server.awaiting import outcome
from odradek.server.in_process.calls.running_brokers import RunningBrokers
from odradek.suggestions import name_of

_SHARE: Final = "share"


class HeldRecords(NamedTuple):
    """Records that a member holds, delivered for the `delivery_count`th time; without an
    acknowledgement before `until_ms`, in wall time, another member gets them."""

    first_offset: int
    last_offset: int
    member_id: str
    delivery_count: int
    until_ms: int


class ShareGroupPartition(NamedTuple):
    """A share group's state in a partition: all records before `start_offset` are finished, -1
    means that no member has read yet. `waiting` are records that were given back; `lag` is None
    where it is not known."""

    start_offset: int
    lag: int | None = None
    held: tuple[HeldRecords, ...] = ()
    waiting: int = 0


class ShareGroupState(NamedTuple):
    """A share group as it is at one moment; one that does not exist is `Dead`."""

    group: str
    state: str
    members: tuple[str, ...] = ()
    partitions: Mapping[TopicPartition, ShareGroupPartition] = {}


class ShareGroupHelpers:
    """The questions about share groups to the brokers that run. All calls are their loop's."""

    def __init__(self, brokers: RunningBrokers) -> None:
        self._brokers: Final = brokers

    def find(self, group: str) -> ShareGroup | None:
        """The group, if there is one of the kind."""
        try:
            coordinator = self._brokers.coordinator(group).coordinators.groups.coordinator
        except BrokerError as error:
            if error.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                return None
            raise
        return coordinator.runtime.shard(group).share.find(group)

    def describe(self, group: str) -> ShareGroupState:
        """See `BrokerCalls.share_group`."""
        name_of("a group", group)
        found = self.find(group)
        if found is None:
            return ShareGroupState(group, "Dead")
        partitions = {where: self._partition(key, where) for where, key in self._keys(found)}
        return ShareGroupState(group, found.state_name, tuple(found.members), partitions)

    def offsets(self, found: ShareGroup) -> dict[TopicPartition, int]:
        """The group's start offsets, of the partitions that it has begun to read."""
        starts = {where: _start(self._stored(key)) for where, key in self._keys(found)}
        return {where: start for where, start in starts.items() if start >= 0}

    def lag(self, found: ShareGroup) -> dict[TopicPartition, int]:
        """How many records are not dealt with, of the partitions where that is known."""
        lags = {where: self._lag(key, where) for where, key in self._keys(found)}
        return {where: lag for where, lag in lags.items() if lag is not None}

    def state_partitions(self, group: str) -> list[TopicPartition]:
        """The store of a share group's states."""
        found = self.find(group)
        runtime = self._brokers.all[0].coordinators.share_states.coordinator.runtime
        keys = () if found is None else (key for _, key in self._keys(found))
        indexes = {runtime.partition_of(coordinator_key(each)) for each in keys}
        return [TopicPartition(SHARE_GROUP_STATE_TOPIC, index) for index in sorted(indexes)]

    def reset_policy(self, group: str) -> str:
        """The group's `share.auto.offset.reset`: where it begins to read a partition."""
        server = self._brokers.coordinator(group)
        settings = GroupSettings(_SHARE, group, server.config, self._brokers.image)
        return str(settings.value("auto.offset.reset"))

    async def alter(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Moves where the group begins.

        Raises:
            BrokerError: it has members, or a state cannot be stored.
        """
        starts = {
            (self._brokers.topic(where.topic).topic_id, where.partition): offset
            for where, offset in offsets.items()
        }
        share_groups = self._brokers.coordinator(group).coordinators.groups.share_groups
        errors: Errors = await outcome(
            lambda on_done: share_groups.alter_offsets(group, starts, on_done)
        )
        for error in errors.values():
            if error is not None:
                raise error

    def _keys(self, found: ShareGroup) -> Iterator[tuple[TopicPartition, SharePartitionKey]]:
        """The partitions that have a state, of topics that exist."""
        for name, topic in sorted(self._brokers.image.topics.items()):
            for index in sorted(found.initialized.get(topic.topic_id, ())):
                key = SharePartitionKey(found.group_id, topic.topic_id, index)
                yield TopicPartition(name, index), key

    def _stored(self, key: SharePartitionKey) -> SharePartitionState | None:
        for server in self._brokers.all:
            runtime = server.coordinators.share_states.coordinator.runtime
            try:
                shard = runtime.shard(coordinator_key(key))
            except BrokerError:
                continue  # another broker coordinates it
            return shard.states.get(key)
        return None

    def _lag(self, key: SharePartitionKey, where: TopicPartition) -> int | None:
        stored = self._stored(key)
        if stored is None or stored.start_offset < 0 or stored.delivery_complete_count < 0:
            return None
        log = self._brokers.leader(where).replicas.partition(where).leader_log()
        return max(0, log.high_watermark - stored.start_offset - stored.delivery_complete_count)

    def _partition(self, key: SharePartitionKey, where: TopicPartition) -> ShareGroupPartition:
        stored = self._stored(key)
        lag = self._lag(key, where)
        server = self._brokers.leader(where)
        led = server.coordinators.share_partitions.partitions.get(key)
        if led is None or not led.is_loaded:
            return ShareGroupPartition(_start(stored), lag)
        records = led.records
        offset_ms = server.clock.wall_ms() - server.timer.now_ms
        held = tuple(
            HeldRecords(
                each.first,
                each.last,
                each.lock.member_id,
                each.delivery_count,
                each.lock.expiration_ms + offset_ms,
            )
            for each in records.in_flight
            if each.lock is not None and each.state is RecordState.ACQUIRED
        )
        return ShareGroupPartition(records.start_offset, lag, held, records.available_count)


def _start(stored: SharePartitionState | None) -> int:
    """The group's start: the stored one may be behind the finished records."""
    if stored is None:
        return -1
    start = stored.start_offset
    for batch in stored.batches.to_tuple():
        if batch.first_offset != start or batch.state not in FINAL_STATES:
            break
        start = batch.last_offset + 1
    return start
