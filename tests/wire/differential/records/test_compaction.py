"""Rounds of compaction whose topic takes `compact` away meanwhile: Apache Kafka's and ours.

Brokers do not tell when a round begins. Both cleaners go from partition to partition of one topic,
as slowly as they are told, so that a round is under way as long as some of them are not cleaned
yet.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.cluster.polling import until
from tests.wire.client.test_producer import stored
from tests.wire.replicas import await_known
from tools import peers
from tools.kafka_node import kafka_node

import odradek
from odradek.client import ConfigChange, ConfigResource, NewTopic
from odradek.client.sync import Admin, Producer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

RATE = "log.cleaner.io.max.bytes.per.second"
SETTINGS = {"log.cleaner.threads": "1", "log.cleaner.backoff.ms": "50", RATE: "2000000"}
TOPIC = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
}
CHECKPOINT = "cleaner-offset-checkpoint"
PARTITIONS, RECORDS, KEYS, VALUE_BYTES = 6, 24, 3, 100_000


@pytest.fixture(scope="module", params=["ours", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    """Where it can be reached, and its data directory."""
    data = tmp_path_factory.mktemp(request.param) / "data"
    if request.param == "ours":
        with odradek.Broker(data_dir=data, config=SETTINGS) as ours:
            yield ours.bootstrap_servers, data
        return
    try:
        with kafka_node("384m", data, SETTINGS) as node:
            yield node.bootstrap_servers, data
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")


def fill(servers: str, topic: str, partitions: int) -> None:
    """Makes a topic that could be compacted, if it said so."""
    values = random.Random(7)
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(topic, partitions, 1, TOPIC)])
    with Producer(servers, max_request_size=2 * VALUE_BYTES) as producer:
        for number in range(RECORDS * partitions):
            key, value = b"%d" % (number // partitions % KEYS), values.randbytes(VALUE_BYTES)
            producer.send(topic, value, key=key, partition=number % partitions)
        producer.flush()


def configure(servers: str, resource: ConfigResource, name: str, value: str) -> None:
    with Admin(servers) as admin:
        assert admin.alter_configs({resource: [ConfigChange(name, value)]}) == {resource: None}


def set_policy(servers: str, topic: str, policy: str) -> None:
    configure(servers, ConfigResource.topic(topic), "cleanup.policy", policy)


def count(servers: str, topic: str, partition: int = 0) -> int:
    return len(stored(servers, topic, partition))


def cleaned(data: Path, topic: str) -> int:
    """How many partitions of a topic the cleaner has written down."""
    try:
        lines = (data / CHECKPOINT).read_text().splitlines()
    except FileNotFoundError:
        return 0
    return sum(line.startswith(f"{topic} ") for line in lines)


def await_change(servers: str) -> None:
    """Kafka's broker hears of changes in turn, but perhaps of two at once, and then of topics
    first."""
    for topic in ("one", "two"):
        with Admin(servers) as admin:
            admin.create_topics([NewTopic(topic, 1, 1)])
        await_known(servers, topic)


def test_nothing_goes_once_compact_was_taken_away(broker: tuple[str, Path]) -> None:
    """Of 24 records 17 went afterwards, of a topic that says that all of them are to stay."""
    servers, data = broker
    fill(servers, "kept", PARTITIONS)
    fill(servers, "later", 1)
    set_policy(servers, "kept", "compact")
    until(lambda: cleaned(data, "kept") > 0, "a partition is cleaned")
    set_policy(servers, "kept", "delete")
    await_change(servers)
    found = [count(servers, "kept", each) for each in range(PARTITIONS)]
    assert RECORDS in found, "a round can only be under way where records are left"
    configure(servers, ConfigResource.broker(None), RATE, "1000000000")
    # The only thread of the cleaner is done with all that was under way before.
    set_policy(servers, "later", "compact")
    until(lambda: count(servers, "later") < RECORDS, "another topic is cleaned")
    assert [count(servers, "kept", each) for each in range(PARTITIONS)] == found
