"""Brokers that share one memory: who lives, who is the controller, who leads."""

import itertools
from typing import Any

import pytest

from odradek.background import InlineBackground
from odradek.controller.replicas.replication_control import ReplicationControl
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import (
    ListenerStage,
    MetadataCache,
    MetadataDelta,
    NewTopic,
    PartitionChange,
)
from odradek.metadata.sqlite import EmbeddedMetadataStore, SharedMetadata
from odradek.metadata.sqlite.journal import StoredMetadata
from odradek.model import NO_LEADER, TopicPartition

TP = TopicPartition("a", 0)


class Broker:
    """A store of one broker, and the leader election that every broker has."""

    def __init__(self, shared: SharedMetadata, broker_id: int, *, unclean: bool = False) -> None:
        self.id = broker_id
        self.shared = shared
        self.cache = MetadataCache()
        self.store = EmbeddedMetadataStore(self.cache, shared)
        self.losses = 0
        self.store.on_session_lost(self._lost)
        ReplicationControl(self.store, broker_id, lambda image, topic: unclean)
        self.store.load()
        self.register()

    def register(self) -> Any:
        answers: list[Any] = []
        self.store.register_broker(self.id, (), None, answers.append)
        return answers[0]

    def ask(self, operation: str, *arguments: Any) -> Any:
        answers: list[Any] = []
        getattr(self.store, operation)(*arguments, answers.append)
        return answers[0]

    def _lost(self) -> None:
        self.losses += 1


def make_cluster(size: int, *, unclean: bool = False) -> list[Broker]:
    numbers = itertools.count(1)
    shared = SharedMetadata(InlineBackground(), lambda count: next(numbers).to_bytes(count, "big"))
    return [Broker(shared, broker_id, unclean=unclean) for broker_id in range(1, size + 1)]


def state_of(broker: Broker) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    partition = broker.cache.image.partition(TP)
    assert partition is not None
    return partition.leader, partition.isr, partition.offline


def test_the_first_broker_is_the_controller_and_any_live_one_has_topics_made() -> None:
    """A client may ask any broker; one that is taken for dead must not decide anything."""
    one, two = make_cluster(2)
    assert [b.cache.image.controller_id for b in (one, two)] == [1, 1]
    new = [NewTopic("a", ((2, 1),), {})]
    two.store.expire()
    refused = two.ask("create_topics", new)
    assert isinstance(refused, BrokerError)
    assert refused.code is ErrorCode.NOT_CONTROLLER
    two.register()
    assert two.ask("create_topics", new)[0].name == "a"
    assert one.cache.image is two.cache.image
    assert state_of(two) == (2, (2, 1), ())


def test_who_raises_ends_his_broker_alone_and_nobody_waits_for_it() -> None:
    """The others would not hear of a change, or whoever asked would never be answered."""
    one, two = make_cluster(2)
    broken: list[Exception] = []
    two.store._view.on_broken = broken.append  # type: ignore[misc]

    def fail(_: MetadataDelta) -> tuple[()]:
        raise KeyError("a listener's")

    two.store.subscribe(ListenerStage.SETTINGS, fail)
    assert one.ask("create_topics", [NewTopic("a", ((1, 2),), {})])[0].name == "a"
    assert [str(each) for each in broken] == ['"a listener\'s"']
    assert state_of(one) == (1, (1, 2), ())
    assert two.ask("sync") is None


def test_who_raises_at_what_clients_are_shown_ends_his_broker_alone() -> None:
    """The broker that asked for the change would end for a mistake of another, which lives on."""
    one, two = make_cluster(2)
    broken: list[Exception] = []
    two.store._view.on_broken = broken.append  # type: ignore[misc]

    def fail(_: MetadataDelta) -> None:
        raise KeyError("who looks at the image")

    two.cache.on_published(fail)
    assert one.ask("create_topics", [NewTopic("a", ((1, 2),), {})])[0].name == "a"
    assert [type(each) for each in broken] == [KeyError]


def test_a_broker_that_is_lost_leads_no_longer() -> None:
    """Its partitions would stay without a leader, and acks=all would wait for it."""
    one, two, three = make_cluster(3)
    one.ask("create_topics", [NewTopic("a", ((2, 3, 1),), {})])
    two.store.expire()
    assert two.losses == 1
    assert state_of(one) == (3, (3, 1), (2,))
    assert state_of(three) == state_of(one)
    partition = one.cache.image.partition(TP)
    assert partition is not None
    assert partition.leader_epoch == 1


def test_a_broker_that_comes_back_is_a_follower_until_it_is_in_sync() -> None:
    """Its log may differ from what was acknowledged meanwhile."""
    one, two, _ = make_cluster(3)
    one.ask("create_topics", [NewTopic("a", ((2, 3, 1),), {})])
    two.store.expire()
    again = two.register()
    assert again.epoch == 4
    assert state_of(two) == (3, (3, 1), ())


def test_the_next_controller_has_the_next_epoch_and_looks_at_everything() -> None:
    """Work that its predecessor did not get to would stay undone for ever."""
    one, two, three = make_cluster(3)
    one.ask("create_topics", [NewTopic("a", ((1, 2),), {})])
    before = two.cache.image.controller_epoch
    one.store.expire()
    image = three.cache.image
    assert (image.controller_id, image.controller_epoch) == (2, before + 1)
    assert state_of(three) == (2, (2,), (1,))
    late = one.ask("delete_topics", [image.topics["a"].topic_id])
    assert late.code is ErrorCode.NOT_CONTROLLER
    assert "a" in three.cache.image.topics


def test_the_last_replica_in_sync_stays_in_the_isr() -> None:
    """The last leader is the only one that has everything."""
    one, two, three = make_cluster(3)
    one.ask("create_topics", [NewTopic("a", ((2, 3),), {})])
    three.store.expire()
    two.store.expire()
    assert state_of(one) == (NO_LEADER, (2,), (2, 3))
    three.register()
    assert state_of(one) == (NO_LEADER, (2,), (2,))
    two.register()
    assert state_of(one) == (2, (2,), ())


def test_an_unclean_leader_is_elected_only_where_that_is_allowed() -> None:
    """It loses records, which an operator may prefer to standing still."""
    one, two, three = make_cluster(3, unclean=True)
    one.ask("create_topics", [NewTopic("a", ((2, 3),), {})])
    three.store.expire()
    two.store.expire()
    three.register()
    assert state_of(one) == (3, (3,), (2,))


def test_an_id_that_is_live_is_refused() -> None:
    """Two brokers of one id would both lead its partitions."""
    _, two = make_cluster(2)
    two.id = 1
    refused = two.register()
    assert isinstance(refused, BrokerError)
    assert refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_broker_that_closes_its_store_is_gone_for_the_others() -> None:
    """An orderly end must not look like a life."""
    one, two = make_cluster(2)
    one.ask("create_topics", [NewTopic("a", ((1, 2),), {})])
    one.store.close()
    assert set(two.cache.image.brokers) == {2}
    assert state_of(two) == (2, (2,), (1,))


@pytest.mark.parametrize("asker", [1, 2, 3])
def test_only_controller_and_leader_change_a_partition(asker: int) -> None:
    """A follower that could shrink the ISR could lose what was acknowledged."""
    brokers = make_cluster(3)
    brokers[0].ask("create_topics", [NewTopic("a", ((2, 3),), {})])
    change = PartitionChange(TP, 0, 2, (2,))
    (outcome,) = brokers[asker - 1].ask("change_partitions", [change])
    if asker == 3:
        assert isinstance(outcome, BrokerError)
        assert outcome.code is ErrorCode.NOT_CONTROLLER
    else:
        assert outcome.isr == (2,)


def test_a_replica_that_cannot_be_served_is_offline_for_everybody_and_led_by_another() -> None:
    """Later stages and other brokers would count on a log that did not open."""
    one, two = make_cluster(2)
    seen: list[tuple[int, ...]] = []

    def look(delta: MetadataDelta) -> tuple[()]:
        seen.extend(topic.partitions[0].offline for topic in delta.topics_added)
        return ()

    two.store.subscribe(
        ListenerStage.REPLICAS,
        lambda delta: [TopicPartition(topic.name, 0) for topic in delta.topics_added],
    )
    one.store.subscribe(ListenerStage.COORDINATORS, look)
    one.ask("create_topics", [NewTopic("a", ((2, 1),), {})])
    assert seen == [(2,)]
    assert state_of(one) == (1, (1,), (2,))


def test_a_change_begun_by_a_listener_waits_until_its_cause_is_published() -> None:
    """It would be worked out on a state that its cause has not finished, with a journal too."""

    class Journal:
        def read(self) -> StoredMetadata:
            return StoredMetadata("cluster", 0, 0, (), {})

        def write(self, statements: Any) -> None:
            pass

        def close(self) -> None:
            pass

    numbers = itertools.count(1)
    shared = SharedMetadata(
        InlineBackground(), lambda count: next(numbers).to_bytes(count, "big"), Journal()
    )
    broker = Broker(shared, 1)
    order: list[str] = []

    def listener(delta: MetadataDelta) -> tuple[()]:
        if delta.topics_added:
            broker.store.sync(lambda outcome: order.append("synced"))
            order.append("heard")
        return ()

    broker.store.subscribe(ListenerStage.REPLICAS, listener)
    broker.cache.on_published(lambda delta: order.append("published"))
    broker.store.create_topics([NewTopic("a", ((1,),), {})], lambda outcome: order.append("done"))
    assert order == ["heard", "published", "done", "synced"]


def test_brokers_that_have_all_gone_come_back() -> None:
    """A cluster that was stopped could not be started again."""
    one, two = make_cluster(2)
    one.ask("create_topics", [NewTopic("a", ((1, 2),), {})])
    one.store.close()
    two.store.close()
    again = Broker(one.shared, 2)
    assert state_of(again) == (2, (2,), (1,))
