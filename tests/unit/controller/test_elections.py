"""Elections, the waiting for leaders, and producer ids."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from odradek.controller import (
    AlterOperation,
    ConfigAlteration,
    CreatableTopic,
    ElectionType,
    ProducerIdManager,
)
from odradek.controller.delayed_operations import (
    DelayedElectLeader,
    DelayedTopicChange,
    TopicKey,
)
from odradek.controller.producer_ids import MAX_WAIT_MS
from odradek.controller.replicas.elections import plan_balance, plan_election
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import (
    BrokerRegistration,
    ConfigResource,
    MetadataCache,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from odradek.metadata.store import PartitionChange
from odradek.model import NO_LEADER, ConfigResourceType, TopicPartition
from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.timer import MockTimer

TP = TopicPartition("a", 0)
PREFERRED, UNCLEAN = ElectionType


def _code_of(call: Callable[[], object]) -> object:
    """The error code that a call ends with."""
    with pytest.raises(BrokerError) as caught:
        call()
    return caught.value.code


def _image(
    leader: int, isr: tuple[int, ...], live: tuple[int, ...], offline: tuple[int, ...] = ()
) -> MetadataImage:
    brokers = {number: BrokerRegistration(number, (), None, 1) for number in live}
    partition = PartitionImage(0, leader, 5, 9, (1, 2, 3), isr, offline)
    topic = TopicImage("a", UUID(int=7), (partition,))
    return MetadataImage("c").with_brokers(brokers, 1).with_topics([topic])


def test_the_preferred_leader_takes_over() -> None:
    """The first replica, in sync and alive."""
    change = plan_election(_image(2, (1, 2), (1, 2)), TP, PREFERRED)
    assert (change.leader, change.isr, change.partition_epoch) == (1, (1, 2), 9)


@pytest.mark.parametrize(
    ("image", "kind", "code"),
    [
        (_image(1, (1, 2), (1, 2)), PREFERRED, ErrorCode.ELECTION_NOT_NEEDED),
        (_image(2, (2,), (1, 2)), PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (_image(2, (1, 2), (2,)), PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (_image(2, (1, 2), (1, 2), (1,)), PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (_image(2, (2,), (2,)), UNCLEAN, ErrorCode.ELECTION_NOT_NEEDED),
        (_image(-1, (1,), (4,)), UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        (MetadataImage("c"), UNCLEAN, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_elections_that_cannot_be(
    image: MetadataImage, kind: ElectionType, code: ErrorCode
) -> None:
    """Each with its own code; operators' scripts tell them apart."""
    assert _code_of(lambda: plan_election(image, TP, kind)) is code


@pytest.mark.parametrize(
    "resource",
    [
        ConfigResource.topic("a"),
        ConfigResource(ConfigResourceType.BROKER, ""),
        ConfigResource(ConfigResourceType.BROKER, "1"),
    ],
)
def test_allowing_an_unclean_election_holds_it(kit: Any, resource: ConfigResource) -> None:
    """A topic for which it is allowed may wait for a leader: nothing else would come to elect it,
    for as long as the replicas in sync are away."""
    other = kit.another_broker(2)
    topic = CreatableTopic("a", assignments=[(0, (2, 1))])
    assert not kit.create(topic)[0].error_code
    epoch = kit.cache.image.partition(TP).partition_epoch
    kit.store.change_partitions([PartitionChange(TP, epoch, 2, (2,))], lambda _: None)
    other.close()
    assert kit.cache.image.partition(TP).leader == NO_LEADER
    step = ConfigAlteration("unclean.leader.election.enable", AlterOperation.SET, "true")
    (result,) = kit.ask(kit.controller.incremental_alter_configs, [(resource, [step])])
    assert not result.error_code
    partition = kit.cache.image.partition(TP)
    assert (partition.leader, partition.isr) == (1, (1,))


def test_a_refused_election_is_held_with_the_next_change(kit: Any) -> None:
    """A partition whose new leader could not be written would have none for ever."""
    other = kit.another_broker(2)
    assert not kit.create(CreatableTopic("a", assignments=[(0, (2, 1))]))[0].error_code
    kit.journal.fails = True
    other.close()
    assert kit.cache.image.partition(TP).leader != 1
    kit.journal.fails = False
    kit.must_create("b")
    assert kit.cache.image.partition(TP).leader == 1


def _led_by(*leaders: int) -> MetadataImage:
    """Partitions whose preferred replica is broker 1, and which these brokers lead."""
    brokers = {number: BrokerRegistration(number, (), None, 1) for number in (1, 2)}
    partitions = tuple(
        PartitionImage(index, leader, 5, 9, (1, 2), (1, 2)) for index, leader in enumerate(leaders)
    )
    topic = TopicImage("a", UUID(int=7), partitions)
    return MetadataImage("c").with_brokers(brokers, 1).with_topics([topic])


def test_leaderships_go_back_when_too_many_are_elsewhere() -> None:
    """After a rolling restart one broker would do all the work; for one partition in ten nothing
    is moved."""
    assert plan_balance(_led_by(2, *[1] * 9), 10) == []
    changes = plan_balance(_led_by(2, *[1] * 9), 9)
    assert [(each.topic_partition, each.leader) for each in changes] == [(TP, 1)]
    assert plan_balance(_image(2, (2,), (1, 2)), 0) == [], "who is not in sync cannot lead"
    assert plan_balance(_image(2, (1, 2), (2,)), 0) == [], "who is gone cannot lead"


@pytest.mark.parametrize("leader", [NO_LEADER, 1])
def test_a_partition_without_replicas_has_no_preferred_leader(leader: int) -> None:
    """One such topic in ZooKeeper, or one of which nothing is known yet, would keep leadership of
    every topic where it is."""
    empty = TopicImage("b", UUID(int=2), (PartitionImage(0, leader, 0, 0, (), ()),))
    image = _image(2, (1, 2), (1, 2)).with_topics([empty])
    assert [each.topic_partition for each in plan_balance(image, 0)] == [TP]
    where = TopicPartition("b", 0)
    code = _code_of(lambda: plan_election(image, where, PREFERRED))
    assert code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_an_unclean_election_prefers_who_is_in_sync_and_else_shrinks_the_isr() -> None:
    """A leader that was not in sync is the only truth from then on."""
    clean = plan_election(_image(-1, (3,), (2, 3)), TP, UNCLEAN)
    assert (clean.leader, clean.isr) == (3, (3,))
    unclean = plan_election(_image(-1, (1,), (2, 3)), TP, UNCLEAN)
    assert (unclean.leader, unclean.isr) == (2, (2,))


def test_electing_everywhere_answers_only_where_it_was_needed(kit: Any) -> None:
    """On one node everything is led by the preferred leader already."""
    kit.must_create("a", 3)
    assert kit.ask(kit.controller.elect_leaders, PREFERRED, None, 1000) == []
    asked = [TopicPartition("a", 1), TopicPartition("b", 0)]
    results = kit.ask(kit.controller.elect_leaders, PREFERRED, asked, 1000)
    assert [result.error_code for result in results] == [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def _publish(cache: MetadataCache, image: MetadataImage) -> None:
    cache.publish(MetadataDelta(cache.image, image, changed=image.topics.values()))


def test_creation_waits_for_leaders_and_then_answers() -> None:
    """R7: no handler polls; the publication wakes it."""
    timer, cache = MockTimer(), MetadataCache(_image(-1, (1,), (1,)))
    purgatory = DelayedOperationPurgatory("topic", timer)
    answers: list[frozenset[str]] = []
    waiting = DelayedTopicChange(100, cache, answers.append)
    waiting.on_stored(["a"])
    assert not purgatory.try_complete_else_watch(waiting, [TopicKey("a")])
    assert waiting.missing() == "leaders of a"
    timer.advance_clock(99)
    assert answers == []
    _publish(cache, _image(1, (1,), (1,)))
    assert purgatory.check_and_complete(TopicKey("a")) == 1
    timer.advance_clock(1000)
    assert answers == [frozenset()]


def test_creation_that_takes_too_long_names_the_late_topics() -> None:
    """The client is told REQUEST_TIMED_OUT for those, though they exist."""
    timer, cache = MockTimer(), MetadataCache(_image(-1, (1,), (1,)))
    purgatory = DelayedOperationPurgatory("topic", timer)
    answers: list[frozenset[str]] = []
    waiting = DelayedTopicChange(100, cache, answers.append)
    waiting.on_stored(["a", "b"])
    purgatory.try_complete_else_watch(waiting, [TopicKey("a"), TopicKey("b")])
    timer.advance_clock(100)
    assert answers == [frozenset({"a", "b"})]


def test_creation_does_not_wait_for_a_partition_whose_replicas_are_all_offline() -> None:
    """Their log directory failed; no time-out mends that, and the topic is there."""
    timer, cache = MockTimer(), MetadataCache(_image(-1, (1,), (1,), offline=(1, 2, 3)))
    purgatory = DelayedOperationPurgatory("topic", timer)
    answers: list[frozenset[str]] = []
    waiting = DelayedTopicChange(100, cache, answers.append)
    assert not purgatory.try_complete_else_watch(waiting, [TopicKey("a")])
    waiting.on_stored(["a"])
    assert answers == [frozenset()]


def test_creation_waits_for_every_topic_of_the_request() -> None:
    """A ready partition does not answer for the other."""
    timer, cache = MockTimer(), MetadataCache(_image(1, (1,), (1,)))
    purgatory = DelayedOperationPurgatory("topic", timer)
    answers: list[frozenset[str]] = []
    waiting = DelayedTopicChange(100, cache, answers.append)
    waiting.on_stored(["a", "b"])
    purgatory.try_complete_else_watch(waiting, [TopicKey("a"), TopicKey("b")])
    assert purgatory.check_and_complete(TopicKey("a")) == 0
    assert purgatory.waiting()[0].missing == "leaders of b"
    timer.advance_clock(100)
    assert answers == [frozenset({"b"})]


def _led(count: int, leader: int, of: int) -> MetadataImage:
    """So many topics of one partition, the first of which have a leader."""
    partitions = [
        PartitionImage(0, leader if number < count else NO_LEADER, 5, 9, (1,), (1,))
        for number in range(of)
    ]
    return MetadataImage("c").with_topics(
        TopicImage(f"t{number}", UUID(int=number + 1), (partition,))
        for number, partition in enumerate(partitions)
    )


def _counted(monkeypatch: pytest.MonkeyPatch, of: type, name: str) -> list[object]:
    """Every call of a method from now on."""
    calls: list[object] = []
    method = getattr(of, name)

    def count(*arguments: object) -> object:
        calls.append(arguments)
        return method(*arguments)

    monkeypatch.setattr(of, name, count)
    return calls


def _come_one_by_one(cache: MetadataCache, waiting: DelayedOperation, many: int) -> None:
    """Publishes the leader of one topic after another, and wakes who waits for it."""
    purgatory = DelayedOperationPurgatory("topic", MockTimer())
    purgatory.try_complete_else_watch(waiting, [TopicKey(f"t{n}") for n in range(many)])
    for number in range(many):
        assert not waiting.is_completed
        cache.publish(MetadataDelta(cache.image, _led(number + 1, 1, many)))
        purgatory.check_and_complete(TopicKey(f"t{number}"))
    assert waiting.is_completed


def test_topics_that_come_one_by_one_are_looked_at_once_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request that made 10 000 topics had each of them looked at 10 000 times."""
    cache = MetadataCache(_led(0, 1, 100))
    answers: list[frozenset[str]] = []
    waiting = DelayedTopicChange(100, cache, answers.append)
    looks = _counted(monkeypatch, DelayedTopicChange, "_is_ready")
    waiting.on_stored([f"t{number}" for number in range(100)])
    _come_one_by_one(cache, waiting, 100)
    assert answers == [frozenset()]
    assert len(looks) < 10 * 100


def test_leaders_that_come_one_by_one_are_looked_at_once_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An election of all partitions had each of them looked at for every topic."""
    cache = MetadataCache(_led(0, 1, 100))
    answers: list[frozenset[TopicPartition]] = []
    looks = _counted(monkeypatch, DelayedElectLeader, "_leads")
    expected = {TopicPartition(f"t{number}", 0): 1 for number in range(100)}
    waiting = DelayedElectLeader(100, cache, answers.append)
    waiting.on_stored(expected)
    _come_one_by_one(cache, waiting, 100)
    assert answers == [frozenset()]
    assert len(looks) < 10 * 100


def test_a_leader_that_is_lost_again_is_waited_for() -> None:
    """The client would be told that all topics can be used, and one cannot."""
    cache = MetadataCache(_led(1, 1, 2))
    answers: list[frozenset[str]] = []
    waiting = DelayedTopicChange(100, cache, answers.append)
    waiting.on_stored(["t0", "t1"])
    first, last = _led(0, 1, 2).topics["t0"], _led(2, 1, 2).topics["t1"]
    last_only = MetadataImage("c").with_topics([first, last])
    cache.publish(MetadataDelta(cache.image, last_only))
    assert not waiting.safe_try_complete()
    assert waiting.missing() == "leaders of t0"
    cache.publish(MetadataDelta(cache.image, _led(2, 1, 2)))
    assert waiting.safe_try_complete()
    assert answers == [frozenset()]


def test_an_election_that_takes_too_long_names_the_late_partitions() -> None:
    """Another leader than the chosen one does not end the wait; the time-out does."""
    timer, cache = MockTimer(), MetadataCache(_image(-1, (1, 2), (1, 2)))
    purgatory = DelayedOperationPurgatory("elect", timer)
    answers: list[frozenset[TopicPartition]] = []
    waiting = DelayedElectLeader(100, cache, answers.append)
    waiting.on_stored({TP: 1})
    purgatory.try_complete_else_watch(waiting, [TopicKey("a")])
    _publish(cache, _image(2, (1, 2), (1, 2)))
    assert purgatory.check_and_complete(TopicKey("a")) == 0
    timer.advance_clock(100)
    assert answers == [frozenset({TP})]


def test_publishing_wakes_who_waits_for_the_topic(kit: Any) -> None:
    """The controller listens to what is published; a request must not wait for its time-out."""
    answers: list[frozenset[str]] = []
    waiting = DelayedTopicChange(1000, kit.cache, answers.append)
    waiting.on_stored(["a"])
    assert not kit.purgatory.try_complete_else_watch(waiting, [TopicKey("a")])
    kit.must_create("b")
    assert answers == []
    kit.must_create("a")
    assert answers == [frozenset()]
    assert kit.timer.size == 0


def test_an_election_waits_for_its_leader() -> None:
    """Another leader than the chosen one does not count."""
    timer, cache = MockTimer(), MetadataCache(_image(2, (1, 2), (1, 2)))
    purgatory = DelayedOperationPurgatory("elect", timer)
    answers: list[frozenset[TopicPartition]] = []
    waiting = DelayedElectLeader(100, cache, answers.append)
    waiting.on_stored({TP: 1})
    assert not purgatory.try_complete_else_watch(waiting, [TopicKey("a")])
    assert waiting.missing() == "leaders of a-0"
    _publish(cache, _image(1, (1, 2), (1, 2)))
    assert purgatory.check_and_complete(TopicKey("a")) == 1
    assert answers == [frozenset()]


def test_producer_ids_are_unique_across_blocks_and_restarts(kit: Any) -> None:
    """A reused id would let one producer's records pass for another's duplicates."""
    ids: list[Any] = []
    first = ProducerIdManager(kit.store, kit.timer)
    for _ in range(1_500):
        first.next_id(ids.append)
    ProducerIdManager(kit.store, kit.timer).next_id(ids.append)
    assert len(set(ids)) == 1_501
    assert ids[-1] == 2_000


def test_callers_wait_for_one_block_and_a_failure_reaches_them_all(kit: Any) -> None:
    """One commit for many callers; who comes after the failure tries anew. What the store says of
    it would end a producer for good: that its disk is full, say."""
    manager = ProducerIdManager(kit.store, kit.timer)
    outcomes: list[Any] = []
    kit.hold_commits()
    kit.journal.fails = True
    for _ in range(2):
        manager.next_id(outcomes.append)
    assert outcomes == []
    kit.commit_all()
    assert [outcome.code for outcome in outcomes] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    kit.journal.fails = False
    for _ in range(2):
        manager.next_id(outcomes.append)
    kit.commit_all()
    ProducerIdManager(kit.store, kit.timer).next_id(outcomes.append)
    kit.commit_all()
    first = outcomes[2]
    assert outcomes[3:] == [first + 1, first + 1_000], "one block is enough for both"
    assert kit.timer.size == 0


def test_nobody_waits_long_for_a_silent_store(kit: Any) -> None:
    """A producer would hang for as long as ZooKeeper is away, and its connection with it."""
    manager = ProducerIdManager(kit.store, kit.timer)
    outcomes: list[Any] = []
    kit.hold_commits()
    for _ in range(2):
        manager.next_id(outcomes.append)
        kit.timer.advance_clock(MAX_WAIT_MS - 1)
        manager.next_id(outcomes.append)
        kit.timer.advance_clock(1)
    assert [outcome.code for outcome in outcomes] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 4
    manager.next_id(outcomes.append)
    kit.commit_all()
    assert outcomes[4] == 0, "the block that was late is used"
    assert kit.timer.size == 0
