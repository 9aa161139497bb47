"""How the share coordinator follows the metadata, and how one elsewhere is asked."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from tests.unit.server.coordination.test_transaction_coordination import on_loop
from tests.unit.server.coordination.test_transaction_routing import Channel

import odradek
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import (
    BrokerRegistration,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from odradek.model import SHARE_GROUP_STATE_TOPIC
from odradek.replication.share.persister import SharePartitionKey, ShareState, StateBatch
from odradek.replication.share.states import RecordState
from odradek.server.coordination.share_states import RoutedShareStates
from odradek.server.peers.batched_requests import SLOW_AFTER_MS, BatchedRequests
from odradek.timer import MockTimer

KEY = SharePartitionKey("g", UUID(int=7), 0)


def test_states_of_topics_that_are_gone_are_forgotten_in_the_end() -> None:
    """Fails when states stay that the log has once refused to forget, or when those of topics go
    that a broker which has come back does not know yet."""
    with odradek.Broker() as broker:
        server = broker._running()
        shares = server.coordinators.share_states
        times: list[int] = []
        shares.coordinator.forget_topics = lambda: times.append(1)  # type: ignore[method-assign]
        server.metadata.is_current = False
        on_loop(broker, shares._tidy_up)
        assert not times
        server.metadata.is_current = True
        on_loop(broker, shares._tidy_up)
        assert times


def test_a_change_is_followed_when_it_is_through() -> None:
    """Fails when a broker looks for brokers and topics that are gone while a large change is still
    under way: who asked a dead one waits for a time-out, and states of deleted topics stay."""
    with odradek.Broker() as broker:
        server = broker._running()
        shares = server.coordinators.share_states
        seen: list[str] = []
        shares._requests.drop_gone = lambda: seen.append("brokers")  # type: ignore[method-assign]
        shares.coordinator.forget_topics = lambda: seen.append("topics")  # type: ignore[method-assign]
        image = server.metadata.image
        gone = TopicImage("gone", UUID(int=1), ())
        delta = MetadataDelta(image, image, removed=[gone], brokers_changed=True)
        on_loop(broker, lambda: shares.apply_delta(delta) and None)
        on_loop(broker, lambda: None)
        assert not seen
        on_loop(broker, lambda: server.metadata.publish(delta))
        on_loop(broker, lambda: None)
        assert sorted(seen) == ["brokers", "topics"]
        unknown = MetadataDelta(image, image, removed=[gone], are_deleted=False)
        on_loop(broker, lambda: server.metadata.publish(unknown))
        on_loop(broker, lambda: None)
        assert len(seen) == 2, "a topic that nobody speaks of may be there"


def test_states_are_tidied_up_though_topics_cannot_be_forgotten() -> None:
    """Fails when the log of states grows for ever by one mistake of ours."""
    with odradek.Broker() as broker:
        shares = broker._running().coordinators.share_states
        pruned: list[int] = []

        def fail() -> None:
            raise KeyError("ours")

        def tidy_up() -> None:
            with pytest.raises(KeyError):
                shares._tidy_up()

        shares.coordinator.forget_topics = fail  # type: ignore[method-assign]
        shares.coordinator.prune = lambda: pruned.append(1)  # type: ignore[method-assign]
        on_loop(broker, tidy_up)
        assert pruned


class Elsewhere:
    """Broker 1; broker 2 coordinates all states, and answers when the test says so. Connections are
    as those of brokers: what is asked on one is answered in its order."""

    def __init__(self) -> None:
        replicas = (2,)
        partitions = (PartitionImage(0, 2, 0, 0, replicas, replicas),)
        topic = TopicImage(SHARE_GROUP_STATE_TOPIC, UUID(int=1), partitions)
        image = MetadataImage("c", brokers={2: BrokerRegistration(2, (), None, 1)})
        self.metadata = MetadataCache(image.with_topics([topic]))
        self.timer = MockTimer()
        self.channels: list[Channel] = []
        self.requests = BatchedRequests[SharePartitionKey](
            self.metadata,
            self.timer,
            self._open,  # type: ignore[arg-type]
        )
        self.states = RoutedShareStates(
            1,
            None,  # type: ignore[arg-type]
            self.metadata,
            self.requests,
            lambda _on_done: None,
        )
        self.stored: list[tuple[SharePartitionKey, ErrorCode | None]] = []

    def _open(self, _broker: BrokerRegistration) -> Channel:
        self.channels.append(Channel())
        return self.channels[-1]

    def write(self, key: SharePartitionKey, *batches: StateBatch) -> None:
        def on_done(error: BrokerError | None) -> None:
            self.stored.append((key, None if error is None else error.code))

        self.states.write(key, 0, ShareState(1, 5, batches), on_done)

    def under_way(self) -> list[tuple[Channel, dict[str, Any]]]:
        """The requests that broker 2 has, each connection's first."""
        return [(each, each.asked[0][1]) for each in self.channels if each.asked]

    def answer(self, channel: Channel, code: ErrorCode = ErrorCode.NONE) -> None:
        """Answers a request about any number of states."""
        _, values, _ = channel.asked[0]
        results = [
            {
                "topic_id": topic["topic_id"],
                "partitions": [
                    {"partition": each["partition"], "error_code": code}
                    for each in topic["partitions"]
                ],
            }
            for topic in values["topics"]
        ]
        channel.answer({"results": results})


def read_elsewhere(answer: object) -> list[ShareState | BrokerError]:
    """The outcome for a leader of a partition that asks another broker, which answers so."""
    world = Elsewhere()
    heard: list[ShareState | BrokerError] = []
    world.states.read(KEY, 0, heard.append)
    ((_, _, on_done),) = world.channels[0].asked
    on_done(answer)
    return heard


def answered(*partitions: SimpleNamespace) -> SimpleNamespace:
    results = [SimpleNamespace(topic_id=KEY.topic_id, partitions=partitions)]
    return SimpleNamespace(results=results)


def stored(delivery_state: int) -> SimpleNamespace:
    batch = SimpleNamespace(
        first_offset=5, last_offset=6, delivery_state=delivery_state, delivery_count=1, due_ms=9
    )
    return SimpleNamespace(
        partition=KEY.partition,
        error_code=0,
        error_message=None,
        state_epoch=1,
        start_offset=5,
        state_batches=[batch],
    )


def test_a_state_is_read_from_another_broker() -> None:
    """If this fails, a partition's leader begins with another state than is stored."""
    batch = StateBatch(5, 6, RecordState.ACKNOWLEDGED, 1, 9)
    assert read_elsewhere(answered(stored(2))) == [ShareState(1, 5, (batch,))]
    refused = SimpleNamespace(partition=KEY.partition, error_code=74, error_message="old")
    [error] = read_elsewhere(answered(refused))
    assert isinstance(error, BrokerError)
    assert (error.code, error.message) == (ErrorCode.FENCED_LEADER_EPOCH, "old")


@pytest.mark.parametrize(
    "answer",
    [answered(stored(3)), answered(stored(99)), answered(), SimpleNamespace(results=[])],
    ids=["newer", "broken", "no partition", "no topic"],
)
def test_an_answer_that_is_not_understood_is_an_answer(answer: SimpleNamespace) -> None:
    """If this fails, a group that another version has written for waits for ever for its state,
    and what the answer is told to ends with an exception that nobody sees."""
    [error] = read_elsewhere(answer)
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR


OTHER = KEY._replace(group_id="other")
NEIGHBOUR = KEY._replace(partition=1)


def test_a_slow_state_holds_up_no_other_group_and_no_other_partition() -> None:
    """Fails when one slow replica of the topic of states keeps every share group from its work."""
    world = Elsewhere()
    world.write(KEY)
    world.write(OTHER)
    world.write(NEIGHBOUR)
    world.write(OTHER._replace(partition=1))
    slow, *others = world.under_way()
    assert slow[1]["group_id"] == KEY.group_id
    for channel, _ in others:
        world.answer(channel)
    assert {key for key, _ in world.stored} == {OTHER, NEIGHBOUR, OTHER._replace(partition=1)}
    world.answer(slow[0])
    assert world.stored[-1] == (KEY, None)
    assert world.timer.size == 0


def test_writes_of_one_state_keep_their_order() -> None:
    """Fails when an older state is stored over a newer one."""
    world = Elsewhere()
    first, second = (StateBatch(n, n, RecordState.ACKNOWLEDGED, 1) for n in (5, 6))
    world.write(KEY, first)
    world.write(KEY, second)
    told = []
    world.states.read(KEY, 0, told.append)
    offsets = []
    for _ in range(2):
        ((channel, values),) = world.under_way()
        ((partition,),) = [topic["partitions"] for topic in values["topics"]]
        offsets += [each["first_offset"] for each in partition["state_batches"]]
        world.answer(channel)
    assert offsets == [5, 6]
    ((channel, values),) = world.under_way()
    assert values["topics"][0]["partitions"] == [{"partition": 0, "leader_epoch": 0}]
    assert not told


def test_what_waits_for_one_group_goes_together() -> None:
    """Fails when every state of a group is a request that waits for replicas."""
    world = Elsewhere()
    keys = [KEY._replace(partition=number) for number in range(20)]
    for key in keys:
        world.write(key)
    (first, _), *_ = world.under_way()
    world.answer(first)
    ((_, values),) = [each for each in world.under_way() if each[0] is first]
    (topic,) = values["topics"]
    assert [each["partition"] for each in topic["partitions"]] == list(range(4, 20))
    while world.under_way():
        world.answer(world.under_way()[-1][0])
    assert sorted(world.stored) == [(key, None) for key in keys]


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_COORDINATOR, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.REQUEST_TIMED_OUT]
)
def test_a_refusal_is_told_and_the_next_write_goes_its_way(code: ErrorCode) -> None:
    """Fails when a coordinator that has moved, or is late, leaves a partition without its turn."""
    world = Elsewhere()
    world.write(KEY)
    world.write(KEY)
    ((channel, _),) = world.under_way()
    world.answer(channel, code)
    ((channel, _),) = world.under_way()
    world.answer(channel)
    assert world.stored == [(KEY, code), (KEY, None)]


def test_nobody_waits_for_a_coordinator_that_is_gone() -> None:
    """Fails when members hang because a broker died, or this one is being stopped."""
    world = Elsewhere()
    for key in (KEY, KEY, OTHER):
        world.write(key)
    world.timer.advance_clock(SLOW_AFTER_MS)
    world.metadata.image = world.metadata.image.with_brokers({}, 1)
    world.requests.drop_gone()
    world.write(NEIGHBOUR)
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert sorted(world.stored) == sorted((key, gone) for key in (KEY, KEY, OTHER, NEIGHBOUR))
    assert world.timer.size == 0
