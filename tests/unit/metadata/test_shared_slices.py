"""Brokers of one process act on a change of many partitions some at a time."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from tests.late_background import LateBackground

from odradek.background import InlineBackground
from odradek.controller.replicas.replication_control import ReplicationControl
from odradek.metadata import ListenerStage, MetadataCache, MetadataDelta, MetadataImage, NewTopic
from odradek.metadata.engine import SLICE_PARTITIONS
from odradek.metadata.sqlite import EmbeddedMetadataStore, SharedMetadata
from odradek.model import NO_LEADER, TopicPartition

COUNT = 3 * SLICE_PARTITIONS


class Broker:
    """A broker that opens the logs which a change gives it, and tells how many at a time."""

    def __init__(self, shared: SharedMetadata, broker_id: int) -> None:
        self.turns = LateBackground()
        self.acted: list[int] = []
        self.hosted: set[TopicPartition] = set()
        self.cache = MetadataCache()
        self.store = EmbeddedMetadataStore(self.cache, shared, defer=self.turns.defer)
        self.store.subscribe(ListenerStage.REPLICAS, self._act)
        ReplicationControl(self.store, broker_id, lambda image, topic: False)
        self.hosted |= _partitions(self.store.load())
        self.loaded = len(self.hosted)
        self.store.register_broker(broker_id, (), None, lambda _: None)

    def _act(self, delta: MetadataDelta) -> tuple[()]:
        self.acted.append(sum(1 for _ in delta.partitions()) + len(_gone(delta)))
        self.hosted -= _gone(delta)
        self.hosted |= {TopicPartition(topic.name, p.partition) for topic, p in delta.partitions()}
        return ()

    def create(self, name: str, on_done: Callable[[Any], None] = lambda _: None) -> None:
        new = NewTopic(name, ((1, 2, 3),) * COUNT, {})
        self.store.create_topics([new], on_done)


def _gone(delta: MetadataDelta) -> set[TopicPartition]:
    removed = delta.topics_removed
    return {TopicPartition(topic.name, p.partition) for topic in removed for p in topic.partitions}


def _partitions(image: MetadataImage) -> set[TopicPartition]:
    topics = image.topics.values()
    return {TopicPartition(topic.name, p.partition) for topic in topics for p in topic.partitions}


@pytest.fixture
def shared() -> SharedMetadata:
    numbers = itertools.count(1)
    return SharedMetadata(InlineBackground(), lambda count: next(numbers).to_bytes(count, "big"))


def started(shared: SharedMetadata, count: int) -> list[Broker]:
    brokers = [Broker(shared, broker_id) for broker_id in range(1, count + 1)]
    for each in brokers:
        each.turns.run()
        each.acted.clear()
    return brokers


def test_a_turn_acts_on_a_slice(shared: SharedMetadata) -> None:
    """All brokers of the process would stand still until the last log is open."""
    one, two = started(shared, 2)
    done: list[Any] = []
    two.create("a", done.append)
    for slices in range(1, 4):
        assert one.acted == two.acted == [SLICE_PARTITIONS] * slices
        assert not done
        assert not one.cache.image.topics
        two.turns.step()
    assert done
    assert list(one.cache.image.topics) == ["a"]
    two.turns.run()
    topic = one.cache.image.topics["a"]
    one.store.delete_topics([topic.topic_id], done.append)
    assert two.acted[3:] == [SLICE_PARTITIONS]
    one.turns.run()
    assert two.acted[3:] == [SLICE_PARTITIONS] * 3
    assert not two.hosted


@pytest.mark.parametrize("turns", range(9))
def test_a_broker_that_starts_between_two_slices_has_the_whole_change(
    shared: SharedMetadata, turns: int
) -> None:
    """It would act on the rest of a change that it has been given already, or be shown half."""
    one, two = started(shared, 2)
    done: list[str] = []
    two.create("a", lambda _: done.append("a"))
    one.create("b", lambda _: done.append("b"))
    for _ in range(turns):
        (two if two.turns.work else one).turns.try_step()
    three = Broker(shared, 3)
    assert done == ["a", "b"]
    assert three.loaded == 2 * COUNT
    for each in (one, two, three):
        each.turns.run()
    assert one.hosted == two.hosted == three.hosted == _partitions(one.cache.image)
    assert one.cache.image is two.cache.image is three.cache.image
    assert sorted(three.cache.image.topics) == ["a", "b"]


def test_a_turn_that_was_not_waited_for_does_not_hurry_the_next_change(
    shared: SharedMetadata,
) -> None:
    """A turn of the loop would act on two slices from then on."""
    one, two = started(shared, 2)
    one.create("a")
    Broker(shared, 3).turns.run()
    two.acted.clear()
    one.create("b")
    one.turns.step()  # of the change before
    assert two.acted == [SLICE_PARTITIONS]
    one.turns.step()
    assert two.acted == [SLICE_PARTITIONS] * 2


@pytest.mark.parametrize("killed", [0, 1])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_broker_that_ends_between_two_slices_holds_up_no_other(
    shared: SharedMetadata, killed: int, steps: int
) -> None:
    """The queue would wait for ever for the turn of whoever asked; or the dead would lead."""
    brokers = started(shared, 3)
    done: list[str] = []
    brokers[0].create("a", lambda _: done.append("a"))
    for _ in range(steps):
        brokers[0].turns.step()
    ended = brokers.pop(killed)
    ended.store.close()
    before = list(ended.acted)
    ended.turns.run()  # a broker ends when nothing waits for its turn any more
    for each in brokers:
        each.turns.run()
    assert done == ["a"]
    assert ended.acted == before
    for each in brokers:
        assert each.hosted == _partitions(each.cache.image)
        states = each.cache.image.topics["a"].partitions
        assert len(states) == COUNT
        assert {state.leader for state in states}.isdisjoint({NO_LEADER, killed + 1})
    again = Broker(shared, killed + 1)
    again.turns.run()
    assert again.hosted == brokers[0].hosted
