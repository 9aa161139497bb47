"""A follower's half of replication: what it asks, and what it makes of the answers."""

from uuid import UUID

import pytest
from tests.outcomes import whatever
from tests.unit.replication.fakes import Cluster, FakeQuota, batch

from odradek.clock import ManualClock
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.records.fetch_sessions import FetchSessionCache
from odradek.metadata.image import (
    BrokerRegistration,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from odradek.model import TopicPartition
from odradek.protocol.direct.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from odradek.protocol.fetch_session import FetchSession
from odradek.replication.follower.fetcher_manager import ReplicaFetcherManager
from odradek.replication.follower.leader_channel import LeaderChannel, OnFetched, OnOffset
from odradek.replication.follower.local_replica import truncate_diverged
from odradek.replication.follower.replica_fetcher import FetcherSettings, ReplicaFetcher
from odradek.replication.partition import Partition
from odradek.timer import MockTimer

TP = TopicPartition("a", 0)
OTHER = TopicPartition("a", 1)
TOPIC = UUID(int=7)
SETTINGS = FetcherSettings(500, 1, 1 << 20, 1 << 20, 1000)


class ScriptedLeader(LeaderChannel):
    """A leader whose answers the test writes; a contract test holds it to the real channel."""

    def __init__(self) -> None:
        self.fetches: list[tuple[FetchRequest, OnFetched]] = []
        self.questions: list[tuple[int, OnOffset]] = []
        self.closed = False

    def fetch(self, request: FetchRequest, on_done: OnFetched) -> None:
        self.fetches.append((request, on_done))

    def find_offset(
        self, topic_partition: TopicPartition, timestamp: int, epoch: int, on_done: OnOffset
    ) -> None:
        self.questions.append((timestamp, on_done))

    def answer_question(self, outcome: int | BrokerError) -> None:
        """Answers what was asked last about the ends of its log."""
        self.questions[-1][1](outcome)

    def close(self) -> None:
        """Answers from here on nobody hears."""
        self.closed = True
        self.fetches = [(request, whatever) for request, _ in self.fetches]
        self.questions = [(timestamp, whatever) for timestamp, _ in self.questions]

    def asked(self) -> dict[int, tuple[int, int]]:
        """Offset and last epoch that the fetch under way asks for, by partition."""
        ((request, _),) = self.fetches
        return {
            partition.index: (partition.fetch_offset, partition.last_fetched_epoch)
            for topic in request.topics
            for partition in topic.partitions
        }

    def answer(self, *answers: FetchPartitionResponse, code: int = 0, session_id: int = 0) -> None:
        ((_, on_done),) = self.fetches
        self.fetches.clear()
        topics = [FetchTopicResponse(None, TOPIC, list(answers))] if answers else []
        on_done(FetchResponse(topics, code, session_id=session_id))

    def break_off(self) -> None:
        ((_, on_done),) = self.fetches
        self.fetches.clear()
        on_done(BrokerError(ErrorCode.NETWORK_EXCEPTION))


class Follower:
    """Broker 1 with replicas of topic "a", which broker 2 leads."""

    def __init__(self, directory: str, partitions: int = 1) -> None:
        self.cluster = Cluster(directory)
        self.topic = self.cluster.create("a", (1, 2), leader=2, partitions=partitions)
        self.leader = ScriptedLeader()
        self.readable: list[Partition] = []
        self.fetcher = ReplicaFetcher(
            *(1, 5, 2, self.leader, self.cluster.timer, SETTINGS, self.readable.append),
            self.cluster.quotas.follower,
        )

    def partition(self, index: int = 0) -> Partition:
        return self.cluster.replicas.partition(TopicPartition("a", index))

    def write(self, *values: bytes, epoch: int, index: int = 0) -> None:
        """Leads for a moment, so that the log has records of an epoch."""
        self.cluster.change("a", index, leader=1, leader_epoch=epoch)
        self.cluster.produce(TopicPartition("a", index), *values)

    def follow(self, epoch: int, index: int = 0) -> None:
        self.cluster.change("a", index, leader=2, leader_epoch=epoch)
        self.fetcher.add(self.partition(index), TOPIC)

    @property
    def log_end(self) -> int:
        log = self.partition().log
        assert log is not None
        return log.log_end_offset

    @property
    def high_watermark(self) -> int:
        log = self.partition().log
        assert log is not None
        return log.high_watermark


@pytest.fixture
def follower(tmp_path):
    made = Follower(str(tmp_path / "data"))
    yield made
    made.cluster.close()


def stamped(base_offset: int, epoch: int, *values: bytes) -> memoryview:
    """A batch as a leader's log has it."""
    data = batch(*values)
    data[:8] = base_offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return data


def records(base_offset: int, epoch: int, *values: bytes, high_watermark: int = 0):
    answer = FetchPartitionResponse(0, 0, high_watermark, high_watermark, 0)
    answer.records = [stamped(base_offset, epoch, *values)]
    return answer


def test_it_fetches_from_where_its_log_ends_and_appends_what_comes(follower):
    """A follower that asks for anything else has gaps or repeats."""
    follower.follow(epoch=1)
    assert follower.leader.asked() == {0: (0, -1)}
    follower.leader.answer(records(0, 1, b"one", b"two", high_watermark=1))
    assert (follower.log_end, follower.high_watermark) == (2, 1)
    assert follower.readable == [follower.partition()]
    assert follower.leader.asked() == {0: (2, 1)}


def test_a_history_that_parted_is_cut_where_it_parted(follower):
    """Records that an earlier leader wrote alone were never committed; the next leader's are the
    truth."""
    follower.write(b"one", epoch=1)
    follower.write(b"alone", b"alone too", epoch=2)
    follower.follow(epoch=4)
    assert follower.leader.asked() == {0: (3, 2)}
    diverging = FetchPartitionResponse(0, 0, 0, 0, 0)
    diverging.diverging_epoch, diverging.diverging_end_offset = 1, 1
    follower.leader.answer(diverging)
    assert follower.log_end == 1
    assert follower.leader.asked() == {0: (1, 1)}
    follower.leader.answer(records(1, 3, b"true", high_watermark=2))
    assert (follower.log_end, follower.high_watermark) == (2, 2)


def test_truncation_goes_by_epochs_and_step_by_step(follower):
    """To cut at the high watermark loses acknowledged records (KIP-101)."""
    for epoch in (1, 3, 5):
        follower.write(b"x", b"y", epoch=epoch)
    log = follower.partition().log
    assert truncate_diverged(log, 4, 10)  # the leader has epoch 4, this log only 3
    assert log.log_end_offset == 4
    assert truncate_diverged(log, 3, 2)
    assert log.log_end_offset == 2
    assert not truncate_diverged(log, 1, 9)
    assert log.log_end_offset == 2


def test_the_high_watermark_of_a_follower_does_not_go_back(follower):
    """A new leader learns late of what was committed; a reader here has seen it."""
    follower.follow(epoch=1)
    follower.leader.answer(records(0, 1, b"one", b"two", high_watermark=2))
    follower.leader.answer(FetchPartitionResponse(0, 0, 1, 1, 0))
    assert follower.high_watermark == 2


def test_a_leader_hears_of_another_log_start_though_no_records_come(follower):
    """A deletion of records would wait for a follower until time is up."""

    def told() -> tuple[int, list[int]]:
        answer = FetchPartitionResponse(0, 0, 2, 2, 1)
        follower.leader.answer(answer, session_id=9)
        ((request, _),) = follower.leader.fetches
        starts = [each.log_start_offset for topic in request.topics for each in topic.partitions]
        return follower.partition().log.log_start_offset, starts

    follower.follow(epoch=1)
    follower.leader.answer(records(0, 1, b"one", b"two", high_watermark=2), session_id=9)
    assert told() == (1, [1])
    assert told() == (1, []), "it is told once"


def test_a_follower_over_its_quota_rests_unless_it_has_caught_up(follower):
    """A throttle that holds nobody back is none; one that holds back whom the high watermark waits
    for stops producers."""
    quota = follower.cluster.quotas.follower
    quota.cover("a", ("0:1",), 1)
    follower.cluster.config.update_dynamic(
        cluster={"follower.replication.throttled.rate": "1"}, broker={}
    )
    follower.follow(epoch=1)
    follower.leader.answer(records(0, 1, b"one", b"two", high_watermark=9))
    for _ in range(3):
        assert follower.leader.fetches == []
        follower.cluster.wait(SETTINGS.backoff_ms)
    assert follower.leader.fetches == [], "the windows still have what has come"
    follower.cluster.wait(60_000)
    assert follower.leader.asked() == {0: (2, 1)}
    follower.leader.answer(records(2, 1, b"three", high_watermark=3))
    assert follower.leader.asked() == {0: (3, 1)}


def test_a_leader_that_does_not_know_yet_that_it_leads_is_asked_again_soon(follower):
    """Each change of leadership would hold up producers with acks=all for a second."""

    def refused(code: ErrorCode, rest_ms: int) -> None:
        follower.leader.answer(FetchPartitionResponse(0, code, -1, -1, -1))
        follower.cluster.wait(rest_ms - 1)
        assert follower.leader.fetches == []
        follower.cluster.wait(1)
        assert follower.leader.asked() == {0: (follower.partition().log.log_end_offset, -1)}

    follower.follow(epoch=1)
    for rest_ms in (20, 40, 80, 160, 320, 640, 1000, 1000):
        refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, rest_ms)
    refused(ErrorCode.KAFKA_STORAGE_ERROR, SETTINGS.backoff_ms)
    follower.leader.answer(FetchPartitionResponse(0, 0, 0, 0, 0))
    refused(ErrorCode.UNKNOWN_LEADER_EPOCH, 20)


def test_a_session_names_only_what_has_changed(tmp_path):
    """With thousands of partitions every request would carry them all."""
    follower = Follower(str(tmp_path / "data"), partitions=2)
    follower.follow(epoch=1)
    follower.leader.answer(session_id=9)
    follower.follow(epoch=1, index=1)
    ((request, _),) = follower.leader.fetches
    assert (request.session_id, request.session_epoch) == (9, 1)
    follower.leader.answer(records(0, 1, b"one"), session_id=9)
    assert follower.leader.asked() == {0: (1, 1), 1: (0, -1)}
    follower.leader.answer(code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    ((request, _),) = follower.leader.fetches
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert set(follower.leader.asked()) == {0, 1}
    follower.cluster.close()


def test_an_answer_to_an_earlier_role_is_passed_over(follower):
    """Its records may be of a history that the present leader does not have."""
    follower.follow(epoch=1)
    follower.follow(epoch=2)
    follower.leader.answer(records(0, 1, b"late", high_watermark=1))
    assert follower.log_end == 0
    assert follower.leader.asked() == {0: (0, -1)}


def test_an_answer_for_a_partition_that_is_led_here_now_is_passed_over(follower):
    """A leader that appended what its predecessor sent would have two histories."""
    follower.follow(epoch=1)
    follower.cluster.change("a", leader=1, leader_epoch=2)
    follower.leader.answer(records(0, 1, b"late", high_watermark=1))
    assert follower.log_end == 0


def test_a_leader_that_cannot_be_reached_is_asked_again_after_a_while(follower):
    """Neither at once, which would be a storm, nor never."""
    follower.follow(epoch=1)
    follower.leader.break_off()
    assert follower.leader.fetches == []
    follower.cluster.wait(999)
    assert follower.leader.fetches == []
    follower.cluster.wait(1)
    assert follower.leader.asked() == {0: (0, -1)}


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_a_partition_that_is_refused_backs_off_alone(tmp_path, code):
    """The others would stand still for it."""
    follower = Follower(str(tmp_path / "data"), partitions=2)
    follower.follow(epoch=1)
    follower.follow(epoch=1, index=1)
    follower.leader.answer()
    follower.leader.answer(FetchPartitionResponse(0, code))
    assert set(follower.leader.asked()) == {1}
    follower.cluster.wait(1000)
    follower.leader.answer()
    assert set(follower.leader.asked()) == {0, 1}
    follower.cluster.close()


def test_records_that_are_corrupt_are_not_appended(follower):
    """A broken wire must not break a replica; it is fetched again later."""
    follower.follow(epoch=1)
    answer = records(0, 1, b"one", high_watermark=1)
    answer.records[0][40] ^= 1
    follower.leader.answer(answer)
    assert follower.log_end == 0
    assert follower.leader.fetches == []
    follower.cluster.wait(1000)
    assert follower.leader.asked() == {0: (0, -1)}


def test_a_replica_that_fell_behind_retention_starts_over(follower):
    """Records that the leader no longer has cannot be fetched; the replica would stand still for
    ever."""
    follower.write(b"one", epoch=1)
    follower.follow(epoch=2)
    follower.leader.answer(FetchPartitionResponse(0, ErrorCode.OFFSET_OUT_OF_RANGE))
    assert follower.leader.fetches == []
    ((timestamp, on_offset),) = follower.leader.questions
    assert timestamp == -1
    on_offset(90)
    (_, (timestamp, on_offset)) = follower.leader.questions
    assert timestamp == -2
    on_offset(70)
    assert follower.log_end == 70
    assert follower.leader.asked() == {0: (70, -1)}


def test_a_replica_that_is_longer_than_its_leader_loses_its_tail(follower):
    """After an unclean election the shorter log is the truth."""
    follower.write(b"one", b"two", epoch=1)
    follower.write(b"three", epoch=2)
    follower.follow(epoch=3)
    follower.leader.answer(FetchPartitionResponse(0, ErrorCode.OFFSET_OUT_OF_RANGE))
    follower.leader.questions[0][1](2)
    follower.leader.questions[1][1](0)
    assert follower.log_end == 2


def test_a_range_that_cannot_be_learnt_is_asked_for_again(follower):
    """An error in the middle must not leave the partition behind for ever."""
    follower.follow(epoch=1)
    follower.leader.answer(FetchPartitionResponse(0, ErrorCode.OFFSET_OUT_OF_RANGE))
    follower.leader.questions[0][1](BrokerError(ErrorCode.NETWORK_EXCEPTION))
    follower.cluster.wait(1000)
    assert follower.leader.asked() == {0: (0, -1)}


def test_nothing_is_done_after_the_end(follower):
    """An answer that comes late would append to a log that is being closed."""
    follower.follow(epoch=1)
    ((_, on_done),) = follower.leader.fetches
    follower.fetcher.close()
    assert follower.leader.closed
    on_done(FetchResponse([FetchTopicResponse(None, TOPIC, [records(0, 1, b"late")])]))
    assert follower.log_end == 0
    follower.cluster.wait(5000)
    assert len(follower.leader.fetches) == 1


def test_the_leaders_sessions_and_the_followers_understand_each_other():
    """Each side is tested alone elsewhere; here they must agree on the epochs."""
    session, cache = FetchSession(), FetchSessionCache(10, ManualClock())
    session.put(TP, TOPIC, FetchPartition(0, 5, 100))
    session.put(OTHER, TOPIC, FetchPartition(1, 6, 100))
    offsets = []
    for change in (
        None,
        lambda: session.put(TP, TOPIC, FetchPartition(0, 8, 100)),
        lambda: session.drop(OTHER),
    ):
        if change is not None:
            change()
        topics, forgotten = session.next_request()
        request = FetchRequest(
            1, 0, 0, topics, session_id=session.id, session_epoch=session.epoch, forgotten=forgotten
        )
        opened = cache.open(request, True)
        assert opened.error_code == ErrorCode.NONE
        answers = [FetchPartitionResponse(each.index, 0) for each in opened.partitions]
        if opened.session is None:
            session_id = cache.answered(opened, answers, by_id=True, privileged=True)
        else:
            session_id = opened.session.session_id
        session.accept(FetchResponse([], session_id=session_id))
        offsets.append({each.index: each.resolve("a").fetch_offset for each in opened.partitions})
    assert offsets == [{0: 5, 1: 6}, {0: 8, 1: 6}, {0: 8}]


class Following:
    """Broker 1 of three, with replicas of the three partitions of "a", each led by another."""

    def __init__(self, directory: str) -> None:
        self.cluster = Cluster(directory)
        self.opened: list[tuple[BrokerRegistration, ScriptedLeader]] = []
        self.manager = ReplicaFetcherManager(
            *(1, self.cluster.config, self.cluster.timer, self.open_channel),
            *(self.cluster.replicas.partitions.find, lambda _: None),
            self.cluster.quotas.follower,
        )
        self.brokers = {each: BrokerRegistration(each, (), None, each) for each in (1, 2, 3)}
        self.image = MetadataImage("c").with_brokers(self.brokers, 1)
        self.topic = TopicImage(
            "a",
            TOPIC,
            tuple(
                PartitionImage(index, index + 1, 0, 0, (1, 2, 3), (1, 2, 3)) for index in range(3)
            ),
        )
        self.publish(self.image.with_topics([self.topic]), added=[self.topic])

    def open_channel(self, leader: BrokerRegistration) -> ScriptedLeader:
        self.opened.append((leader, ScriptedLeader()))
        return self.opened[-1][1]

    def publish(self, after: MetadataImage, **what: object) -> None:
        delta = MetadataDelta(self.image, after, **what)
        self.cluster.replicas.apply_delta(delta)
        self.manager.apply_delta(delta)
        self.image = after

    def register(self, *brokers: BrokerRegistration) -> None:
        """These brokers live."""
        live = {broker.id: broker for broker in brokers}
        self.publish(self.image.with_brokers(live, 1), brokers_changed=True)


@pytest.fixture
def following(tmp_path):
    made = Following(str(tmp_path / "data"))
    yield made
    made.manager.close()
    made.cluster.close()


def test_who_is_followed_and_over_which_connection(following):
    """One connection a leader, none to oneself, and a new one when the leader lives anew."""
    opened, topic = following.opened, following.topic
    assert [leader.id for leader, _ in opened] == [2, 3]
    one, two, three = following.brokers.values()
    following.register(one, two._replace(epoch=9), three)
    assert opened[0][1].closed
    assert [leader.epoch for leader, _ in opened] == [2, 3, 9]
    moved = topic.with_partitions([topic.partitions[1]._replace(leader=1, leader_epoch=1)])
    following.publish(following.image.with_topics([moved]), changed=[moved])
    assert opened[2][1].closed
    following.publish(following.image.with_topics(removed=[moved]), removed=[moved])
    assert opened[1][1].closed


@pytest.mark.parametrize("gone", [1, 2])
def test_what_was_followed_is_followed_again_after_a_life_of_either_side(following, gone):
    """A broker that was cut off for a while would stay behind for ever in what nobody else has
    changed meanwhile."""
    first = dict(following.opened)
    following.register(*(each for each in following.brokers.values() if each.id != gone))
    back = following.brokers[gone]._replace(epoch=9)
    following.register(*{**following.brokers, gone: back}.values())
    assert all(channel.closed for leader, channel in first.items() if gone in (1, leader.id))
    again = following.opened[len(first) :]
    assert {leader.id for leader, _ in again} == ({2, 3} if gone == 1 else {2})
    assert all(channel.asked() for _, channel in again)


def test_an_epoch_in_which_nothing_was_written_is_forgotten(follower):
    """The follower would be told for ever that its history parted, and never catch up."""
    follower.write(b"one", epoch=1)
    follower.cluster.change("a", leader=1, leader_epoch=2)
    follower.follow(epoch=3)
    assert follower.leader.asked() == {0: (1, 2)}
    diverging = FetchPartitionResponse(0, 0, 0, 0, 0)
    diverging.diverging_epoch, diverging.diverging_end_offset = 1, 1
    follower.leader.answer(diverging)
    assert follower.leader.asked() == {0: (1, 1)}


class BrokenQuota(FakeQuota):
    """It lets nobody go on, and fails in the end."""

    fault: Exception | None = None

    def is_exceeded(self) -> bool:
        if self.fault is not None:
            raise self.fault
        return True


def test_a_retry_that_raises_is_a_broken_invariant(follower):
    """The replica would never ask again, on a broker that goes on: out of sync for ever."""
    failures: list[BaseException] = []
    timer = MockTimer(on_error=lambda _task, error: failures.append(error))
    quota = BrokenQuota()
    follower.fetcher = ReplicaFetcher(
        *(1, 5, 2, follower.leader, timer, SETTINGS, follower.readable.append), quota
    )
    follower.follow(epoch=1)
    follower.leader.answer(records(0, 1, b"x", high_watermark=5))
    timer.advance_clock(SETTINGS.backoff_ms)
    assert failures == []
    quota.fault = KeyError("a fault of ours")
    timer.advance_clock(SETTINGS.backoff_ms)
    assert [type(each) for each in failures] == [AssertionError]
    assert failures[0].__cause__ is quota.fault
