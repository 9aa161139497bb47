"""The newer consumer protocol (KIP-848) spoken by confluent-kafka, and by Kafka's Java tools.

The brokers here are in this process: their members send heartbeats every 200 ms, Kafka's default
of 5 s would make every rebalance here take that long.
"""

import logging
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.wire.readers import DEADLINE_S as TIMEOUT_S
from tests.wire.readers import JavaConsumerReader, commit_own

import odradek

PARTITIONS = 6


@pytest.fixture(scope="module", params=[1, pytest.param(3, marks=pytest.mark.slow)])
def broker(request: pytest.FixtureRequest) -> Iterator[odradek.Broker | odradek.Cluster]:
    """One broker, or three: whoever is asked need not be the coordinator, nor the leader."""
    with odradek.Broker() if request.param == 1 else odradek.Cluster(request.param) as broker:
        yield broker


@pytest.fixture(autouse=True)
def shown(caplog: pytest.LogCaptureFixture) -> None:
    """A test that fails shows what the broker said of its groups."""
    caplog.set_level(logging.INFO, "odradek")


@pytest.fixture
def admin(broker: odradek.Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def topic(broker: odradek.Broker, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W+", "-", request.node.name).strip("-")
    broker.create_topic(name, partitions=PARTITIONS)
    return name


def produce(broker: odradek.Broker, topic: str, count: int) -> list[bytes]:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
    values = [b"%d" % number for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(topic, value=value, partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0
    return values


class Reader:
    """A consumer that a thread polls; what it reads is committed as soon as it is noted."""

    def __init__(self, broker: odradek.Broker, topics: list[str], group: str, **more: str) -> None:
        self.values: list[bytes] = []
        self.partitions: set[tuple[str, int]] = set()
        dotted = {name.replace("_", "."): value for name, value in more.items()}
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 200,
                **dotted,
            }
        )
        self.consumer.subscribe(topics)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        state = "reads" if self._thread.is_alive() else "has ended"
        return f"a member {state}, has read {len(self.values)}, has {sorted(self.partitions)}"

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self.consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.values.append(message.value())
                commit_own(self.consumer, message)
            assigned = self.consumer.assignment()
            self.partitions = {(each.topic, each.partition) for each in assigned}

    def close(self) -> None:
        print(self)
        self._stop.set()
        self._thread.join(TIMEOUT_S)
        self.consumer.close()


@contextmanager
def reading(*readers: Reader) -> Iterator[None]:
    try:
        yield
    finally:
        for reader in readers:
            reader.close()


@contextmanager
def ending(reader: JavaConsumerReader) -> Iterator[None]:
    """The members that a failing test leaves behind end with it."""
    try:
        yield
    finally:
        reader.stopping.set()
        if reader.is_alive():
            reader.join(TIMEOUT_S)


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for other threads; how long is not judged, only that it happens."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.01)


def test_one_member_reads_everything(broker: odradek.Broker, topic: str) -> None:
    values = produce(broker, topic, 300)
    reader = Reader(broker, [topic], topic)
    with reading(reader):
        until(lambda: len(reader.values) == 300, "all records are read")
    assert sorted(reader.values) == sorted(values)


def test_members_share_without_reading_twice(broker: odradek.Broker, topic: str) -> None:
    """If this fails, a rebalance of the newer protocol loses records or reads them twice."""
    values = produce(broker, topic, 600)
    first = Reader(broker, [topic], topic)
    second = None
    try:
        until(lambda: len(first.values) > 50, "the first member reads")
        second = Reader(broker, [topic], topic)
        until(lambda: len(second.partitions) == 3, "the second has its share")
        until(lambda: len(first.values) + len(second.values) >= 600, "all records are read")
        assert len(first.partitions) == 3
        assert first.partitions.isdisjoint(second.partitions)
        counted = Counter(first.values + second.values)
        assert counted == Counter(values)
        first.close()
        until(lambda: len(second.partitions) == PARTITIONS, "the second takes over")
    finally:
        for reader in (first, second):
            if reader is not None and not reader._stop.is_set():
                reader.close()


def test_a_member_that_comes_back_goes_on(broker: odradek.Broker, topic: str) -> None:
    produce(broker, topic, 60)
    first = Reader(broker, [topic], topic)
    with reading(first):
        until(lambda: len(first.values) == 60, "all records are read")
    produce(broker, topic, 12)
    again = Reader(broker, [topic], topic)
    with reading(again):
        until(lambda: len(again.values) >= 12, "the new records are read")
    assert len(again.values) == 12


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_an_assignor_can_be_chosen(
    broker: odradek.Broker, topic: str, admin: AdminClient, assignor: str
) -> None:
    group = f"{topic}-{assignor}"
    readers = [Reader(broker, [topic], group, group_remote_assignor=assignor) for _ in range(3)]
    with reading(*readers):
        until(lambda: all(len(each.partitions) == 2 for each in readers), "everybody has two")
    assert len(set().union(*(each.partitions for each in readers))) == PARTITIONS


def test_an_unknown_assignor_is_refused(broker: odradek.Broker, topic: str) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": f"{topic}-x"}
    consumer = Consumer(
        {**settings, "group.protocol": "consumer", "group.remote.assignor": "sticky"}
    )
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.error().code() in (KafkaError.UNSUPPORTED_ASSIGNOR, KafkaError._FATAL)
    consumer.close()


def test_an_expression_finds_topics_as_they_are_created(broker: odradek.Broker) -> None:
    broker.create_topic("regex-first", partitions=1)
    reader = Reader(broker, ["^regex-.*"], "regex")
    with reading(reader):
        until(lambda: reader.partitions == {("regex-first", 0)}, "the topic is found")
        broker.create_topic("regex-second", partitions=1)
        wanted = {("regex-first", 0), ("regex-second", 0)}
        until(lambda: reader.partitions == wanted, "the new topic is found")


def test_a_topic_that_grows_is_shared_out_anew(
    broker: odradek.Broker, topic: str, admin: AdminClient
) -> None:
    reader = Reader(broker, [topic], topic)
    with reading(reader):
        until(lambda: len(reader.partitions) == PARTITIONS, "everything is assigned")
        admin.create_partitions([NewPartitions(topic, PARTITIONS + 2)])[topic].result(TIMEOUT_S)
        until(lambda: len(reader.partitions) == PARTITIONS + 2, "the new ones are assigned")


def test_a_static_member_comes_back_to_its_partitions(
    broker: odradek.Broker, topic: str, admin: AdminClient
) -> None:
    other = Reader(broker, [topic], topic)
    one = Reader(broker, [topic], topic, group_instance_id="one")
    with reading(other):
        until(lambda: len(one.partitions) == 3 and len(other.partitions) == 3, "both have three")
        had = one.partitions
        one.close()
        again = Reader(broker, [topic], topic, group_instance_id="one")
        with reading(again):
            until(lambda: again.partitions == had, "it has what it had")
            assert other.partitions.isdisjoint(had)


def test_groups_are_listed_described_and_deleted(
    broker: odradek.Broker, topic: str, admin: AdminClient
) -> None:
    reader = Reader(broker, [topic], topic, client_id="me")
    with reading(reader):
        until(lambda: len(reader.partitions) == PARTITIONS, "everything is assigned")
        listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(TIMEOUT_S)
        mine = {each.group_id: each for each in listed.valid}[topic]
        assert (mine.type, mine.state) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE)
        described = admin.describe_consumer_groups([topic])[topic].result(TIMEOUT_S)
        (member,) = described.members
        assert (described.state, described.type) == (mine.state, mine.type)
        assert (member.client_id, member.host) == ("me", "/127.0.0.1")
        assert len(member.assignment.topic_partitions) == PARTITIONS
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([topic])[topic].result(TIMEOUT_S)
    admin.delete_consumer_groups([topic])[topic].result(TIMEOUT_S)
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert topic not in {each.group_id for each in listed.valid}


def test_who_is_no_member_cannot_commit(broker: odradek.Broker, topic: str) -> None:
    reader = Reader(broker, [topic], topic)
    with reading(reader):
        until(lambda: len(reader.partitions) == PARTITIONS, "everything is assigned")
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic}
        stranger = Consumer(settings)
        with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
            stranger.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
        stranger.close()


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_a_live_group_is_upgraded_and_downgraded_again(
    broker: odradek.Broker, topic: str, admin: AdminClient, strategy: str
) -> None:
    """If this fails, an application cannot be moved to the new protocol process by process."""
    classic = {
        "group_protocol": "classic",
        "partition_assignment_strategy": strategy,
        "heartbeat_interval_ms": "200",
    }
    values = produce(broker, topic, 300)
    old = Reader(broker, [topic], topic, **classic)
    with reading(old):
        until(lambda: len(old.values) == 300, "all records are read")
        new = Reader(broker, [topic], topic)
        with reading(new):
            until(lambda: len(new.partitions) == 3 and len(old.partitions) == 3, "they share")
            assert new.partitions.isdisjoint(old.partitions)
            described = admin.describe_consumer_groups([topic])[topic].result(TIMEOUT_S)
            assert described.type is ConsumerGroupType.CONSUMER
            values += produce(broker, topic, 300)
            until(lambda: len(old.values) + len(new.values) >= 600, "all records are read")
        until(lambda: len(old.partitions) == PARTITIONS, "the old one has everything again")
        described = admin.describe_consumer_groups([topic])[topic].result(TIMEOUT_S)
        assert described.type is ConsumerGroupType.CLASSIC
    assert Counter(old.values + new.values) == Counter(values)


CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
Tool = Callable[..., str]


@pytest.fixture
def tool(java: str, kafka_class_path: str, broker: odradek.Broker, tmp_path: Path) -> Tool:
    """Runs one of Kafka's tools by its class; returns what it printed."""
    logging = tmp_path / "log4j2.properties"
    logging.write_text("rootLogger.level = OFF\n", encoding="utf-8")
    options = ["-Xmx128m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={logging}"]

    def call(name: str, *arguments: str) -> str:
        command = [java, *options, "-cp", kafka_class_path, name]
        address = ["--bootstrap-server", broker.bootstrap_servers]
        done = subprocess.run(
            [*command, *address, *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


@pytest.mark.slow
@pytest.mark.xdist_group("jvm")
def test_the_java_console_consumer(broker: odradek.Broker, topic: str, tool: Tool) -> None:
    """If this fails, the Java client cannot join, or its commits are not found again."""
    values = produce(broker, topic, 60)
    consume = ["--group", topic, "--command-property", "group.protocol=consumer"]
    consume += ["--topic", topic, "--from-beginning", "--max-messages"]
    lines = tool(CONSUMER, *consume, "60").splitlines()
    assert sorted(lines) == sorted(value.decode() for value in values)
    produce(broker, topic, 6)
    assert sorted(tool(CONSUMER, *consume, "6").splitlines()) == ["0", "1", "2", "3", "4", "5"]
    assert topic in tool(GROUPS, "--list", "--type", "consumer").split()
    described = tool(GROUPS, "--describe", "--group", topic, "--offsets")
    assert described.count(f"{topic} ") >= PARTITIONS


@pytest.mark.slow
@pytest.mark.xdist_group("jvm")
def test_two_libraries_share_a_topic(
    broker: odradek.Broker, topic: str, java: str, kafka_class_path: str
) -> None:
    """If this fails, the Java client and librdkafka lose or double records between them."""
    values = produce(broker, topic, 120)
    ours = Reader(broker, [topic], topic)
    theirs = JavaConsumerReader(broker.bootstrap_servers, topic, topic)
    with reading(ours), ending(theirs):
        until(lambda: len(ours.values) == 120, "the first member reads everything")
        theirs.start()
        until(lambda: len(ours.partitions) == 3, "half of it is given back")
        values += produce(broker, topic, 120)
        until(lambda: len(ours.values) + len(theirs.read) >= 240, "both read")
        assert len(theirs.read) >= 60
        theirs.finish()
        until(lambda: len(ours.partitions) == PARTITIONS, "the first takes over")
        values += produce(broker, topic, 120)
        until(lambda: len(ours.values) + len(theirs.read) >= 360, "the rest is read")
    assert Counter(ours.values + theirs.read) == Counter(values)


@pytest.mark.slow
@pytest.mark.xdist_group("jvm")
def test_the_java_group_tool_sees_members(broker: odradek.Broker, topic: str, tool: Tool) -> None:
    reader = Reader(broker, [topic], topic, client_id="me")
    with reading(reader):
        until(lambda: len(reader.partitions) == PARTITIONS, "everything is assigned")
        members = tool(GROUPS, "--describe", "--group", topic, "--members", "--verbose")
        assert "me" in members.split()
        assert "0,1,2,3,4,5" in members.replace(" ", "")
        assert "Stable" in tool(GROUPS, "--describe", "--group", topic, "--state").split()


@pytest.mark.slow
@pytest.mark.xdist_group("jvm")
def test_the_java_config_tool_sets_a_groups_settings(tool: Tool) -> None:
    setting = "consumer.session.timeout.ms=50000"
    tool(CONFIGS, "--alter", "--group", "configured", "--add-config", setting)
    assert setting in tool(CONFIGS, "--describe", "--group", "configured")
