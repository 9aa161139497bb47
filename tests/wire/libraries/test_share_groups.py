"""Share groups with the clients that have them: librdkafka's and Java's, against the broker."""

import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.deadlines import deadline_s
from tests.wire.replicas import REPLICAS

from odradek import Broker, Cluster

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

CONSOLE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
TIMEOUT_S = deadline_s(30)

Tool = Callable[..., str]


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic of two partitions, ten records in each."""
    name = f"share-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(name, num_partitions=2, replication_factor=REPLICAS)
    admin.create_topics([new])[name].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce(name, f"value {number}", partition=number % 2)
    producer.flush(TIMEOUT_S)
    return name


@pytest.fixture
def group(bootstrap: str) -> str:
    """A share group that reads from the start."""
    name = f"queue-{uuid4().hex[:8]}"
    set_group(bootstrap, name, "share.auto.offset.reset", "earliest")
    return name


def set_group(bootstrap: str, group: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(TIMEOUT_S)


def poll(consumers: list[ShareConsumer], count: int) -> list[str]:
    """The records that the consumers are handed out, until there are so many."""
    values: list[str] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(values) < count and time.monotonic() < deadline:
        for consumer in consumers:
            for message in consumer.poll(0.2):
                assert message.error() is None, message.error()
                values.append(message.value().decode())
    for consumer in consumers:
        consumer.commit_sync(TIMEOUT_S)
    return values


def test_librdkafka_consumers_share_two_partitions(bootstrap: str, topic: str, group: str) -> None:
    """If this fails, three workers cannot share a queue of two partitions, or a record is handed
    out twice."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group}
    consumers = [ShareConsumer(settings) for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe([topic])
    values = poll(consumers, 20)
    assert sorted(values) == sorted(f"value {number}" for number in range(20))
    for consumer in consumers:
        consumer.close()
    again = ShareConsumer(settings)
    again.subscribe([topic])
    assert not list(again.poll(2.0))
    again.close()


def test_javas_console_consumer_and_tool(
    bootstrap: str, tool: Tool, topic: str, group: str
) -> None:
    """If this fails, kafka-console-share-consumer or kafka-share-groups does not know us."""
    asked = ("--topic", topic, "--group", group, "--max-messages", "20", "--timeout-ms", "20000")
    values = tool(CONSOLE, *asked).split("\n")
    assert {f"value {number}" for number in range(20)} <= set(values)
    assert group in tool(GROUPS, "--list")
    described = tool(GROUPS, "--describe", "--group", group)
    lags = [line.split()[-1] for line in described.splitlines() if topic in line]
    assert lags == ["0", "0"]
    assert "Empty" in tool(GROUPS, "--describe", "--group", group, "--state")
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    tool(GROUPS, *reset)
    described = tool(GROUPS, "--describe", "--group", group)
    lags = [line.split()[-1] for line in described.splitlines() if topic in line]
    assert lags == ["10", "10"]
    assert "successful" in tool(GROUPS, "--delete", "--group", group)


def test_states_are_reached_on_other_brokers() -> None:
    """If this fails, records that were accepted come again wherever the leader of a partition does
    not coordinate it too."""
    with Cluster(3) as cluster:
        cluster.create_topic("queue", 6)
        bootstrap = cluster.bootstrap_servers
        set_group(bootstrap, "g", "share.auto.offset.reset", "earliest")
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(60):
            producer.produce("queue", f"value {number}", partition=number % 6)
        producer.flush(TIMEOUT_S)
        settings = {"bootstrap.servers": bootstrap, "group.id": "g"}
        consumer = ShareConsumer(settings)
        consumer.subscribe(["queue"])
        values = poll([consumer], 60)
        assert sorted(values) == sorted(f"value {number}" for number in range(60))
        consumer.close()
        again = ShareConsumer(settings)
        again.subscribe(["queue"])
        assert not list(again.poll(2.0))
        again.close()


def test_accepted_records_do_not_come_again_after_a_restart(tmp_path: Path) -> None:
    """If this fails, a restart of the broker repeats the work of every queue."""
    folder = str(tmp_path)
    with Broker(data_dir=folder) as broker:
        broker.create_topic("queue", 1)
        bootstrap = broker.bootstrap_servers
        set_group(bootstrap, "g", "share.auto.offset.reset", "earliest")
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(10):
            producer.produce("queue", f"value {number}")
        producer.flush(TIMEOUT_S)
        consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": "g"})
        consumer.subscribe(["queue"])
        assert len(poll([consumer], 10)) == 10
        consumer.close()
        producer.produce("queue", "the next")
        producer.flush(TIMEOUT_S)
    with Broker(data_dir=folder) as broker:
        consumer = ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        consumer.subscribe(["queue"])
        assert poll([consumer], 1) == ["the next"]
        consumer.close()
