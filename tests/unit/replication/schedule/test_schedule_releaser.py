"""The releaser of one schedule partition, with a target that answers what the test says."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.clocks import OwnClock
from tests.unit.replication.fakes import Cluster

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import MetadataDelta
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.batch import split_batches
from odradek.records.builder import RecordBatchBuilder
from odradek.records.reader import iter_records
from odradek.replication.append import AppendRequest
from odradek.replication.schedule.delivery import LONGEST_RETRY_MS, REFUSED_RETRY_MS
from odradek.replication.schedule.manager import RESTART_MS, ScheduleManager
from odradek.replication.schedule.releaser import Releaser
from odradek.replication.schedule.sender import NotAppended, RecordSender, outcome_of
from odradek.replication.schedule.services import ReleaseServices
from odradek.timer import MockTimer

LATER = TopicPartition("later", 0)
START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
TICK_MS = 500
TURNS = 10


class SetClock(OwnClock):
    """Runs with a timer; its date and time can be set."""

    def __init__(self, timer) -> None:
        self._timer = timer
        self.set_ms = START_MS - timer.now_ms

    def monotonic_ms(self) -> int:
        return self._timer.now_ms

    def wall_ms(self) -> int:
        return self._timer.now_ms + self.set_ms


class Target(RecordSender):
    """A target that has every batch once, and tells so, unless it is to answer otherwise. `keeps`
    says whether it takes what it answers with an error, `refuses` what it refuses whatever else."""

    def __init__(self, clock) -> None:
        self.clock = clock
        self.error: BrokerError | None = None
        self.keeps = False
        self.refuses: bytes | None = None
        self.records: list[tuple[bytes, int]] = []
        self.sent: list[tuple[int, int, list[bytes]]] = []
        self.last: dict[tuple[TopicPartition, int], int] = {}
        self._seen: set[tuple[TopicPartition, int, int]] = set()

    def send(self, target, batch, on_done) -> None:
        header = split_batches(bytes(batch))[0]
        values = [record.value for record in iter_records(bytes(batch))]
        number = (header.producer_id, header.base_sequence)
        self.sent.append((*number, values))
        if self.refuses in values:
            on_done(NotAppended(ErrorCode.MESSAGE_TOO_LARGE))
            return
        if (self.error is None or self.keeps) and (target, *number) not in self._seen:
            self._seen.add((target, *number))
            self.last[target, header.producer_id] = header.last_sequence
            self.records += [(value, self.clock.wall_ms() - START_MS) for value in values]
        on_done(self.error)

    def look(self, target, producer_id, on_done) -> None:
        on_done(self.last.get((target, producer_id), -1))

    @property
    def values(self) -> list[bytes]:
        return [value for value, _ in self.records]


class Partition:
    """A schedule partition that is led here, and its releaser."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        cluster.create("out")
        cluster.create("later", schedule_target_topic="out")
        self.clock = SetClock(cluster.timer)
        self.target = Target(self.clock)
        self.failed: list[Releaser] = []
        self._ids = itertools.count(7)
        self.services = ReleaseServices(
            self.clock,
            cluster.timer,
            cluster.replicas,
            self.target,
            lambda on_done: on_done(next(self._ids)),
            lambda key, count: 0,
        )
        self.lead()

    def lead(self) -> None:
        """Begins anew, with nothing but the log."""
        partition = self.cluster.replicas.partition(LATER)
        self.releaser = Releaser(
            partition, partition.leader_log(), self.services, self.failed.append
        )
        self.releaser.start()
        self.wait(0)

    def schedule(
        self, value: bytes | None, at_ms: int = 0, key: bytes | None = None, **more
    ) -> None:
        builder = RecordBatchBuilder()
        headers = [(name.replace("_", "-"), b"%d" % (START_MS + ms)) for name, ms in more.items()]
        if value is not None:
            headers.append(("deliver-at", b"%d" % (START_MS + at_ms)))
        builder.append(0, key, value, headers)
        entries = [(LATER, memoryview(bytearray(builder.build())))]
        request = AppendRequest(1, 500, AppendOrigin.CLIENT, entries, lambda results: None)
        self.cluster.replicas.append_records([request])
        self.wait(0)

    def wait(self, duration_ms: int) -> None:
        """A step of the releaser may take the next at the next turn, without more time."""
        timer = self.cluster.timer
        until_ms = timer.now_ms + duration_ms
        while True:
            for _ in range(TURNS):
                timer.advance_clock(0)
            if timer.now_ms >= until_ms:
                return
            timer.advance_clock(min(TICK_MS, until_ms - timer.now_ms))

    @property
    def pending(self) -> int:
        return len(self.releaser.state.pending) + len(self.releaser.state.in_flight)


@pytest.fixture
def later(cluster):
    made = Partition(cluster)
    yield made
    made.releaser.stop()
    assert made.failed == []


class TestATargetThatRefuses:
    def test_what_expires_meanwhile_is_not_delivered(self, later):
        """It was delivered: whether it had expired was asked before its release, and not again."""
        later.target.error = NotAppended(ErrorCode.NOT_ENOUGH_REPLICAS)
        later.schedule(b"short", 1_000, expire_at=5_000)
        later.schedule(b"long", 1_000, expire_at=HOUR_MS)
        later.wait(2_000)
        assert later.target.sent
        later.wait(4_000)
        later.target.error = None
        later.wait(LONGEST_RETRY_MS)
        assert later.target.values == [b"long"]
        assert later.pending == 0

    def test_in_doubt_nothing_expires_before_it_is_settled(self, later):
        """Fails when a record that the target has is taken for expired, so that the others of its
        batch come twice."""
        later.target.error, later.target.keeps = BrokerError(ErrorCode.REQUEST_TIMED_OUT), True
        later.schedule(b"short", 1_000, expire_at=5_000)
        later.schedule(b"long", 1_000, expire_at=HOUR_MS)
        later.wait(30_000)
        assert later.target.values == [b"short", b"long"]
        later.target.error = None
        later.wait(LONGEST_RETRY_MS)
        assert later.target.values == [b"short", b"long"]
        assert later.pending == 0

    @pytest.mark.parametrize("is_led_anew", [False, True])
    def test_a_refusal_settles_no_doubt(self, later, is_led_anew):
        """They came twice: the target had the first attempt, and refused the next before it looked
        whether it had it."""
        later.target.error, later.target.keeps = BrokerError(ErrorCode.NETWORK_EXCEPTION), True
        later.schedule(b"a", 1_000)
        later.schedule(b"b", 1_000)
        later.wait(1_000)
        assert later.target.values == [b"a", b"b"]
        if is_led_anew:
            later.releaser.stop()
            later.lead()
        later.target.error, later.target.keeps = NotAppended(ErrorCode.MESSAGE_TOO_LARGE), False
        later.wait(120_000)
        later.target.error = None
        later.wait(120_000)
        assert later.target.values == [b"a", b"b"]
        assert later.pending == 0

    @pytest.mark.parametrize("is_led_anew", [False, True])
    def test_what_is_not_there_and_refused_holds_up_nobody(self, later, is_led_anew):
        """Its target was blocked for ever, and nobody could cancel: an attempt was not answered,
        and every one after it refused, before the target looked whether it had the batch."""
        later.target.error = BrokerError(ErrorCode.NETWORK_EXCEPTION)
        later.schedule(b"large", 1_000, key=b"k")
        later.schedule(b"small", 1_000)
        later.wait(1_000)
        assert later.releaser.state.in_flight
        if is_led_anew:
            later.releaser.stop()
            later.lead()
        later.target.error, later.target.refuses = None, b"large"
        later.wait(REFUSED_RETRY_MS)
        assert later.target.values == [b"small"]
        later.schedule(None, key=b"k")
        later.wait(REFUSED_RETRY_MS)
        assert later.pending == 0

    def test_a_sequence_that_is_not_the_next_settles_it(self, later):
        """Fails when a target that has lost what it knew is asked the same for ever."""
        later.target.error = BrokerError(ErrorCode.NETWORK_EXCEPTION)
        later.schedule(b"a", 1_000)
        later.wait(1_000)
        later.target.error = NotAppended(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        later.wait(1_000)
        later.target.error = None
        later.wait(120_000)
        assert later.target.values == [b"a"]
        assert len({producer_id for producer_id, _, _ in later.target.sent}) > 1

    def test_a_target_that_is_deleted_gives_back_what_was_under_way(self, later):
        """Fails when it waits for a topic that may never come back, and cannot be cancelled."""
        later.target.error = NotAppended(ErrorCode.NOT_ENOUGH_REPLICAS)
        later.schedule(b"a", 1_000, key=b"k")
        later.wait(1_000)
        assert later.releaser.state.in_flight
        later.cluster.delete("out")
        later.wait(LONGEST_RETRY_MS)
        assert not later.releaser.state.in_flight
        later.schedule(None, key=b"k")
        assert later.pending == 0


def test_a_sequence_whose_marks_are_deleted_is_not_begun_again(later):
    """It was lost: with the marks of one target deleted and those of another there, a leader that
    read the log anew began at 0 under the same producer, which the target took for the repetition
    of its first batch."""
    later.cluster.create("other")
    later.schedule(b"a")
    log = later.releaser.log
    end_of_first = log.log_end_offset
    later.cluster.configure("later", schedule_target_topic="other")
    later.schedule(b"b")
    assert log.maybe_increment_log_start_offset(end_of_first)
    later.cluster.configure("later", schedule_target_topic="out")
    later.releaser.stop()
    later.lead()
    later.schedule(b"c")
    assert later.target.values == [b"a", b"b", b"c"]
    assert later.pending == 0


class TestAClockThatIsSet:
    def test_what_waits_for_its_target_waits_for_its_time_again(self, later):
        """It was taken from its queue: the partition was blocked until it was due, and whoever
        cancelled it until then was too late."""
        later.target.error = NotAppended(ErrorCode.NOT_ENOUGH_REPLICAS)
        later.schedule(b"first", 1_000)
        later.wait(1_000)
        later.schedule(b"second", 2_000, key=b"k")
        later.schedule(b"third", 2_000)
        later.wait(2_000)
        later.clock.set_ms -= HOUR_MS
        later.target.error = None
        later.wait(LONGEST_RETRY_MS)
        assert later.target.records == []
        assert not later.releaser.state.in_flight
        later.schedule(None, key=b"k")
        later.schedule(b"at once", -HOUR_MS)
        assert later.target.values == [b"at once"]
        later.clock.set_ms += HOUR_MS
        later.releaser.place_again()
        later.wait(0)
        assert later.target.values == [b"at once", b"first", b"third"]

    def test_in_doubt_it_waits_for_its_time_too(self, later):
        """Fails when a record is early, or is forgotten once the clock is put right."""
        later.target.error = BrokerError(ErrorCode.NETWORK_EXCEPTION)
        later.schedule(b"a", 1_000)
        later.wait(1_000)
        later.clock.set_ms -= HOUR_MS
        later.target.error = None
        later.wait(LONGEST_RETRY_MS)
        assert later.target.records == []
        later.clock.set_ms += HOUR_MS
        later.releaser.place_again()
        later.wait(0)
        assert later.target.values == [b"a"]

    def test_a_record_that_was_refused_is_tried_again_in_time(self, later):
        """It was tried again when the clock had come so far once more."""
        later.target.error = NotAppended(ErrorCode.MESSAGE_TOO_LARGE)
        later.clock.set_ms += HOUR_MS
        later.schedule(b"a", 0)
        later.target.error = None
        later.clock.set_ms -= HOUR_MS
        later.wait(REFUSED_RETRY_MS)
        assert later.target.values == [b"a"]

    def test_one_that_goes_off_slowly_is_noticed(self, later):
        """Each minute's share was too little to be seen, and a record came late by all of them."""
        manager = ScheduleManager(later.services)
        manager.releasers[LATER] = later.releaser
        later.schedule(b"a", 600_000)
        for _ in range(9):
            later.wait(60_000)
            later.clock.set_ms += 15
            manager.check_clock()
        later.wait(START_MS + 600_000 - later.clock.wall_ms() + 20)
        assert later.target.values == [b"a"]

    def test_a_rate_counts_on(self, later):
        """No record was released until the clock had come so far once more."""
        later.cluster.configure(
            "later", schedule_target_topic="out", schedule_release_max_rate="10"
        )
        later.clock.set_ms += HOUR_MS
        for number in range(20):
            later.schedule(b"%d" % number, 0)
        later.clock.set_ms -= HOUR_MS
        later.wait(20_000)
        assert len(later.target.values) == 20


class FailingTimer(MockTimer):
    """It refuses so many hand-overs."""

    failures = 0

    def call_threadsafe(self, action: Callable[[], object]) -> None:
        if self.failures:
            self.failures -= 1
            raise KeyError("a fault of ours")
        super().call_threadsafe(action)


def test_a_releaser_that_cannot_begin_keeps_no_other_from_it(later):
    """Fails when the schedules of all partitions behind it are never released, or its own."""
    later.cluster.create("more", schedule_target_topic="out")
    raised: list[BaseException] = []
    timer = FailingTimer(on_error=lambda _task, error: raised.append(error))
    manager = ScheduleManager(replace(later.services, timer=timer))
    image = later.cluster.image
    added = [image.topics[name] for name in ("later", "more")]
    manager.apply_delta(MetadataDelta(image.with_topics(removed=added), image, added=added))
    timer.failures = 1
    timer.advance_clock(0)
    assert [type(each) for each in raised] == [KeyError]
    assert manager.releasers.keys() == {TopicPartition("more", 0)}
    timer.advance_clock(RESTART_MS)
    assert manager.releasers.keys() == {LATER, TopicPartition("more", 0)}
    manager.shutdown()


def test_a_log_that_moves_to_another_directory_is_followed(tmp_path):
    """Fails when records that were deleted after the move are delivered, or nothing of the log is
    ever removed, because the releaser goes by the log that was left."""
    paths = [str(tmp_path / name) for name in "ab"]
    cluster = Cluster(paths[0], more_directories=paths[1:])
    later = Partition(cluster)
    later.releaser.stop()
    manager = ScheduleManager(later.services)
    image = cluster.image
    added = [image.topics["later"]]
    manager.apply_delta(MetadataDelta(image.with_topics(removed=added), image, added=added))
    later.schedule(b"deleted", 600_000)
    later.schedule(b"kept", 600_000)
    partition = cluster.replicas.partition(LATER)
    (target,) = [each for each in paths if each != partition.leader_log().log_directory.path]
    cluster.replicas.log_dir_moves.alter(LATER, target)
    later.wait(1_000)
    log = partition.leader_log()
    assert log.log_directory.path == target
    assert log.first_needed_offset is not None
    assert log.first_needed_offset() == 0
    partition.delete_records(1)
    later.wait(600_000)
    assert later.target.values == [b"kept"]
    assert log.first_needed_offset() > 1
    manager.shutdown()
    cluster.close()


@pytest.mark.parametrize(
    ("code", "base_offset", "kind"),
    [
        (ErrorCode.NONE, 5, type(None)),
        (ErrorCode.NOT_ENOUGH_REPLICAS, -1, NotAppended),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, NotAppended),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, BrokerError),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 5, BrokerError),
        (ErrorCode.REQUEST_TIMED_OUT, 5, BrokerError),
        (ErrorCode.KAFKA_STORAGE_ERROR, -1, BrokerError),
    ],
)
def test_what_an_answer_leaves_in_doubt(code, base_offset, kind):
    """Fails when a record that was appended is taken for one that was not."""
    assert type(outcome_of(code, None, base_offset)) is kind
