"""Share partitions over real logs: fetches that wait, acknowledgements, and the ends of both."""

from collections.abc import Iterator
from functools import partial

import pytest
from tests.unit.replication.fakes import Cluster

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.share.share_sessions import ShareSessionCache
from odradek.metadata.image import ConfigResource, MetadataDelta
from odradek.model import ConfigResourceType, TopicPartition
from odradek.replication.share.acknowledgements import AcknowledgementBatch
from odradek.replication.share.fetch import ShareFetchParams, ShareFetchPartition
from odradek.replication.share.manager import SharePartitionManager
from odradek.replication.share.persister import (
    SharePartitionKey,
    SharePersister,
    ShareState,
    ShareSummary,
    StateBatch,
)
from odradek.replication.share.reset import reset_timestamp
from odradek.replication.share.state_writes import StateWrites
from odradek.replication.share.states import RecordEvent, RecordState

A = TopicPartition("orders", 0)


class States(SharePersister):
    """States in memory. Where it `delays` reads, or `holds` writes, the test answers them."""

    def __init__(self) -> None:
        self.epoch = self.leader_epoch = 0
        self.start = self.count = -1
        self.writes: list[ShareState] = []
        self.failure: BrokerError | None = None
        self.delays = False
        self.delayed: list = []
        self.holds = False
        self.held: list = []

    def initialize(self, key, state_epoch, start_offset, on_done) -> None:
        on_done(None)

    def delete(self, key, on_done) -> None:
        on_done(None)

    def summarize(self, key, leader_epoch, on_done) -> None:
        if self.delays:
            self.delayed.append(lambda: on_done(self.summary))
        else:
            on_done(self.failure or self.summary)

    @property
    def summary(self) -> ShareSummary:
        return ShareSummary(self.epoch, self.leader_epoch, self.start, self.count)

    def read(self, key, leader_epoch, on_done) -> None:
        if self.delays:
            self.delayed.append(lambda: on_done(self.failure or self.read_by(leader_epoch)))
        else:
            on_done(self.failure or self.read_by(leader_epoch))

    def read_by(self, leader_epoch) -> ShareState:
        self.leader_epoch = leader_epoch
        return ShareState(self.epoch, self.start, (), self.count)

    def write(self, key, leader_epoch, state, on_done) -> None:
        if self.holds:
            self.held.append((state, on_done))
            return
        if self.failure is None:
            self.writes.append(state)
            self.start, self.count = state.start_offset, state.delivery_complete_count
        on_done(self.failure)

    def recreate(self, start: int) -> None:
        """Deletes the state and makes one of the same epoch, which no leader has read."""
        self.leader_epoch = 0
        self.start, self.count = start, -1 if start == -1 else 0


class World:
    """A broker's replicas, and the share partitions over them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.states = States()
        self.manager = SharePartitionManager(
            cluster.config, cluster.clock, cluster.timer, cluster.replicas, self.states
        )
        topic = cluster.create("orders")
        self.set_group(**{"share.auto.offset.reset": "earliest"})
        key = SharePartitionKey("g", topic.topic_id, 0)
        self.partition = ShareFetchPartition(key, A)

    def set_group(self, **settings: str) -> None:
        resource = ConfigResource(ConfigResourceType.GROUP, "g")
        image = self.cluster.image.with_configs({resource: settings})
        self.cluster._apply(image, configs=[resource])

    def fetch(self, member="a", max_wait_ms=0, min_bytes=1, **values):
        """The records handed out; empty until the answer is there."""
        params = ShareFetchParams("g", member, max_wait_ms, min_bytes, 1 << 20, 500, 500, **values)
        answers: list = []
        self.waiting = self.manager.fetch(params, [self.partition], answers.extend)
        return answers

    def wait_in(self, sessions, session, connection_id="connection 1", member="a"):
        """Fetches in a session, and waits; what it was answered with, once it is."""
        params = ShareFetchParams("g", member, 500, 1, 1 << 20, 500, 500)
        answers: list = []
        sessions.fetch(session, connection_id, params, [self.partition], answers.append)
        return answers

    def acquired(self, member="a"):
        (result,) = self.fetch(member)
        assert result.error_code is ErrorCode.NONE
        return [tuple(each) for each in result.acquired]

    def say(self, first, last, event, member="a"):
        answers: list = []
        batch = AcknowledgementBatch(first, last, (event,))
        self.manager.acknowledge(self.partition, member, [batch], answers.append)
        assert len(answers) == 1
        return None if answers[0] is None else answers[0].code

    def turn(self) -> None:
        self.cluster.wait(1)


@pytest.fixture
def world(cluster: Cluster) -> Iterator[World]:
    made = World(cluster)
    yield made
    made.manager.shutdown()


def test_records_are_handed_out_once(world: World) -> None:
    """If this fails, two workers get the same record."""
    world.cluster.produce(A, b"a", b"b", b"c")
    (result,) = world.fetch("a")
    assert [tuple(each) for each in result.acquired] == [(0, 2, 1)]
    assert sum(map(len, result.records)) > 0
    assert world.acquired("b") == []
    assert world.say(0, 2, RecordEvent.ACCEPT) is None
    assert world.states.writes[-1].delivery_complete_count == 3


def test_a_fetch_waits_for_an_append(world: World) -> None:
    """If this fails, a queue's records are late by the client's whole patience."""
    answers = world.fetch(max_wait_ms=500)
    assert answers == []
    (waiting,) = world.cluster.replicas.purgatories.share_fetch.waiting()
    assert "records for a of share group g" in waiting.missing
    world.cluster.produce(A, b"a")
    assert [tuple(each) for each in answers[0].acquired] == [(0, 0, 1)]


def test_a_fetch_waits_for_what_comes_back(world: World) -> None:
    """If this fails, a record whose worker has died waits for the next append."""
    world.cluster.produce(A, b"a")
    world.acquired("a")
    answers = world.fetch("b", max_wait_ms=60_000)
    assert answers == []
    world.cluster.wait(29_000)
    assert answers == []
    world.cluster.wait(2_000)
    assert [tuple(each) for each in answers[0].acquired] == [(0, 0, 2)]
    again = world.fetch("c", max_wait_ms=60_000)
    assert world.say(0, 0, RecordEvent.RELEASE, "b") is None
    assert [tuple(each) for each in again[0].acquired] == [(0, 0, 3)]


def test_patience_ends(world: World) -> None:
    """If this fails, an idle consumer hangs."""
    answers = world.fetch(max_wait_ms=500)
    world.cluster.wait(500)
    assert [each.error_code for each in answers] == [ErrorCode.NONE]
    assert answers[0].acquired == []


def test_it_waits_for_enough_bytes(world: World) -> None:
    """If this fails, min_bytes means nothing."""
    answers = world.fetch(max_wait_ms=500, min_bytes=300)
    world.cluster.produce(A, b"a")
    assert answers == []
    world.cluster.produce(A, b"b" * 300)
    assert [tuple(each) for each in answers[0].acquired] == [(0, 1, 1)]


def test_a_state_that_is_being_read_is_waited_for(world: World) -> None:
    """If this fails, the first fetch of a group finds nothing, or never ends."""
    world.cluster.produce(A, b"a")
    world.states.delays = True
    answers = world.fetch(max_wait_ms=500)
    assert answers == []
    world.states.delayed.pop()()
    assert [tuple(each) for each in answers[0].acquired] == [(0, 0, 1)]


def test_a_state_that_cannot_be_read_is_tried_again(world: World) -> None:
    """If this fails, one failure of the coordinator ends a share partition for good, or a
    coordinator that moves is told to users as an error."""
    world.cluster.produce(A, b"a")
    world.states.failure = BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    answers = world.fetch(max_wait_ms=500)
    assert answers == []
    world.cluster.wait(500)
    assert [each.error_code for each in answers] == [ErrorCode.NONE]
    world.states.failure = BrokerError(ErrorCode.INVALID_REQUEST)
    (result,) = world.fetch(max_wait_ms=500)
    assert result.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    world.states.failure = None
    assert world.acquired() == [(0, 0, 1)]


def test_a_new_group_begins_at_the_end_by_default(world: World) -> None:
    """If this fails, a new group reads years of records, or not what its settings say."""
    world.cluster.produce(A, b"a")
    world.set_group()
    assert world.acquired() == []
    world.cluster.produce(A, b"b")
    assert world.acquired() == [(1, 1, 1)]
    assert reset_timestamp("earliest", 5) == -2
    assert reset_timestamp("by_duration:PT1H30M", 10_000_000) == 10_000_000 - 5_400_000
    assert reset_timestamp("by_duration:P1DT0.5S", 10**9) == 10**9 - 86_400_500


def test_offsets_that_were_set_while_nobody_read_count(world: World) -> None:
    """If this fails, a group that was set back reads nothing again until its leader moves."""
    sessions = ShareSessionCache(9, world.manager)
    session = sessions.open("g", "a", "connection")
    world.cluster.produce(A, b"a", b"b")
    assert world.acquired() == [(0, 1, 1)]
    assert world.say(0, 1, RecordEvent.ACCEPT) is None
    sessions.close(session)
    world.states.epoch, world.states.start = 1, 1
    answers = world.fetch(max_wait_ms=500)
    world.turn()
    assert [tuple(each) for each in answers[0].acquired] == [(1, 1, 1)]


def test_a_group_that_was_deleted_and_made_anew_begins_anew(world: World) -> None:
    """If this fails, a group goes on where the one before ended that had its name, since the epochs
    of their states are the same."""
    _pause_with(world, 0)
    world.states.recreate(-1)
    assert _resumed(world) == [(0, 2, 1)]


def test_a_group_whose_offsets_were_set_after_its_deletion_reads_all_of_them(world: World) -> None:
    """If this fails, what the group before had acknowledged is not delivered, since the operator
    has set the start that it had."""
    _pause_with(world, 1)
    assert world.states.start == 0
    world.states.recreate(0)
    assert _resumed(world) == [(0, 2, 1)]


def test_a_state_that_no_leader_has_read_is_another(world: World) -> None:
    """If this fails, a group goes on counting deliveries of the one before, since no record had
    come to its end."""
    world.cluster.change("orders", leader=1, leader_epoch=3)
    _pause_with(world)
    world.states.recreate(0)
    assert _resumed(world) == [(0, 2, 1)]


def _pause_with(world: World, *done: int) -> None:
    """A group is handed three records, accepts some, and reads no more."""
    sessions = ShareSessionCache(9, world.manager)
    session = sessions.open("g", "a", "connection")
    world.cluster.produce(A, b"a", b"b", b"c")
    assert world.acquired() == [(0, 2, 1)]
    for offset in done:
        assert world.say(offset, offset, RecordEvent.ACCEPT) is None
    sessions.close(session)


def _resumed(world: World) -> list[tuple[int, int, int]]:
    answers = world.fetch(max_wait_ms=500)
    world.turn()
    return [tuple(each) for each in answers[0].acquired]


def test_a_group_that_nobody_has_touched_goes_on(world: World) -> None:
    """If this fails, a consumer that connects anew begins at the end of the log again."""
    sessions = ShareSessionCache(9, world.manager)
    one, two = (sessions.open("g", member, "connection") for member in "ab")
    world.cluster.produce(A, b"a", b"b")
    assert world.acquired() == [(0, 1, 1)]
    sessions.close(one)
    assert world.acquired("b") == [(0, 1, 2)], "somebody reads: nothing is looked at"
    sessions.close(two)
    world.states.delays = True
    answers = world.fetch("c", max_wait_ms=500)
    assert answers == []
    world.states.delayed.pop()()
    assert [tuple(each) for each in answers[0].acquired] == [(0, 1, 3)]


def test_a_state_that_cannot_be_looked_at_is_read_anew(world: World) -> None:
    """If this fails, a coordinator that moves ends a group that had paused."""
    sessions = ShareSessionCache(9, world.manager)
    session = sessions.open("g", "a", "connection")
    world.cluster.produce(A, b"a")
    assert world.acquired() == [(0, 0, 1)]
    sessions.close(session)
    world.states.failure = BrokerError(ErrorCode.NOT_COORDINATOR)
    answers = world.fetch(max_wait_ms=500)
    assert answers == []
    world.cluster.wait(500)
    assert [each.error_code for each in answers] == [ErrorCode.NONE]
    world.states.failure = None
    assert world.acquired() == [(0, 0, 1)]


def test_another_leader_ends_it(world: World) -> None:
    """If this fails, a broker hands out records, or stores states, of what it leads no more."""
    world.cluster.produce(A, b"a")
    world.acquired()
    answers = world.fetch("b", max_wait_ms=60_000)
    before = world.cluster.image
    world.cluster.change("orders", leader=2, leader_epoch=1)
    topic = world.cluster.image.topics["orders"]
    world.manager.apply_delta(MetadataDelta(before, world.cluster.image, changed=[topic]))
    world.turn()
    assert [each.error_code for each in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert world.say(0, 0, RecordEvent.ACCEPT) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not world.manager.partitions


def test_a_fenced_writer_begins_again(world: World) -> None:
    """If this fails, a broker goes on with a state that an operator has replaced."""
    world.cluster.produce(A, b"a", b"b")
    world.acquired()
    world.states.failure = BrokerError(ErrorCode.FENCED_STATE_EPOCH)
    assert world.say(0, 0, RecordEvent.ACCEPT) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.states.failure = None
    world.states.start = 1
    assert world.acquired("b") == [(1, 1, 1)]


def test_retention_does_not_stop_a_group(world: World) -> None:
    """If this fails, a group waits for ever for records that are gone from the log."""
    world.cluster.produce(A, b"a", b"b", b"c", b"d")
    world.acquired()
    world.manager.release_member("g", "a")
    world.cluster.replicas.partition(A).delete_records(3)
    assert world.acquired("b") == [(3, 3, 2)]


def test_what_was_never_fetched_cannot_be_acknowledged(world: World) -> None:
    """If this fails, an acknowledgement makes a share partition."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.say(0, 0, RecordEvent.ACCEPT) is code
    assert not world.manager.partitions


def test_sessions_end_with_their_connection(world: World) -> None:
    """If this fails, what a worker held that was killed comes back only when its locks end."""
    sessions = ShareSessionCache(1, world.manager)
    session = sessions.open("g", "a", "connection 1")
    with pytest.raises(BrokerError) as refused:
        sessions.open("g", "b", "connection 2")
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    world.cluster.produce(A, b"a")
    world.acquired("a")
    answers = world.wait_in(sessions, session)
    assert sessions.go_on("g", "a", 1) is session
    with pytest.raises(BrokerError) as refused:
        sessions.go_on("g", "a", 1)
    assert refused.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    sessions.connection_closed("connection 2")
    assert (len(sessions), answers) == (1, [])
    sessions.connection_closed("connection 1")
    assert answers == [[]], "it was handed something"
    assert world.acquired("b") == [(0, 0, 2)]
    with pytest.raises(BrokerError) as refused:
        sessions.go_on("g", "a", 2)
    assert refused.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_member_that_is_gone_is_handed_nothing(world: World) -> None:
    """If this fails, a member whose connection closed while its acknowledgements were stored, or
    that has begun another session, holds records until their locks end."""
    sessions = ShareSessionCache(2, world.manager)
    waits = sessions.open("g", "a", "connection 1")
    answers = world.wait_in(sessions, waits)
    again = sessions.open("g", "a", "connection 2")
    assert answers == [[]]
    sessions.connection_closed("connection 2")
    world.cluster.produce(A, b"a")
    assert world.wait_in(sessions, again) == [[]]
    assert world.acquired("b") == [(0, 0, 1)]


def test_every_fetch_that_waits_in_a_session_is_answered_when_it_ends(world: World) -> None:
    """If this fails, a client that ends its session by another connection waits for ever on the
    first one, or is handed records after it has said that it wants none."""
    sessions = ShareSessionCache(2, world.manager)
    session = sessions.open("g", "a", "connection 1")
    first = world.wait_in(sessions, session, "connection 1")
    second = world.wait_in(sessions, session, "connection 2")
    sessions.close(session)
    assert (first, second) == ([[]], [[]])
    world.cluster.produce(A, b"a")
    assert world.acquired("b") == [(0, 0, 1)]


def test_fetches_that_wait_in_one_session_are_answered_each_by_itself(world: World) -> None:
    """If this fails, the answer of one has the other one forgotten."""
    sessions = ShareSessionCache(2, world.manager)
    session = sessions.open("g", "a", "connection 1")
    first = world.wait_in(sessions, session, "connection 1")
    second = world.wait_in(sessions, session, "connection 2")
    world.cluster.produce(A, b"a")
    assert [tuple(each) for each in first[0][0].acquired] == [(0, 0, 1)]
    assert second == []
    sessions.open("g", "a", "connection 3")
    assert (len(first), second) == (1, [[]])


def test_what_waits_on_a_connection_ends_with_it(world: World) -> None:
    """If this fails, records are handed out to a connection that is gone, since the session that
    it asked in is on another one."""
    sessions = ShareSessionCache(2, world.manager)
    session = sessions.open("g", "a", "connection 1")
    waits = world.wait_in(sessions, session, "connection 1")
    gone = world.wait_in(sessions, session, "connection 2")
    sessions.connection_closed("connection 2")
    assert (waits, gone, len(sessions)) == ([], [[]], 1)
    world.cluster.produce(A, b"a")
    assert [tuple(each) for each in waits[0][0].acquired] == [(0, 0, 1)]


def test_a_session_that_was_replaced_ends_nothing(world: World) -> None:
    """If this fails, the late end of a session takes from its member what it holds in the next."""
    sessions = ShareSessionCache(2, world.manager)
    session = sessions.open("g", "a", "connection 1")
    sessions.open("g", "a", "connection 2")
    world.cluster.produce(A, b"a")
    assert world.acquired("a") == [(0, 0, 1)]
    sessions.close(session)
    assert world.acquired("b") == []
    assert world.say(0, 0, RecordEvent.ACCEPT) is None


def test_a_write_is_counted_by_the_next_one_only_if_it_was_stored(world: World) -> None:
    """If this fails, the lag that tools show is too small after a write that was refused."""
    world.cluster.produce(A, *[b"x"] * 10)
    world.acquired()
    world.states.holds = True
    answers: list = []
    for first, last in ((2, 4), (6, 7)):
        batch = AcknowledgementBatch(first, last, (RecordEvent.ACCEPT,))
        world.manager.acknowledge(world.partition, "a", [batch], answers.append)
    _, on_done = world.states.held.pop()
    on_done(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    ((state, on_done),) = world.states.held
    on_done(None)
    assert state.delivery_complete_count == 2
    assert [each and each.code for each in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE, None]


def test_the_records_of_a_member_that_is_gone_come_back_though_no_state_can_be_stored(
    world: World,
) -> None:
    """If this fails, what a worker held that was killed is stuck until its lock ends, because the
    coordinator was moving just then."""
    sessions = ShareSessionCache(2, world.manager)
    sessions.open("g", "a", "connection 1")
    sessions.open("g", "b", "connection 2")
    world.cluster.produce(A, b"a", b"b")
    assert world.acquired("a") == [(0, 1, 1)]
    world.states.holds = True
    answers: list = []
    batch = AcknowledgementBatch(0, 0, (RecordEvent.ACCEPT,))
    world.manager.acknowledge(world.partition, "a", [batch], answers.append)
    sessions.connection_closed("connection 1")
    while world.states.held:
        world.states.held.pop()[1](BrokerError(ErrorCode.NOT_COORDINATOR))
    assert [each.code for each in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert world.acquired("b") == [(0, 1, 2)]


def test_writes_gather_behind_one_that_is_under_way() -> None:
    """If this fails, a thousand locks that end at once are a thousand writes."""
    sent, answers = [], []
    writes = StateWrites(lambda batches, on_done: sent.append((batches, on_done)))
    for number in range(4):
        writes.store([StateBatch(number, number, RecordState.ACKNOWLEDGED, 1)], answers.append)
    assert len(sent) == 1
    sent[0][1](None)
    assert (len(sent), answers) == (2, [None])
    assert [each.first_offset for each in sent[1][0]] == [1, 2, 3]
    failure = BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    sent[1][1](failure)
    assert answers == [None, failure, failure, failure]


def fail(*_: object) -> None:
    raise ZeroDivisionError


ONE_BATCH = [StateBatch(0, 0, RecordState.ACKNOWLEDGED, 1)]


def test_an_answer_that_raises_keeps_no_write_behind_it_waiting() -> None:
    """If this fails, a share partition stores nothing any more after one mistake of ours."""
    sent, answers = [], []
    writes = StateWrites(lambda batches, on_done: sent.append((batches, on_done)))
    for on_stored in (fail, fail, answers.append):
        writes.store(ONE_BATCH, on_stored)
    for _, on_done in sent:
        with pytest.raises(ZeroDivisionError):
            on_done(None)
    assert (len(sent), answers) == (2, [None])
    writes.store(ONE_BATCH, answers.append)
    assert len(sent) == 3


def test_a_write_that_raises_has_failed_once() -> None:
    """If this fails, members wait for ever for what was never sent, or are told twice."""
    sends, late, answers = [fail], [], []

    def send(batches, on_done):
        late.append(on_done)
        if sends:
            sends.pop()()

    writes = StateWrites(send)
    with pytest.raises(ZeroDivisionError):
        writes.store(ONE_BATCH, answers.append)
    assert [each.code for each in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    writes.store(ONE_BATCH, answers.append)
    late[0](None)
    assert (len(late), len(answers)) == (2, 1)
    late[1](None)
    assert answers[1:] == [None]


@pytest.mark.parametrize("question", ["read", "summarize"])
def test_a_question_that_raises_leaves_nothing_that_waits_for_its_answer(
    world: World, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    """If this fails, a share partition is loading for ever, and all its members hang."""
    world.cluster.produce(A, b"a")
    if question == "summarize":
        assert world.fetch(max_wait_ms=500) != []
        world.manager.release_member("g", "a")
        world.manager.suspend_group("g")
    with monkeypatch.context() as patch:
        patch.setattr(world.states, question, fail)
        with pytest.raises(ZeroDivisionError):
            world.fetch()
    assert [each[:2] for each in world.acquired()] == [(0, 0)]


@pytest.mark.parametrize("is_session", [True, False])
def test_a_member_lets_go_of_all_it_holds_beside_a_partition_that_raises(
    world: World, monkeypatch: pytest.MonkeyPatch, is_session: bool
) -> None:
    """If this fails, records of a member that is gone are held until their locks end."""
    bills = TopicPartition("bills", 0)
    topic = world.cluster.create("bills")
    orders = world.partition
    partitions = [orders, ShareFetchPartition(orders.key._replace(topic_id=topic.topic_id), bills)]
    sessions = ShareSessionCache(2, world.manager)
    members = ["a", "c"] if is_session else ["a", "a"]
    for member, world.partition in zip(members, partitions, strict=True):
        world.cluster.produce(world.partition.topic_partition, b"a")
        assert world.acquired(member) == [(0, 0, 1)]
        if is_session:
            sessions.open("g", member, "connection 1")
    waiting = []
    for world.partition in partitions:
        waiting.append(world.fetch("b", max_wait_ms=500))
    leave = partial(
        *(sessions.connection_closed, "connection 1")
        if is_session
        else (world.manager.release_member, "g", "a")
    )
    with monkeypatch.context() as patch:
        patch.setattr(world.states, "write", fail)
        with pytest.raises(ZeroDivisionError):
            leave()
    assert [[tuple(each) for each in one.acquired] for (one,) in waiting] == [[(0, 0, 2)]] * 2
