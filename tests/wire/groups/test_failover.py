"""Groups of real consumers whose coordinator moves to another broker, in good order or not."""

import logging
import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from tests.deadlines import deadline_s

from odradek import Cluster

TIMEOUT_S = deadline_s(180)
PARTITIONS = 6
TOPIC, GROUP, HOME = "orders", "shop", "__consumer_offsets"


class Member:
    """A consumer that a thread polls; what it has read it commits, until it may."""

    def __init__(self, bootstrap: str, protocol: str, instance_id: str = "") -> None:
        static = {"group.instance.id": instance_id} if instance_id else {}
        self.read: list[bytes] = []
        self.partitions: frozenset[int] = frozenset()
        self.revocations = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **static,
            }
        )
        self._consumer.subscribe([TOPIC], on_revoke=self._on_revoke)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.revocations += 1

    def _run(self) -> None:
        while not self._is_over.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self._commit(message)
                self.read.append(message.value())
            self.partitions = frozenset(each.partition for each in self._consumer.assignment())

    def _commit(self, message: Message) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                self._consumer.commit(message, asynchronous=False)
                return
            except KafkaException:  # there is no coordinator at the moment
                assert time.monotonic() < deadline, "never: the coordinator is back"

    def close(self) -> None:
        if not self._is_over.is_set():
            self._is_over.set()
            self._thread.join(TIMEOUT_S)
            self._consumer.close()


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for other threads; how long is not judged, only that it happens."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.01)


def produce(cluster: Cluster, name: str) -> set[bytes]:
    """Ten records into each partition."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    values = [f"{name}-{number}".encode() for number in range(10 * PARTITIONS)]
    for number, value in enumerate(values):
        producer.produce(TOPIC, value, partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0
    return set(values)


def committed(cluster: Cluster) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])
    found = asked[GROUP].result(TIMEOUT_S).topic_partitions
    return {each.partition: each.offset for each in found}


def all_at(offset: int) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), offset)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_where_its_coordinator_goes(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Fails when a new coordinator does not know members, their instances or their offsets."""
    caplog.set_level(logging.INFO, "odradek.coordinator")
    with Cluster(3, config={"offsets.topic.num.partitions": 1}) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        bootstrap = cluster.bootstrap_servers
        static, other = Member(bootstrap, protocol, "till"), Member(bootstrap, protocol)
        members = [static, other]
        try:
            until(lambda: all(len(each.partitions) == 3 for each in members), "they share")
            shares = [each.partitions for each in members]
            revocations = other.revocations

            wanted = produce(cluster, "before")
            until(lambda: set(static.read + other.read) == wanted, "all is read")
            for how, leave in (
                ("moved", lambda _home: cluster.move_leader(HOME)),
                ("expired", lambda home: cluster.expire_session(home.id)),
                ("killed", lambda home: home.kill()),
            ):
                home = cluster.leader(HOME)
                assert home is not None
                leave(home)
                wanted.update(produce(cluster, how))
                until(lambda: set(static.read + other.read) == wanted, f"read on, {how}")
                assert cluster.leader(HOME) not in (None, home)
            assert committed(cluster) == all_at(40)
            assert len(static.read + other.read) == len(wanted), "something was read twice"
            assert [each.partitions for each in members] == shares

            static.close()
            again = Member(bootstrap, protocol, "till")
            members.append(again)
            until(lambda: again.partitions == shares[0], "the instance has its share again")
            wanted = produce(cluster, "again")
            until(lambda: wanted <= set(again.read + other.read), "both read on")
            assert other.revocations == revocations, "the other one was disturbed"
            assert committed(cluster) == all_at(50)
        finally:
            for member in members:
                member.close()
