"""The states of share partitions: their formats to the byte, and what is let in."""

from uuid import UUID

import pytest
from tests.unit.coordinator.fakes import ListLog

from odradek.clock import ManualClock
from odradek.config import BrokerConfig
from odradek.coordinator.records.record import CoordinatorRecord, RecordError
from odradek.coordinator.records.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareStateRecordCodec,
    ShareUpdateKey,
    ShareUpdateValue,
)
from odradek.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.coordinator.runtime.settings import RuntimeSettings
from odradek.coordinator.share.shard import ShareShard
from odradek.coordinator.share.share_coordinator import ShareCoordinator, coordinator_key
from odradek.coordinator.share.state_batches import StateBatches
from odradek.errors import BrokerError, ErrorCode
from odradek.purgatory import DelayedOperationPurgatory
from odradek.replication.share.persister import (
    SharePartitionKey,
    ShareState,
    ShareSummary,
    StateBatch,
)
from odradek.replication.share.states import RecordState
from odradek.timer import MockTimer

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
KEY = SharePartitionKey("g", TOPIC_ID, 7)
CODEC = ShareStateRecordCodec()
ACKED = StateBatch(100, 109, RecordState.ACKNOWLEDGED, 1)
RELEASED = StateBatch(110, 119, RecordState.AVAILABLE, 3)


def _snapshot(count: int) -> ShareSnapshotValue:
    return ShareSnapshotValue(3, 2, 9, 100, count, 1_700_000_000_000, 1_700_000_000_001, (ACKED,))


# Made by Kafka 4.3.0's own classes.
SNAPSHOT_KEY = "000000016700112233445566778899aabbccddeeff00000007"
UPDATE_KEY = "000100016700112233445566778899aabbccddeeff00000007"
SNAPSHOT = (
    "000000000003000000020000000900000000000000640000018bcfe568000000018bcfe5680102000000000000"
    "0064000000000000006d02000100"
)
UPDATE = "00000000000300000009ffffffffffffffff02000000000000006e000000000000007700000300"
COUNTED = "01000400000005"


@pytest.mark.parametrize(
    ("key", "value", "key_bytes", "value_bytes"),
    [
        (ShareSnapshotKey(KEY), _snapshot(-1), SNAPSHOT_KEY, SNAPSHOT + "00"),
        (ShareSnapshotKey(KEY), _snapshot(5), SNAPSHOT_KEY, SNAPSHOT + COUNTED),
        (
            ShareUpdateKey(KEY),
            ShareUpdateValue(3, 9, -1, -1, (RELEASED,)),
            UPDATE_KEY,
            UPDATE + "00",
        ),
        (
            ShareUpdateKey(KEY),
            ShareUpdateValue(3, 9, -1, 5, (RELEASED,)),
            UPDATE_KEY,
            UPDATE + COUNTED,
        ),
    ],
)
def test_records_are_kafkas(key, value, key_bytes, value_bytes) -> None:
    """If this fails, Kafka's tools cannot read our states, or we not Kafka's."""
    record = CoordinatorRecord(key, value)
    encoded = CODEC.encode(record)
    assert (encoded[0].hex(), encoded[1].hex()) == (key_bytes, value_bytes)
    assert CODEC.decode(*encoded) == record


def test_a_time_that_records_are_due_at_is_a_tag_that_kafka_passes_over() -> None:
    """If this fails, records that are held back come at once after a restart, or Kafka's tools
    cannot read the state."""
    due = RELEASED._replace(due_ms=1_700_000_000_000)
    record = CoordinatorRecord(ShareUpdateKey(KEY), ShareUpdateValue(3, 9, -1, 5, (due, RELEASED)))
    key, value = CODEC.encode(record)
    assert CODEC.decode(key, value) == record
    # One tag, 10 000, of eight bytes.
    tag = bytes.fromhex("01904e080000018bcfe56800")
    assert value.count(tag) == 1
    assert (
        value.replace(tag, b"\0")
        == CODEC.encode(
            CoordinatorRecord(
                ShareUpdateKey(KEY), ShareUpdateValue(3, 9, -1, 5, (RELEASED, RELEASED))
            )
        )[1]
    )
    later = value.replace(tag, bytes.fromhex("01914e080000018bcfe56800"))
    decoded = CODEC.decode(key, later)
    assert decoded is not None
    assert decoded.value.batches == (RELEASED, RELEASED)  # type: ignore[attr-defined]


def test_malformed_records_are_told_from_unknown_ones() -> None:
    """If this fails, a corrupt record ends the broker, or a newer one does."""
    key, value = CODEC.encode(CoordinatorRecord(ShareSnapshotKey(KEY), _snapshot(5)))
    for data in (
        value[:-1],
        value[:20],
        b"\0\1" + value[2:],
        value.replace(b"\x02\0\1", b"\x09\0\1"),
    ):
        with pytest.raises(RecordError):
            CODEC.decode(key, data)
    with pytest.raises(RecordError):
        CODEC.decode(key[:-1], value)
    assert CODEC.decode(b"\0\x09" + key[2:], value) is None


def test_the_key_is_kafkas() -> None:
    """If this fails, coordinators are looked for on the wrong broker."""
    assert coordinator_key(KEY) == "g:ABEiM0RVZneImaq7zN3u_w:7"


def test_the_later_delivery_counts() -> None:
    """If this fails, an acknowledged record comes back when states are merged."""
    batches = StateBatches()
    batches.put(StateBatch(0, 9, RecordState.AVAILABLE, 1))
    batches.put(StateBatch(3, 5, RecordState.ACKNOWLEDGED, 2))
    batches.put(StateBatch(0, 9, RecordState.AVAILABLE, 1))
    batches.put(StateBatch(20, 24, RecordState.ARCHIVED, 1))
    batches.put(StateBatch(8, 21, RecordState.ARCHIVED, 1))
    assert [each[:4] for each in batches.to_tuple()] == [
        (0, 2, 0, 1),
        (3, 5, 2, 2),
        (6, 7, 0, 1),
        (8, 24, 4, 1),
    ]
    batches.drop_before(5)
    assert batches.to_tuple()[0] == StateBatch(5, 5, RecordState.ACKNOWLEDGED, 2)


class World:
    """A share coordinator over a list; `turn` ends a turn of the loop."""

    def __init__(self, log: ListLog | None = None, **settings: str) -> None:
        self.log = log or ListLog()
        self.deferred = []
        self.deleted = []
        timer = MockTimer()
        config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
        clock = ManualClock()
        self.runtime = CoordinatorRuntime(
            self.log,
            CODEC,
            clock,
            self.deferred.append,
            lambda: 1,
            lambda partition, *_: ShareShard(
                partition, config, clock, lambda topic_id: 8 if topic_id == TOPIC_ID else None
            ),
            RuntimeSettings(),
            DelayedOperationPurgatory("w", timer, 0),
        )
        self.coordinator = ShareCoordinator(
            self.runtime,
            self.deferred.append,
            lambda partition: self.log.bounds(partition).end_offset,
            lambda partition, offset: self.deleted.append((partition, offset)),
        )
        self.runtime.on_elected(0, 0)
        self.turn()

    def turn(self) -> None:
        while self.deferred:
            self.deferred.pop(0)()

    def ask(self, name, *arguments):
        outcome = []
        getattr(self.coordinator, name)(*arguments, outcome.append)
        self.turn()
        assert len(outcome) == 1
        return outcome[0].code if isinstance(outcome[0], BrokerError) else outcome[0]

    def write(self, leader_epoch, start, *batches, state_epoch=0, count=0):
        state = ShareState(state_epoch, start, batches, count)
        return self.ask("write", KEY, leader_epoch, state)


def test_a_state_is_made_written_read_and_forgotten() -> None:
    """If this fails, share groups start over, or never let go of what is deleted."""
    world = World()
    assert world.ask("read", KEY, 0) is ErrorCode.INVALID_REQUEST
    assert world.write(0, 100) is ErrorCode.INVALID_REQUEST
    assert world.ask("summarize", KEY, 0) == ShareSummary(0, 0, -1)
    assert world.ask("initialize", KEY, 1, 100) is None
    assert world.write(3, 100, ACKED, RELEASED, state_epoch=1, count=10) is None
    assert world.ask("read", KEY, 3) == ShareState(1, 100, (ACKED, RELEASED), 10)
    assert world.ask("summarize", KEY, -1) == ShareSummary(1, 3, 100, 10)
    again = World(world.log)
    assert again.ask("read", KEY, 3) == ShareState(1, 100, (ACKED, RELEASED), 10)
    assert again.ask("delete", KEY) is None
    assert again.ask("delete", KEY) is None
    assert World(world.log).ask("read", KEY, 3) is ErrorCode.INVALID_REQUEST


def test_older_writers_are_fenced() -> None:
    """If this fails, a leader that was replaced overwrites what the next one has stored."""
    world = World()
    world.ask("initialize", KEY, 2, 0)
    assert world.ask("read", KEY, 5).start_offset == 0
    assert world.write(4, 0, state_epoch=2) is ErrorCode.FENCED_LEADER_EPOCH
    assert world.write(5, 0, state_epoch=1) is ErrorCode.FENCED_STATE_EPOCH
    assert world.ask("read", KEY, 4) is ErrorCode.FENCED_LEADER_EPOCH
    assert world.ask("initialize", KEY, 1, 0) is ErrorCode.FENCED_STATE_EPOCH
    assert World(world.log).write(4, 0, state_epoch=2) is ErrorCode.FENCED_LEADER_EPOCH


def test_what_cannot_be_meant_is_refused() -> None:
    """If this fails, states are kept for partitions that do not exist."""
    world = World()
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.ask("initialize", KEY._replace(partition=8), 0, 0) is code
    assert world.ask("initialize", KEY._replace(topic_id=UUID(int=5)), 0, 0) is code
    nobody = KEY._replace(topic_id=UUID(int=0))
    assert world.ask("initialize", nobody, 0, 0) is code
    assert world.ask("delete", nobody) is code
    negative = KEY._replace(partition=-1)
    assert world.ask("delete", negative) is ErrorCode.INVALID_REQUEST


def test_a_refused_write_changes_nothing() -> None:
    """If this fails, memory knows what the log does not."""
    world = World()
    world.ask("initialize", KEY, 0, 100)
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.write(0, 105, ACKED) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.refusal = None
    assert world.ask("read", KEY, 0) == ShareState(0, 100, (), 0)


def test_states_are_written_whole_from_time_to_time() -> None:
    """If this fails, a restart replays every acknowledgement ever made."""
    world = World(share_coordinator_snapshot_update_records_per_snapshot="3")
    world.ask("initialize", KEY, 0, 0)
    shard = world.runtime.shard(coordinator_key(KEY))
    for number in range(8):
        done = StateBatch(number, number, RecordState.ACKNOWLEDGED, 1)
        assert world.write(0, -1, done, count=number + 1) is None
    assert (shard.states[KEY].snapshot_epoch, shard.states[KEY].update_count) == (2, 0)
    state = ShareState(0, 0, (StateBatch(0, 7, RecordState.ACKNOWLEDGED, 1),), 8)
    assert World(world.log).ask("read", KEY, 0) == state


def test_writes_of_one_turn_share_an_append() -> None:
    """If this fails, every acknowledgement costs a write of its own."""
    world = World()
    keys = [KEY._replace(partition=partition) for partition in range(5)]
    for key in keys:
        world.coordinator.initialize(key, 0, 0, lambda _outcome: None)
    world.turn()
    assert world.log.appends == 1


@pytest.mark.parametrize("holds", [False, True])
def test_a_write_behind_another_is_not_forgotten(holds) -> None:
    """If this fails, the second of two requests for a share partition is answered only when it has
    timed out."""
    world = World()
    world.ask("initialize", KEY, 0, 0)
    world.log.holds = holds
    answers = []
    for number in (1, 2, 3):
        world.coordinator.write(KEY, number, ShareState(0, number), answers.append)
    for _ in range(4):
        world.turn()
        world.log.commit()
    assert answers == [None, None, None]


def test_the_head_of_the_log_is_cut_off() -> None:
    """If this fails, the topic of states grows for ever, or what is needed is cut off."""
    world = World()
    quiet = KEY._replace(partition=1)
    world.ask("initialize", quiet, 0, 5)
    world.ask("initialize", KEY, 0, 0)
    for number in range(10):
        world.write(0, number)
    world.coordinator.prune()
    world.turn()
    assert world.deleted == []
    world.coordinator.prune()
    world.turn()
    assert world.deleted == [(0, 12)]
    batches = world.log.batches[0]
    world.log.batches[0] = [each for each in batches if each[0] >= 12]
    world.log.starts = {0: 12}
    again = World(world.log)
    assert again.ask("read", quiet, 0) == ShareState(0, 5, (), 0)
    assert again.ask("read", KEY, 0).start_offset == 9
    ends = world.log.ends[0]
    world.coordinator.prune()
    world.turn()
    assert world.log.ends[0] == ends, "quiet states are stored again and again"


@pytest.mark.parametrize("holds", [False, True])
def test_a_write_on_its_way_is_not_undone_by_upkeep(holds) -> None:
    """If this fails, records that were acknowledged while the log was tidied up come back."""
    world = World()
    quiet = KEY._replace(partition=1)
    world.ask("initialize", quiet, 0, 0)
    world.ask("initialize", KEY, 0, 0)
    for number in range(5):
        world.write(0, number)
    world.coordinator.prune()
    world.log.holds = holds
    answers = []
    world.coordinator.write(KEY, 0, ShareState(0, 100, (ACKED,), 10), answers.append)
    for _ in range(3):
        world.turn()
        world.log.commit()
    assert answers == [None]
    for each in (world, World(world.log)):
        assert each.ask("read", KEY, 0) == ShareState(0, 100, (ACKED,), 10)


def test_old_marks_are_forgotten() -> None:
    """If this fails, memory grows with every time that the log is tidied up."""
    world = World()
    world.ask("initialize", KEY, 0, 0)
    for number in range(20):
        for each in range(3):
            world.write(0, 3 * number + each)
        world.coordinator.prune()
        world.turn()
    assert len(world.runtime.shard(coordinator_key(KEY))._marks) <= 2
