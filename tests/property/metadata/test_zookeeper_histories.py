"""Random histories of brokers over one ZooKeeper: lost sessions, broken connections, deaf brokers,
failed directories, brokers' nodes that hold garbage for a while, controllers that end while they
read, every interleaving. No controller speaks before it has read, no topic is taken for deleted
that is there (`Broker` looks), and a leader counts with all that ZooKeeper calls in sync. When all
is quiet again, all brokers show what ZooKeeper holds, and nobody leads what he cannot serve."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounds import rounds
from tests.unit.metadata.zookeeper.zookeeper_cluster import Broker, Cluster

from odradek.metadata import (
    ConfigResource,
    NewPartitions,
    NewTopic,
    PartitionChange,
    changes,
    engine,
)
from odradek.metadata.image import BrokerRegistration
from odradek.metadata.zookeeper import znodes
from odradek.model import NO_LEADER, TopicPartition

NAMES = ("a", "b")


class History:
    """The events of a cluster, drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = Cluster(3, seed=seed)
        self.cluster.chance_of_late_requests = 0.1
        self.begun = 0
        self.answered: Counter[int] = Counter()
        self.epochs: dict[tuple[str, Any, int], tuple[int, int]] = {}
        self.garbled: dict[tuple[str, int], str] = {}
        self.proposed: dict[tuple[Broker, TopicPartition], tuple[int, ...]] = {}

    def go_on(self) -> None:
        kinds = [
            *(self.create, self.create, self.delete, self.grow, self.change_isr, self.change_isr),
            *(self.set, self.stop, self.start, self.expire, self.drop, self.deafen, self.wait),
            *(self.fail_directory, self.unseat, self.cluster.read_late, self.garble),
        ]
        self.random.choice(kinds)()
        for _ in range(self.random.randrange(40)):
            self.step()

    def step(self) -> None:
        """Anything, or time goes on."""
        if not self.cluster.tree.step() or self.random.random() < 0.02:
            self.cluster.clock.advance(50)
            self.cluster.timer.advance_clock(0)
        self.check()

    def any_broker(self) -> Broker | None:
        brokers = list(self.cluster.brokers.values())
        return self.random.choice(brokers) if brokers else None

    def ask(self, broker: Broker | None, operation: str, *arguments: Any) -> None:
        if broker is None:
            return
        number = self.begun
        self.begun += 1
        getattr(broker.store, operation)(*arguments, lambda _: self.answered.update([number]))

    def create(self) -> None:
        ids = [1, 2, 3]
        assignment = tuple(
            tuple(self.random.sample(ids, self.random.randrange(1, 4)))
            for _ in range(self.random.randrange(1, 4))
        )
        new = NewTopic(self.random.choice(NAMES), assignment, {"flush.ms": "1"})
        self.ask(self.any_broker(), "create_topics", [new])

    def delete(self) -> None:
        broker = self.any_broker()
        topic = broker and broker.image.topic(self.random.choice(NAMES))
        if topic:
            self.ask(broker, "delete_topics", [topic.topic_id])

    def grow(self) -> None:
        broker = self.any_broker()
        topic = broker and broker.image.topic(self.random.choice(NAMES))
        if topic and len(topic.partitions) < 6:
            more = NewPartitions(topic.name, len(topic.partitions), ((2, 3),))
            self.ask(broker, "create_partitions", [more])

    def change_isr(self) -> None:
        """A leader sees a follower come or go."""
        for broker in self.cluster.brokers.values():
            for topic in broker.image.topics.values():
                for each in topic.partitions:
                    if each.leader == broker.id and self.random.random() < 0.3:
                        count = self.random.randrange(len(each.replicas) + 1)
                        isr = {broker.id, *self.random.sample(each.replicas, count)}
                        self.ask_for_isr(broker, TopicPartition(topic.name, each.partition), isr)

    def ask_for_isr(self, broker: Broker, where: TopicPartition, isr: Iterable[int]) -> None:
        """Proposes an ISR as a leader does: only one at a time, until it is answered."""
        if (broker, where) in self.proposed:
            return
        number = self.begun
        self.begun += 1

        def on_done(_: object) -> None:
            self.answered.update([number])
            del self.proposed[broker, where]

        epoch = broker.state(*where).partition_epoch
        change = PartitionChange(where, epoch, broker.id, tuple(sorted(isr)))
        self.proposed[broker, where] = change.isr
        broker.store.change_partitions([change], on_done)

    def set(self) -> None:
        resource = ConfigResource.topic(self.random.choice(NAMES))
        value = str(self.random.randrange(100))
        self.ask(self.any_broker(), "alter_configs", {resource: {"retention.ms": value}})

    def stop(self) -> None:
        if len(self.cluster.brokers) > 1:
            broker = self.any_broker()
            assert broker is not None
            self.cluster.brokers.pop(broker.id).store.close()

    def start(self) -> None:
        for broker_id in (1, 2, 3):
            if broker_id not in self.cluster.brokers:
                self.register(self.cluster.add(broker_id))
                return

    def register(self, broker: Broker) -> None:
        def on_done(outcome: Any) -> None:
            if not isinstance(outcome, BrokerRegistration) and broker.id in self.cluster.brokers:
                self.cluster.turns_of(broker.id).append(lambda: self.register(broker))

        broker.store.register_broker(broker.id, (), None, on_done)

    def expire(self) -> None:
        broker: Any = self.any_broker()
        if broker is not None:
            by_itself = self.random.random() < 0.3
            self.lose(broker, broker.zookeeper.lose_by_itself if by_itself else broker.expire)

    def lose(self, broker: Broker, end_session: Callable[[], None]) -> None:
        end_session()
        self.cluster.turns_of(broker.id).append(lambda: self.register(broker))

    def drop(self) -> None:
        broker: Any = self.any_broker()
        if broker is not None:
            broker.zookeeper.drop()

    def deafen(self) -> None:
        broker = self.any_broker()
        if broker is not None:
            broker.is_deaf = not broker.is_deaf

    def fail_directory(self) -> None:
        """A broker cannot serve some of its replicas any more."""
        broker = self.any_broker()
        if broker is None:
            return
        mine = changes.replicas_of(broker.image, broker.id)
        lost = [each for each in mine if self.random.random() < 0.3]
        broker.unserved.update(lost)
        broker.store.report_offline(lost, broker.id)

    def garble(self) -> None:
        """Somebody writes over a broker's node, which is mended in the end."""
        tree = self.cluster.tree
        ids = tree.children(znodes.BROKER_IDS)
        if ids:
            path = znodes.broker_path(int(self.random.choice(ids)))
            self.garbled.setdefault((path, tree.entries[path].created), tree.text(path))
            tree.put(path, "?")

    def mend(self) -> None:
        entries = self.cluster.tree.entries
        for (path, created), text in self.garbled.items():
            if path in entries and entries[path].created == created:
                self.cluster.tree.put(path, text)

    def unseat(self) -> None:
        """The controller goes, and whoever is elected goes while it reads."""
        for _ in range(2):
            for broker in list(self.cluster.brokers.values()):
                if broker.elected is not None and len(self.cluster.brokers) > 1:
                    if self.random.random() < 0.5:
                        broker.close()
                    else:
                        self.lose(broker, broker.expire)
            for _ in range(100):
                if any(each.elected is not None for each in self.cluster.brokers.values()):
                    break
                self.step()
            for _ in range(self.random.randrange(12)):
                self.step()

    def wait(self) -> None:
        self.cluster.settle(2)

    def check(self) -> None:
        """At any moment: what a broker is told never goes back, each epoch has one leader, and
        nobody commands who has not read."""
        for broker in self.cluster.brokers.values():
            assert not broker.broken, broker.broken
            if broker.elected is not None and not broker.elected.has_read:
                assert not broker.has_commanded(broker.elected.epoch)
            for topic in broker.image.topics.values():
                for each in topic.partitions:
                    key = (str(topic.topic_id), each.partition, each.leader_epoch)
                    if each.leader == NO_LEADER or not each.replicas:
                        continue
                    seen = self.epochs.setdefault(key, (each.leader, each.leader_epoch))
                    assert seen[0] == each.leader, f"two leaders of {key}"
            for where in broker.leads:
                self.check_in_sync(broker, where)

    def check_in_sync(self, broker: Broker, where: TopicPartition) -> None:
        """Checks that the leader counts every replica that may be elected without loss: each has
        what the leader calls committed.
        """
        entries, image = self.cluster.tree.entries, broker.store._view.image
        topic = entries.get(znodes.topic_path(where.topic))
        entry = entries.get(znodes.state_path(where))
        known, mine = image.topic(where.topic), image.partition(where)
        if topic is None or entry is None or known is None or mine is None:
            return
        if znodes.read_topic(where.topic, topic.data).topic_id != known.topic_id:
            return
        state = znodes.read_state(where, entry.data)
        if (state.leader, state.leader_epoch) == (broker.id, mine.leader_epoch):
            counted = {*mine.isr, *self.proposed.get((broker, where), ())}
            assert counted.issuperset(state.isr), f"{broker.id} counts {counted} of {state.isr}"

    def finish(self) -> None:
        self.cluster.chance_of_late_requests = 0.0
        self.cluster.read_late()
        for broker_id in (1, 2, 3):
            if broker_id not in self.cluster.brokers:
                self.register(self.cluster.add(broker_id))
        for broker in self.cluster.brokers.values():
            broker.is_deaf = False
        self.cluster.settle(200)
        self.check_failed_directories()
        self.mend()
        for broker in self.cluster.brokers.values():
            back = sorted(broker.unserved)
            broker.unserved.clear()
            broker.store.report_online(back, broker.id)
        self.cluster.settle(200)
        self.check_all_agree()
        assert all(count == 1 for count in self.answered.values())
        assert len(self.answered) == self.begun, "somebody was never answered"

    def check_failed_directories(self) -> None:
        for broker in self.cluster.brokers.values():
            for where in broker.unserved:
                for other in self.cluster.brokers.values():
                    if self.cluster.tree.text(znodes.broker_path(other.id)) == "?":
                        continue  # nobody tells it anything
                    state = other.image.partition(where)
                    if state is not None and broker.id in state.replicas:
                        assert state.leader != broker.id, f"{broker.id} leads {where}"
                        assert broker.id in state.offline, f"{where} is not offline at {other.id}"

    def check_all_agree(self) -> None:
        tree = self.cluster.tree
        controller = self.cluster.controller
        brokers = self.cluster.brokers.values()
        assert {b.image.controller_id for b in brokers} == {controller.id}
        assert str(controller.image.controller_epoch) == tree.text("/controller_epoch")
        assert sorted(tree.children("/brokers/topics")) == sorted(controller.image.topics)
        assert tree.children("/admin/delete_topics") == []
        for topic in controller.image.topics.values():
            data = tree.text(znodes.topic_path(topic.name)).encode()
            written = znodes.read_topic(topic.name, data)
            assert written.topic_id == topic.topic_id
            assert written.assignments == tuple(each.assignment for each in topic.partitions)
            for each in topic.partitions:
                where = TopicPartition(topic.name, each.partition)
                entry = tree.entries[znodes.state_path(where)]
                state = znodes.read_state(where, entry.data)
                assert (state.leader, state.leader_epoch, state.isr, entry.version) == (
                    *(each.leader, each.leader_epoch, each.isr, each.partition_epoch),
                )
                assert each.leader in each.isr
                assert each.offline == ()
        for broker in brokers:
            assert sorted(broker.image.brokers) == [1, 2, 3]
            assert dict(broker.image.topics) == dict(controller.image.topics)
            for name in controller.image.topics:
                config = json.loads(tree.text(f"/config/topics/{name}"))["config"]
                assert broker.image.topic_config(name) == config


@settings(max_examples=rounds(60), deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 25), st.sampled_from([1, 2, 20]))
def test_all_agree_in_the_end(seed: int, length: int, slice_partitions: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "SLICE_PARTITIONS", slice_partitions)
        history = History(seed)
        for _ in range(length):
            history.go_on()
        history.finish()
