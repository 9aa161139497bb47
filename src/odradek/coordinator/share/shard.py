"""`ShareShard`: the share partitions of one partition of `__share_group_state`.

The first record of a partition is a snapshot, and so is one after every so many updates; the
updates between them have the changes. A snapshot makes everything before it useless.
`needed_offset` is the offset from which the log is needed. It is found by generations: a snapshot
belongs to the generation in which it was stored, and the start offset of each generation is known.

Writers are fenced twice: by the epoch of the partition's leader, which rises as leaders change, and
by the epoch of the state, which rises when an operator sets a group's offsets. Only what is
committed counts, so a write that the log refuses has changed nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, cast
from uuid import UUID

from odradek.clock import Clock
from odradek.config.broker import BrokerConfig
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.records.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from odradek.coordinator.runtime.shard import CoordinatorResult, CoordinatorShard, Uncommitted
from odradek.coordinator.share.state_batches import StateBatches
from odradek.errors import BrokerError, ErrorCode
from odradek.replication.share.persister import (
    NO_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_START_OFFSET,
    SharePartitionKey,
    ShareState,
    ShareSummary,
    StateBatch,
)

UNKNOWN_EPOCH: Final = -1
UNCHANGED_START: Final = -1


class SharePartitionState:
    """The stored state of one share partition, and how it is stored."""

    def __init__(self, value: ShareSnapshotValue, generation: int) -> None:
        self.snapshot_epoch = value.snapshot_epoch
        self.state_epoch = value.state_epoch
        self.leader_epoch = value.leader_epoch
        self.start_offset = value.start_offset
        self.delivery_complete_count = value.delivery_complete_count
        self.write_timestamp_ms = value.write_timestamp_ms
        self.batches = StateBatches(value.batches)
        self.update_count = 0
        self.generation = generation

    def apply(self, value: ShareUpdateValue) -> None:
        """Applies an update."""
        self.leader_epoch = max(self.leader_epoch, value.leader_epoch)
        if value.start_offset != UNCHANGED_START:
            self.start_offset = value.start_offset
        self.delivery_complete_count = value.delivery_complete_count
        for batch in value.batches:
            self.batches.put(batch)
        self.batches.drop_before(self.start_offset)
        self.update_count += 1


class ShareShard(CoordinatorShard):
    """One partition's states. Called on the broker's loop only.

    `partition_count` says how many partitions the topic of an id has, None if there is none.
    """

    def __init__(
        self,
        partition: int,
        config: BrokerConfig,
        clock: Clock,
        partition_count: Callable[[UUID], int | None],
    ) -> None:
        self.partition = partition
        self.states: dict[SharePartitionKey, SharePartitionState] = {}
        self.generation = 0
        self._marks: dict[int, int] = {}
        self._config = config
        self._clock = clock
        self._partition_count = partition_count

    # The log

    def replay(self, record: CoordinatorRecord, producer_id: int) -> None:  # noqa: ARG002
        """See `CoordinatorShard`."""
        key = record.key
        if isinstance(key, ShareSnapshotKey):
            if record.value is None:
                self.states.pop(key.partition, None)
            else:
                value = cast(ShareSnapshotValue, record.value)
                self.states[key.partition] = SharePartitionState(value, self.generation)
        elif isinstance(key, ShareUpdateKey) and record.value is not None:
            state = self.states.get(key.partition)
            if state is not None:
                state.apply(cast(ShareUpdateValue, record.value))

    def on_loaded(self) -> None:
        """See `CoordinatorShard`."""

    def on_unloaded(self) -> None:
        """See `CoordinatorShard`: nobody waits here."""

    # Commands

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> CoordinatorResult[None]:
        """Makes a state, in place of one of an older epoch.

        Raises:
            BrokerError: INVALID_REQUEST, FENCED_STATE_EPOCH or UNKNOWN_TOPIC_OR_PARTITION.
        """
        _check_form(key)
        known = self.states.get(key)
        if known is not None and state_epoch not in (UNKNOWN_EPOCH,):
            _fence(known.state_epoch, state_epoch, ErrorCode.FENCED_STATE_EPOCH)
        self._check_topic(key)
        now_ms = self._clock.wall_ms()
        value = ShareSnapshotValue(
            0 if known is None else known.snapshot_epoch + 1,
            state_epoch,
            0 if known is None else known.leader_epoch,
            start_offset,
            NO_DELIVERY_COMPLETE_COUNT if start_offset == UNINITIALIZED_START_OFFSET else 0,
            now_ms,
            now_ms,
            (),
        )
        return CoordinatorResult([CoordinatorRecord(ShareSnapshotKey(key), value)], None)

    def write(
        self, key: SharePartitionKey, leader_epoch: int, state: ShareState
    ) -> CoordinatorResult[None]:
        """Stores changes.

        Raises:
            BrokerError: INVALID_REQUEST also for a state that was never made,
                FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH or UNKNOWN_TOPIC_OR_PARTITION.
        """
        known = self._known(key)
        _fence(known.leader_epoch, leader_epoch, ErrorCode.FENCED_LEADER_EPOCH)
        _fence(known.state_epoch, state.state_epoch, ErrorCode.FENCED_STATE_EPOCH)
        self._check_topic(key)
        return CoordinatorResult([self._change(key, known, leader_epoch, state)], None)

    def read(self, key: SharePartitionKey, leader_epoch: int) -> CoordinatorResult[ShareState]:
        """The state, for a partition's leader: older leaders may not write from here on.

        Raises:
            BrokerError: INVALID_REQUEST, FENCED_LEADER_EPOCH or UNKNOWN_TOPIC_OR_PARTITION.
        """
        known = self._known(key)
        _fence(known.leader_epoch, leader_epoch, ErrorCode.FENCED_LEADER_EPOCH)
        self._check_topic(key)
        count = known.delivery_complete_count
        batches = known.batches.to_tuple()
        state = ShareState(known.state_epoch, known.start_offset, batches, count)
        if leader_epoch <= known.leader_epoch:
            return CoordinatorResult((), state)
        same = ShareState(known.state_epoch, known.start_offset, (), count)
        return CoordinatorResult([self._change(key, known, leader_epoch, same)], state)

    def summarize(self, key: SharePartitionKey, leader_epoch: int) -> ShareSummary:
        """A summary of the state; one that was never made has no start.

        Raises:
            BrokerError: INVALID_REQUEST, FENCED_LEADER_EPOCH or UNKNOWN_TOPIC_OR_PARTITION.
        """
        _check_form(key)
        self._check_topic(key)
        known = self.states.get(key)
        if known is None:
            return ShareSummary(0, 0, UNINITIALIZED_START_OFFSET)
        if leader_epoch != UNKNOWN_EPOCH:
            _fence(known.leader_epoch, leader_epoch, ErrorCode.FENCED_LEADER_EPOCH)
        return ShareSummary(
            known.state_epoch,
            known.leader_epoch,
            known.start_offset,
            known.delivery_complete_count,
        )

    def delete(self, key: SharePartitionKey) -> CoordinatorResult[None]:
        """Deletes a state; deleting a missing one succeeds.

        Raises:
            BrokerError: INVALID_REQUEST or UNKNOWN_TOPIC_OR_PARTITION.
        """
        _check_form(key)
        self._check_topic(key)
        if key not in self.states:
            return CoordinatorResult((), None)
        return CoordinatorResult([CoordinatorRecord(ShareSnapshotKey(key), None)], None)

    # Upkeep

    def forget_topics(self) -> Iterator[Sequence[CoordinatorRecord]]:
        """Deletes the states of deleted topics."""
        for key in list(self.states):
            if self._partition_count(key.topic_id) is None:
                yield [CoordinatorRecord(ShareSnapshotKey(key), None)]

    def mark(self, end_offset: int) -> None:
        """Begins a generation of snapshots at the end of the log, if the log has grown by more
        records than there are states."""
        if end_offset > self._marks.get(self.generation, 0) + len(self.states):
            oldest = self._oldest_generation
            self._marks = {each: at for each, at in self._marks.items() if each >= oldest}
            self.generation += 1
            self._marks[self.generation] = end_offset

    def refresh(self, uncommitted: Uncommitted) -> Iterator[Sequence[CoordinatorRecord]]:
        """Writes snapshots of the quiet states, whose last one is of an older generation. A state
        with a write in progress is left for the next time: a snapshot of the committed state behind
        that write would undo it."""
        for key, state in list(self.states.items()):
            is_old = self.states.get(key) is state and state.generation < self.generation
            if is_old and not any(_is_of(each, key) for each in uncommitted()):
                yield [self._snapshot(key, state, state.leader_epoch, _unchanged(state))]

    @property
    def needed_offset(self) -> int:
        """The first offset of the log that a state depends on."""
        return self._marks.get(self._oldest_generation, 0)

    @property
    def _oldest_generation(self) -> int:
        return min([each.generation for each in self.states.values()], default=self.generation)

    # Help

    def _known(self, key: SharePartitionKey) -> SharePartitionState:
        _check_form(key)
        state = self.states.get(key)
        if state is None:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"the share partition {key} is not initialized"
            )
        return state

    def _check_topic(self, key: SharePartitionKey) -> None:
        count = self._partition_count(key.topic_id)
        if count is None or key.partition >= count:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _change(
        self,
        key: SharePartitionKey,
        known: SharePartitionState,
        leader_epoch: int,
        state: ShareState,
    ) -> CoordinatorRecord:
        if leader_epoch == UNKNOWN_EPOCH:
            leader_epoch = known.leader_epoch
        limit: int = self._config["share.coordinator.snapshot.update.records.per.snapshot"]
        if known.update_count >= limit:
            return self._snapshot(key, known, leader_epoch, state)
        value = ShareUpdateValue(
            known.snapshot_epoch,
            leader_epoch,
            state.start_offset,
            state.delivery_complete_count,
            StateBatches(state.batches).to_tuple(),
        )
        return CoordinatorRecord(ShareUpdateKey(key), value)

    def _snapshot(
        self,
        key: SharePartitionKey,
        known: SharePartitionState,
        leader_epoch: int,
        state: ShareState,
    ) -> CoordinatorRecord:
        start = state.start_offset
        if start == UNCHANGED_START:
            start = known.start_offset
        batches = known.batches.copy()
        for batch in state.batches:
            batches.put(batch)
        batches.drop_before(start)
        now_ms = self._clock.wall_ms()
        value = ShareSnapshotValue(
            known.snapshot_epoch + 1,
            known.state_epoch,
            leader_epoch,
            start,
            state.delivery_complete_count,
            now_ms,
            now_ms,
            batches.to_tuple(),
        )
        return CoordinatorRecord(ShareSnapshotKey(key), value)


def _is_of(record: CoordinatorRecord, key: SharePartitionKey) -> bool:
    at = record.key
    return isinstance(at, ShareSnapshotKey | ShareUpdateKey) and at.partition == key


def _unchanged(known: SharePartitionState) -> ShareState:
    batches: tuple[StateBatch, ...] = ()
    return ShareState(known.state_epoch, UNCHANGED_START, batches, known.delivery_complete_count)


def _check_form(key: SharePartitionKey) -> None:
    if key.partition < 0:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number."
        )


def _fence(known_epoch: int, epoch: int, code: ErrorCode) -> None:
    if known_epoch > epoch:
        raise BrokerError(code)
