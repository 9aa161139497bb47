"""Share groups: who is a member, what it reads, and which partitions have states."""

from collections import deque
from collections.abc import Callable
from uuid import UUID

import pytest
from tests.unit.coordinator.consumer.consumers import ConsumerWorld
from tests.unit.coordinator.fakes import ListLog, Member

from odradek.clock import ManualClock
from odradek.config import BrokerConfig
from odradek.coordinator.records.share_state_records import ShareStateRecordCodec
from odradek.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.coordinator.runtime.settings import RuntimeSettings
from odradek.coordinator.share.shard import ShareShard
from odradek.coordinator.share.share_coordinator import ShareCoordinator
from odradek.coordinator.share_groups.requests import ShareHeartbeatRequest, ShareHeartbeatResult
from odradek.coordinator.share_groups.share_group_coordinator import (
    SLICE_PARTITIONS,
    ShareGroupCoordinator,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.purgatory import DelayedOperationPurgatory
from odradek.replication.share.persister import SharePartitionKey, SharePersister, ShareState
from odradek.timer import MockTimer

SESSION_MS = 45_000
RETRY_MS = 500
WRITE_TIMEOUT_MS = 5_000


class Shares:
    """A real share coordinator, whose log may refuse."""

    def __init__(self, count_of: Callable[[UUID], int | None]) -> None:
        self.log = ListLog()
        self.timer = MockTimer()
        config, clock = BrokerConfig(), ManualClock()
        self.runtime = CoordinatorRuntime(
            self.log,
            ShareStateRecordCodec(),
            clock,
            _now,
            lambda: 1,
            lambda partition, *_: ShareShard(partition, config, clock, count_of),
            RuntimeSettings(),
            DelayedOperationPurgatory("w", self.timer, 0),
        )
        self.coordinator = ShareCoordinator(
            self.runtime, _now, self.log.ends.__getitem__, lambda partition, offset: None
        )
        self.runtime.on_elected(0, 0)

    @property
    def states(self) -> dict[SharePartitionKey, tuple[int, int]]:
        """The epoch and the start of each state."""
        (shard,) = self.runtime.shards()
        found = shard.states.items()
        return {key: (each.state_epoch, each.start_offset) for key, each in found}


def _now(action: Callable[[], None]) -> None:
    action()


class Way(SharePersister):
    """The way to the share coordinator. While it `holds`, nothing arrives, and in its order later;
    what it `raises` it raises once."""

    def __init__(self, states: Shares) -> None:
        self._coordinator = states.coordinator
        self.holds = False
        self.held: deque[Callable[[], None]] = deque()
        self.raises: Exception | None = None

    def initialize(self, *asked) -> None:
        self._send(lambda: self._coordinator.initialize(*asked))

    def delete(self, *asked) -> None:
        self._send(lambda: self._coordinator.delete(*asked))

    def summarize(self, *asked) -> None:
        self._send(lambda: self._coordinator.summarize(*asked))

    def read(self, *asked) -> None:
        self._send(lambda: self._coordinator.read(*asked))

    def write(self, *asked) -> None:
        self._send(lambda: self._coordinator.write(*asked))

    def _send(self, arrive: Callable[[], None]) -> None:
        if self.raises is not None:
            fault, self.raises = self.raises, None
            raise fault
        if self.holds:
            self.held.append(arrive)
        else:
            arrive()

    def arrive(self, count: int | None = None) -> None:
        """So many requests arrive, by default all."""
        for _ in range(len(self.held) if count is None else count):
            self.held.popleft()()


class ShareWorld(ConsumerWorld):
    """A coordinator of share groups."""

    def __init__(self, topics={"t": 4}, **settings: object) -> None:  # noqa: B006 - never changed
        self.states = Shares(self._count_of)
        self.way = Way(self.states)
        super().__init__(topics, **{"group_share_assignment_interval_ms": 0, **settings})

    def _build(self) -> None:
        super()._build()
        self.share = ShareGroupCoordinator(self.runtime, self.way)

    def _count_of(self, topic_id: UUID) -> int | None:
        topic = self.metadata.image.topic_by_id(topic_id)
        return None if topic is None else len(topic.partitions)

    def beat(self, *sent, **values):
        (answer,) = self.send(*sent, **values)
        return answer

    def send(self, member_id, epoch=0, topics=("t",), group_id="g", **values) -> list:
        """One heartbeat; its answers, of which there should be one in the end."""
        names = None if topics is None else frozenset(topics)
        request = ShareHeartbeatRequest(
            group_id, member_id, epoch, subscribed_topic_names=names, **values
        )
        answers: list = []
        self.share.heartbeat(request, answers.append)
        return answers

    def members(self) -> list[str]:
        return [each.member_id for each in self.share.describe("g").members]

    def _answer(self, call):
        answers: list = []
        call(answers.append)
        assert len(answers) == 1
        return answers[0]

    def assigned(self, result: ShareHeartbeatResult):
        assert isinstance(result, ShareHeartbeatResult), result
        return None if result.assignment is None else self.named(result.assignment)


@pytest.fixture
def world() -> ShareWorld:
    return ShareWorld()


def _code(outcome) -> ErrorCode:
    assert isinstance(outcome, BrokerError), outcome
    return outcome.code


def test_who_joins_is_told_its_partitions_at_once(world: ShareWorld) -> None:
    """If this fails, the first record is delivered a heartbeat's interval late."""
    result = world.beat("a")
    assert world.assigned(result) == {"t": [0, 1, 2, 3]}
    assert len(world.states.states) == 4
    assert {start for _, start in world.states.states.values()} == {-1}


def test_members_share_what_there_is(world: ShareWorld) -> None:
    """If this fails, a member that comes later has nothing to do, or one that goes takes its
    partitions with it."""
    first = world.beat("a")
    second = world.beat("b")
    assert world.assigned(second) == {"t": [2, 3]}
    first = world.beat("a", first.member_epoch, None)
    assert world.assigned(first) == {"t": [0, 1]}
    assert world.assigned(world.beat("a", first.member_epoch, None)) is None
    assert world.beat("b", -1).member_epoch == -1
    assert world.assigned(world.beat("a", first.member_epoch, None)) == {"t": [0, 1, 2, 3]}
    described = world.share.describe("g")
    assert (described.state, described.assignor_name) == ("Stable", "simple")
    assert [each.member_id for each in described.members] == ["a"]


def test_a_member_that_sends_everything_again_is_told_its_partitions_again(
    world: ShareWorld,
) -> None:
    """If this fails, nobody reads the partitions of a member that lost the answer which told it of
    them: by the client's library it sends its subscription again, as after any failure."""
    first = world.beat("a")
    world.beat("b")
    told = world.beat("a", first.member_epoch, None)
    assert world.assigned(told) == {"t": [0, 1]}
    for epoch in (first.member_epoch, told.member_epoch):
        assert world.assigned(world.beat("a", epoch)) == {"t": [0, 1]}
        assert world.assigned(world.beat("a", epoch, None)) is None


def test_a_silent_member_is_out(world: ShareWorld) -> None:
    """If this fails, a member that died keeps its partitions."""
    world.beat("a")
    world.advance(30_000)
    world.beat("b")
    world.advance(20_000)
    assert [each.member_id for each in world.share.describe("g").members] == ["b"]
    world.advance(45_000)
    assert world.share.describe("g").state == "Empty"


@pytest.mark.parametrize("refusal", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
def test_a_silent_member_is_out_when_the_log_takes_it(
    world: ShareWorld, refusal: ErrorCode
) -> None:
    """If this fails, a dead member keeps its partitions because the log refused its end once."""
    world.beat("a")
    world.log.refusal = refusal
    world.advance(SESSION_MS)
    assert world.members() == ["a"]
    world.advance(RETRY_MS)
    assert world.members() == ["a"]
    world.log.refusal = None
    world.advance(RETRY_MS)
    assert world.members() == []


def test_a_member_that_comes_back_before_its_end_is_stored_stays(world: ShareWorld) -> None:
    """If this fails, a member is dropped by a decision that was refused and is out of date."""
    joined = world.beat("a")
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    world.advance(SESSION_MS)
    world.log.refusal = None
    world.beat("a", joined.member_epoch, None)
    world.advance(SESSION_MS - 1)
    assert world.members() == ["a"]
    world.advance(1)
    assert world.members() == []


@pytest.mark.parametrize("waits_for", ["the log", "states"])
def test_a_heartbeat_counts_when_it_arrives(world: ShareWorld, waits_for: str) -> None:
    """If this fails, a stall of replicas costs everybody his place who went on all the while."""
    epochs = {name: world.beat(name).member_epoch for name in ("a", "b")}
    world.beat("silent")
    if waits_for == "states":
        world.states.log.holds = True
        world.set_topics(t=5)
    else:
        world.log.holds = True
    world.send("late")
    for _ in range(SESSION_MS // 3000 + 1):  # ends while the end of a session waits its turn
        world.advance(3000)
        for name, epoch in epochs.items():
            world.send(name, epoch, None)
        world.send("late")
    for log in (world.log, world.states.log):
        log.holds = False
        log.commit()
    assert world.members() == ["a", "b", "late"]


def test_who_has_said_goodbye_in_vain_is_out_with_its_session(world: ShareWorld) -> None:
    """If this fails, a member that is gone lives on by its goodbye."""
    world.beat("a")
    world.advance(SESSION_MS - 1)
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert _code(world.beat("a", -1)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.refusal = None
    world.advance(1)
    assert world.members() == []


def test_a_restart_finds_groups_and_their_sessions(world: ShareWorld) -> None:
    """If this fails, a restart of the broker ends every share group, or none of their sessions."""
    result = world.beat("a")
    world.restart()
    assert world.assigned(world.beat("a", result.member_epoch, None)) is None
    assert world.share.has("g")
    world.advance(60_000)
    assert world.share.describe("g").state == "Empty"


def test_partitions_without_a_state_are_not_assigned(world: ShareWorld) -> None:
    """If this fails, a member fetches what nobody keeps the state of."""
    world.states.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    result = world.beat("a")
    assert world.assigned(result) == {}
    world.states.log.refusal = None
    result = world.beat("a", result.member_epoch, None)
    assert world.assigned(result) == {"t": [0, 1, 2, 3]}


def test_a_state_that_is_being_made_is_not_made_again(world: ShareWorld) -> None:
    """If this fails, a member that joins at the same time has the group read records again that
    were acknowledged meanwhile."""
    world.way.holds = True
    first, second = world.send("a"), world.send("b")
    world.way.arrive(4)
    assert world.assigned(first[0]) == {"t": [0, 1, 2, 3]}
    key, stored = SharePartitionKey("g", world.topic_id("t"), 0), []
    epoch, _ = world.states.states[key]
    world.states.coordinator.write(key, 1, ShareState(epoch, 7), stored.append)
    world.way.arrive()
    assert stored == [None]
    assert world.states.states[key] == (epoch, 7)
    assert world.assigned(second[0]) == {"t": [2, 3]}


def test_offsets_that_are_being_set_are_not_forgotten_by_who_joins(world: ShareWorld) -> None:
    """If this fails, a group begins elsewhere than its operator was told."""
    world.way.holds = True
    key, answers = SharePartitionKey("g", world.topic_id("t"), 0), []
    world.share.alter_offsets("g", {key[1:]: 7}, answers.append)
    joined = world.send("a")
    while world.way.held:
        world.way.arrive()
    assert answers == [{key[1:]: None}]
    assert world.assigned(joined[0]) == {"t": [0, 1, 2, 3]}
    assert world.states.states[key][1] == 7


def test_what_is_deleted_while_it_is_made_is_not_assigned(world: ShareWorld) -> None:
    """If this fails, a group that an operator deletes while its first member joins reads a
    partition whose state is gone, which fails for ever."""
    world.way.holds = True
    answers: list = []
    joined = world.send("a")
    world.share.delete_offsets("g", [world.topic_id("t")], answers.append)
    while world.way.held:
        world.way.arrive()
    assert world.assigned(joined[0]) == {"t": [0, 1, 2, 3]}
    assert _code(answers[0]) is ErrorCode.NON_EMPTY_GROUP
    assert len(world.states.states) == 4


def test_a_way_to_the_states_that_raises_keeps_nobody_waiting(world: ShareWorld) -> None:
    """If this fails, nobody joins a group any more once a fault has come between."""
    world.way.raises = KeyError("a fault of ours")
    with pytest.raises(KeyError):
        world.send("a")
    assert world.assigned(world.beat("a")) == {"t": [0, 1, 2, 3]}


def test_a_topic_that_grows_is_read_whole(world: ShareWorld) -> None:
    """If this fails, records of new partitions are never delivered."""
    result = world.beat("a")
    world.set_topics(t=6)
    result = world.beat("a", result.member_epoch, None)
    assert world.assigned(result) == {"t": [0, 1, 2, 3, 4, 5]}


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "x", "group_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "x", "topics": None}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "x", "topics": ()}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "x", "epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "x", "rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "x", "epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "x", "epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "a", "epoch": 9}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"member_id": "x", "epoch": 1, "group_id": "h"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_id": "x"}, ErrorCode.GROUP_MAX_SIZE_REACHED),
    ],
)
def test_heartbeats_that_are_refused(values, code) -> None:
    """If this fails, a client is let in, or kept out, that Kafka would not."""
    world = ShareWorld(group_share_max_size=1)
    world.beat("a")
    before = len(world.log.batches)
    assert _code(world.beat(**values)) is code
    assert not world.share.has("h")
    assert len(world.log.batches) == before


def test_kinds_of_groups_do_not_mix(world: ShareWorld) -> None:
    """If this fails, offsets of a consumer group are lost to a share group of its name."""
    world.commit("offsets", {("t", 0): 5})
    assert _code(world.beat("a", group_id="offsets")) is ErrorCode.GROUP_ID_NOT_FOUND
    world.beat("a")
    assert _code(world.commit("g", {("t", 0): 5})) is ErrorCode.GROUP_ID_NOT_FOUND
    consumer = Member(world, "c")
    consumer.send_join()
    assert consumer.joined[0].error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.groups.heartbeat("g", "a", None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    listed = world.groups.list_groups([], ["share"])
    assert [tuple(each) for each in listed] == [("g", "share", "Stable", "share")]


def test_a_group_is_deleted_with_its_states(world: ShareWorld) -> None:
    """If this fails, the next group of the name begins where this one ended."""
    world.beat("a")
    delete = lambda: world._answer(lambda done: world.share.delete_group("g", done))  # noqa: E731
    assert _code(delete()) is ErrorCode.NON_EMPTY_GROUP
    assert len(world.states.states) == 4
    world.beat("a", -1)
    world.groups.expire_offsets()
    world.run_deferred()
    assert world.share.has("g"), "an empty share group is kept: it knows where it reads"
    world.states.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert _code(delete()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.states.log.refusal = None
    assert delete() is None
    assert not world.states.states
    world.restart()
    assert not world.share.has("g")
    assert _code(delete()) is ErrorCode.GROUP_ID_NOT_FOUND


def test_states_that_were_made_and_not_heard_of_go_with_their_group(world: ShareWorld) -> None:
    """If this fails, the next group of the name reads nothing for ever: the states that are left
    are of a later epoch than its own."""
    world.states.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(2):
        world.beat("a")
        world.beat("a", -1)
    world.states.log.refusal, world.states.log.holds = None, True
    late = world.send("a")
    world.states.timer.advance_clock(WRITE_TIMEOUT_MS)
    assert world.assigned(late[0]) == {}
    world.states.log.holds = False
    world.states.log.commit()
    assert len(world.states.states) == 4
    world.beat("a", -1)
    assert world._answer(lambda done: world.share.delete_group("g", done)) is None
    assert not world.states.states
    assert world.assigned(world.beat("a")) == {"t": [0, 1, 2, 3]}


def test_offsets_that_were_set_in_vain_go_with_their_group(world: ShareWorld) -> None:
    """If this fails, the next group of the name reads nothing for ever, as above."""
    world.beat("a")
    world.beat("a", -1)
    topic_id, refusals = world.topic_id("t"), iter([None, ErrorCode.NOT_ENOUGH_REPLICAS])
    assert world._answer(lambda done: world.share.delete_offsets("g", [topic_id], done))
    world.log.refuses = lambda: next(refusals, None)
    alter = lambda done: world.share.alter_offsets("g", {(topic_id, 1): 7}, done)  # noqa: E731
    assert _code(world._answer(alter)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world._answer(lambda done: world.share.delete_group("g", done)) is None
    assert not world.states.states
    assert world.assigned(world.beat("a")) == {"t": [0, 1, 2, 3]}


def test_offsets_are_set_shown_and_deleted(world: ShareWorld) -> None:
    """If this fails, an operator cannot have a group read again."""
    topic_id = world.topic_id("t")
    starts: dict[tuple[UUID, int], int] = {(topic_id, 1): 7}
    alter = lambda: world._answer(lambda done: world.share.alter_offsets("g", starts, done))  # noqa: E731
    world.beat("a")
    assert _code(alter()) is ErrorCode.NON_EMPTY_GROUP
    world.beat("a", -1)
    before = max(epoch for epoch, _ in world.states.states.values())
    assert alter() == {(topic_id, 1): None}
    offsets = world._answer(lambda done: world.share.describe_offsets("g", None, done, _now))
    assert [each.start_offset for each in offsets] == [-1, 7, -1, -1]
    assert max(epoch for epoch, _ in world.states.states.values()) > before
    forget = lambda done: world.share.delete_offsets("g", [topic_id], done)  # noqa: E731
    assert world._answer(forget) == {topic_id: None}
    assert not world.states.states
    assert world._answer(lambda done: world.share.describe_offsets("g", None, done, _now)) == []


def test_an_epoch_that_the_log_refuses_is_raised_later() -> None:
    """If this fails, a group goes on sharing what there was before a topic was deleted."""
    world = ShareWorld({"t": 1, "u": 1})
    joined = world.beat("a", topics=("t", "u"))
    before = world.beat("a", joined.member_epoch, None).member_epoch
    world.set_topics(t=1)
    world.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert _code(world.beat("a", before, None)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.refusal = None
    answer = world.beat("a", before, None)
    assert answer.member_epoch > before
    assert world.assigned(answer) == {"t": [0]}
    again = world.beat("a", answer.member_epoch, None)
    assert again.member_epoch == answer.member_epoch, "it is raised again and again"


def test_a_deletion_that_is_not_written_down_is_told(world: ShareWorld) -> None:
    """If this fails, an operator is told of a deletion that is half done."""
    world.beat("a")
    world.beat("a", -1)
    topic_id = world.topic_id("t")
    answers: list = []
    refusals = iter([None, ErrorCode.NOT_ENOUGH_REPLICAS])
    world.log.refuses = lambda: next(refusals, None)
    for _ in range(2):
        world.share.delete_offsets("g", [topic_id], answers.append)
    assert _code(answers[0]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answers[1] == {topic_id: None}
    assert not world.states.states


def test_a_deletion_that_is_written_too_late_is_carried_out_by_who_joins(world: ShareWorld) -> None:
    """If this fails, a group reads on where an operator has deleted its offsets: the answer did not
    come in time, and the log has the deletion. Kafka makes such states anew as well."""
    world.beat("a")
    world.beat("a", -1)
    topic_id = world.topic_id("t")
    before = world.states.states
    world.log.holds = True
    answers: list = []
    world.share.delete_offsets("g", [topic_id], answers.append)
    world.advance(WRITE_TIMEOUT_MS)
    assert _code(answers[0]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.holds = False
    world.log.commit()
    assert world.states.states == before
    assert world._answer(lambda done: world.share.describe_offsets("g", None, done, _now)) == []
    assert world.assigned(world.beat("b")) == {"t": [0, 1, 2, 3]}
    made = world.states.states
    assert all(epoch > before[key][0] for key, (epoch, _) in made.items())
    assert not world.share._runtime.shard("g").share.group("g").deleting


def test_the_states_of_many_partitions_are_asked_for_some_at_a_time() -> None:
    """A description of a group that reads 20 000 partitions held up the clients."""
    count = 3 * SLICE_PARTITIONS + 1
    world = ShareWorld({"t": count})
    world.way.holds = True
    wanted = {world.topic_id("t"): frozenset(range(count))}
    turns: deque[Callable[[], None]] = deque()
    answers: list = []
    world.share.describe_offsets("g", wanted, answers.append, turns.append)
    asked = 0
    while turns or len(world.way.held) > asked:
        assert len(world.way.held) - asked <= SLICE_PARTITIONS
        asked = len(world.way.held)
        if turns:
            turns.popleft()()
    assert asked == count
    world.way.held.reverse()
    world.way.arrive()
    (offsets,) = answers
    assert [each.partition for each in offsets] == list(range(count))
