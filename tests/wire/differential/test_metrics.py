"""The same traffic to Apache Kafka and to ours: both must have counted the same.

Only what the traffic decides is compared: records, bytes and requests of a topic, the log that they
made, offsets, and what there is. How often a client that waits asks is a matter of time, and what a
Kafka without ZooKeeper passes on to its controller may count twice.
"""

import re
import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadlines import deadline_s
from tests.wire.conftest import DIFFERENTIAL_FEATURES, DIFFERENTIAL_SETTINGS, JAVA_TIMEOUT_S
from tools import peers
from tools.free_port import free_port
from tools.java_server import java
from tools.kafka_node import kafka_node

from odradek import Broker

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm"), pytest.mark.of_three_too(False)]

TOPIC = "counted"
GROUP = "readers"
RECORDS = 20
SMALL_BYTES, LARGE_BYTES = 1000, 5000

Bean = tuple[str, frozenset[str]]

OF_TOPIC = ("MessagesIn", "BytesIn", "BytesOut", "TotalProduceRequests", "FailedProduceRequests")
BEANS = (
    *(f"kafka.server:type=BrokerTopicMetrics,name={name}PerSec,topic={TOPIC}" for name in OF_TOPIC),
    *(f"kafka.server:type=BrokerTopicMetrics,name={name}PerSec" for name in OF_TOPIC[3:]),
    *(
        f"kafka.log:type=Log,name={name},topic={TOPIC},partition=0"
        for name in ("Size", "LogStartOffset", "LogEndOffset", "NumLogSegments")
    ),
    *(
        f"kafka.cluster:type=Partition,name={name},topic={TOPIC},partition=0"
        for name in (
            *("UnderReplicated", "UnderMinIsr", "AtMinIsr", "InSyncReplicasCount"),
            *("ReplicasCount", "LastStableOffsetLag"),
        )
    ),
    *(
        f"kafka.server:type=ReplicaManager,name={name}"
        for name in (
            *("PartitionCount", "LeaderCount", "OfflineReplicaCount", "AtMinIsrPartitionCount"),
            *("UnderReplicatedPartitions", "UnderMinIsrPartitionCount", "ReassigningPartitions"),
        )
    ),
    *(
        f"kafka.controller:type=KafkaController,name={name}"
        for name in (
            *("ActiveControllerCount", "GlobalTopicCount", "GlobalPartitionCount"),
            *("OfflinePartitionsCount", "PreferredReplicaImbalanceCount", "ActiveBrokerCount"),
            "FencedBrokerCount",
        )
    ),
    "kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets",
    "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=OffsetCommit",
    "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce",
)


def traffic(bootstrap: str) -> None:
    """A topic, records one by one, one that is too large, half of them read, an offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, 1, 1, config={"max.message.bytes": str(SMALL_BYTES)})
    admin.create_topics([topic])[TOPIC].result(deadline_s(30))
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    refused = []
    for size_bytes in (*[100] * RECORDS, LARGE_BYTES):
        producer.produce(
            TOPIC, bytes(size_bytes), on_delivery=lambda error, _: refused.append(error)
        )
        assert producer.flush(deadline_s(30)) == 0
    assert [error is None for error in refused] == [True] * RECORDS + [False]
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        read = 0
        while read < RECORDS:
            for message in consumer.consume(RECORDS, 5):
                if message.error() is not None:
                    raise KafkaException(message.error())
                read += 1
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, RECORDS // 2)], asynchronous=False)
    finally:
        consumer.close()


def bean(name: str) -> Bean:
    """A bean's name without the order of its tags, which is no part of it."""
    domain, _, tags = name.partition(":")
    return domain, frozenset(tags.split(","))


def counts(found: dict[Bean, float]) -> dict[str, float | None]:
    """The beans that are compared; None where there is none."""
    return {name: found.get(bean(name)) for name in BEANS}


@pytest.fixture(scope="module")
def of_kafka() -> Iterator[dict[str, float | None]]:
    """Kafka's counts, as its own tool reads them."""
    port = free_port()
    flags = {
        "port": port,
        "rmi.port": port,
        "host": "127.0.0.1",
        "authenticate": "false",
        "ssl": "false",
    }
    options = [f"-Dcom.sun.management.jmxremote.{name}={value}" for name, value in flags.items()]
    options.append("-Djava.rmi.server.hostname=127.0.0.1")
    try:
        with kafka_node(
            "384m",
            settings=DIFFERENTIAL_SETTINGS,
            features=DIFFERENTIAL_FEATURES,
            options=options,
        ) as node:
            traffic(node.bootstrap_servers)
            yield counts(_beans_of_kafka(port))
    except peers.PeerUnavailable as error:
        pytest.skip(f"PEER MISSING, NOT TESTED: {error}")


def _beans_of_kafka(port: int) -> dict[Bean, float]:
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"
    command = [
        *java(peers.kafka_jars(), "-Xmx128m"),
        "org.apache.kafka.tools.JmxTool",
        *("--jmx-url", url, "--one-time", "--report-format", "properties"),
        # With names in place of a pattern it prints nothing unless each has both attributes.
        *("--attributes", "Count,Value", "--object-name", "kafka.*:*"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False
    )
    found = {}
    for line in done.stdout.splitlines():
        row = re.fullmatch(r"(.+):(?:Count|Value)=([-+0-9.E]+)", line)
        if row is not None:
            found[bean(row[1])] = float(row[2])
    assert found, done.stderr
    return found


@pytest.fixture(scope="module")
def of_ours() -> dict[str, float | None]:
    with Broker(config=DIFFERENTIAL_SETTINGS) as broker:
        traffic(broker.bootstrap_servers)
        return counts(
            {
                bean(name): value["Count"] if isinstance(value, dict) else value
                for name, value in broker.metrics().items()
                if not isinstance(value, dict) or "Count" in value
            }
        )


def test_ours_are_counted(of_ours: dict[str, float | None]) -> None:
    """The test below would compare nothing with nothing."""
    assert [name for name, value in of_ours.items() if value is None] == []
    assert of_ours[BEANS[0]] == RECORDS


@pytest.mark.parametrize("name", BEANS)
def test_the_same_traffic_counts_the_same(
    of_kafka: dict[str, float | None], of_ours: dict[str, float | None], name: str
) -> None:
    """A board would show another number of the same traffic than with Apache Kafka."""
    expected = of_kafka[name]
    if expected is None and name.endswith(f",topic={TOPIC}"):
        expected = 0  # Kafka makes a topic's bean when it counts for the first time
    assert of_ours[name] == expected
