"""Directories with open transactions go from Apache Kafka to the broker, and back."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadlines import deadline_s
from tests.wire.differential.harness import Peer, Target
from tests.wire.interchange.test_directories import (
    kafkas_dump,
    odradek_command,
    our_dump,
    replace_log,
)
from tools import peers
from tools.kafka_node import kafka_node

import odradek

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

TIMEOUT_S = deadline_s(120)
TOPIC, GROUP = "orders", "billing"
SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
}
# What becomes of each open transaction where it is taken over.
OPEN = {"again": 5, "late": 6, "ended": 7}
"""Transactional ids, and the offset that the transaction of each commits."""


def transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    return producer


def leave_open(bootstrap: str) -> list[Producer]:
    """Transactions that have written a record and an offset, and have not ended."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(TIMEOUT_S)
    producers = []
    for name, offset in OPEN.items():
        producer = transactional(bootstrap, name)
        producer.begin_transaction()
        producer.produce(TOPIC, f"{name}, open", partition=0)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{GROUP}-{name}"})
        producer.send_offsets_to_transaction(
            [TopicPartition(TOPIC, 0, offset)], consumer.consumer_group_metadata(), TIMEOUT_S
        )
        consumer.close()
        assert producer.flush(TIMEOUT_S) == 0
        producers.append(producer)
    return producers


def committed_values(bootstrap: str) -> list[str]:
    """The records that readers of committed records get, up to the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, "the broker has fallen silent"
        if message.error() is not None:
            consumer.close()
            return values
        values.append(message.value().decode())


def committed_offset(bootstrap: str, name: str) -> int:
    """Where a group stands; a consumer of committed records waits for what is pending."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{GROUP}-{name}",
            "isolation.level": "read_committed",
        }
    )
    (place,) = consumer.committed([TopicPartition(TOPIC, 0)], TIMEOUT_S)
    consumer.close()
    return place.offset


@pytest.fixture
def peer_of() -> Iterator:
    """Connections for single requests."""
    made: list[Peer] = []

    def connect(bootstrap: str) -> Peer:
        made.append(Peer(Target(bootstrap)))
        return made[-1]

    yield connect
    for each in made:
        each.close()


def test_open_transactions_of_a_kafka_are_taken_over(tmp_path: Path, peer_of) -> None:
    """Fails when an imported transaction holds its readers up for ever, cannot be ended by its
    producer, or is taken for a committed one."""
    data, target = tmp_path / "kafka", tmp_path / "ours"
    try:
        with kafka_node(heap="512m", data_dir=data, settings=SETTINGS) as node:
            producers = leave_open(node.bootstrap_servers)
            assert committed_values(node.bootstrap_servers) == []
    except peers.PeerUnavailable as error:
        pytest.skip(str(error))
    del producers
    done = odradek_command("import", str(data), "--data-dir", str(target))
    assert done.returncode == 0, done.stderr
    clock = odradek.ManualClock(speed=1)
    with odradek.Broker(data_dir=str(target), clock=clock, config=SETTINGS) as broker:
        bootstrap = broker.bootstrap_servers
        peer = peer_of(bootstrap)
        described = peer.ask("describe_transactions", 0, transactional_ids=tuple(OPEN))
        states = {each.transactional_id: each for each in described.transaction_states}
        assert {each.transaction_state for each in states.values()} == {"Ongoing"}
        assert committed_values(bootstrap) == []
        # Its own producer ends it, with the id and epoch that Kafka gave it.
        known = states["ended"]
        identity = {"producer_id": known.producer_id, "producer_epoch": known.producer_epoch}
        ended = peer.ask("end_txn", 3, transactional_id="ended", committed=True, **identity)
        assert ended.error_code == 0
        # Another producer takes the id, which aborts what is open.
        again = transactional(bootstrap, "again")
        again.begin_transaction()
        again.produce(TOPIC, "again, committed", partition=0)
        again.commit_transaction(TIMEOUT_S)
        # The records after the open ones are held back until the last of those is over.
        assert committed_values(bootstrap) == []
        clock.advance(120_000)
        assert committed_values(bootstrap) == ["ended, open", "again, committed"]
        found = {name: committed_offset(bootstrap, name) for name in OPEN}
        assert found == {"again": -1001, "late": -1001, "ended": OPEN["ended"]}
        (late,) = peer.ask(
            "describe_transactions", 0, transactional_ids=("late",)
        ).transaction_states
        assert late.transaction_state == "CompleteAbort"


def test_kafka_takes_our_open_transactions_over(tmp_path: Path) -> None:
    """Fails when Kafka cannot read where our transactional ids stand, or what we left open in logs
    and groups holds its readers up."""
    ours, data = tmp_path / "ours", tmp_path / "kafka"
    with odradek.Broker(data_dir=str(ours), config=SETTINGS) as broker:
        producers = leave_open(broker.bootstrap_servers)
    del producers
    assert odradek_command("fsck", str(ours)).stdout == ""
    internal = ("__transaction_state", "__consumer_offsets")
    try:
        with kafka_node(heap="512m", data_dir=data, settings=SETTINGS) as node:
            # So that it makes the topics, those of its own among them.
            leave_open(node.bootstrap_servers)
        for topic in (TOPIC, *internal):
            for directory in ours.glob(f"{topic}-*"):
                replace_log(directory, data / directory.name)
        logs = [str(each) for each in data.glob("__transaction_state-*/*.log")]
        words = ["--files", ",".join(logs), "--transaction-log-decoder"]
        assert our_dump(*words) == kafkas_dump(*words)
        with kafka_node(heap="512m", data_dir=data, settings=SETTINGS) as node:
            bootstrap = node.bootstrap_servers
            assert committed_values(bootstrap) == []
            for name in OPEN:
                producer = transactional(bootstrap, name)
                producer.begin_transaction()
                producer.produce(TOPIC, f"{name}, committed", partition=0)
                producer.commit_transaction(TIMEOUT_S)
            deadline = time.monotonic() + TIMEOUT_S
            wanted = [f"{name}, committed" for name in OPEN]
            while committed_values(bootstrap) != wanted:
                assert time.monotonic() < deadline, committed_values(bootstrap)
                time.sleep(0.2)
            assert {committed_offset(bootstrap, name) for name in OPEN} == {-1001}
    except peers.PeerUnavailable as error:
        pytest.skip(str(error))
