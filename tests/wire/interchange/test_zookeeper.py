"""The directory of an Apache Kafka that had a ZooKeeper is imported and served whole."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from tests.deadlines import deadline_s
from tools import peers
from tools.kafka_node import zookeeper_kafka_node

import odradek
from odradek.cli.data_directory.fsck import read_metadata
from odradek.metadata import image as metadata

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

TIMEOUT_S = deadline_s(120)
Headers = list[tuple[str, bytes | None]]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = {"kept": 1, "spread": 3}
CONFIGS = {
    "kept": {"cleanup.policy": "compact", "retention.ms": "86400000"},
    "spread": {"segment.bytes": "4096"},
}


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # A Kafka that has just come may not know of itself yet, and librdkafka asks no second time.
    while not admin.list_topics(timeout=TIMEOUT_S).brokers:
        time.sleep(0.1)
    topics = [NewTopic(name, PARTITIONS[name], 1, config=CONFIGS[name]) for name in PARTITIONS]
    for future in admin.create_topics(topics).values():
        future.result(TIMEOUT_S)


def fill(bootstrap: str) -> dict[str, list[str]]:
    """Writes records of every codec to both topics; returns by topic what was acknowledged."""
    written: dict[str, list[str]] = {topic: [] for topic in PARTITIONS}

    def on_delivery(headers: Headers, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        written[str(message.topic())].append(as_line(message, headers))

    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": True,
                "batch.num.messages": 20,
                "log_level": 0,
            }
        )
        for index in range(120):
            headers = [("codec", codec.encode()), ("nothing", None)] if index % 3 == 0 else []
            value = None if index == 4 else f"wörd {index} ".encode() * 9
            for topic, count in PARTITIONS.items():
                key = f"{codec}{index}".encode() if topic == "kept" or index % 2 else None
                place = index % count
                # A report of delivery comes without the headers.
                report = partial(on_delivery, headers)
                producer.produce(topic, value, key, place, headers=headers, on_delivery=report)
        assert producer.flush(TIMEOUT_S) == 0
    return {topic: sorted(lines) for topic, lines in written.items()}


def as_line(message: Message, headers: Headers) -> str:
    place = message.partition(), message.offset(), message.timestamp()
    return f"{place} {message.key()!r} {message.value()!r} {headers}"


def commit(bootstrap: str, place: TopicPartition) -> None:
    """Subscribes as a member of the group, so that the commit has a coordinator to go to."""
    consumer = Consumer(consumer_settings(bootstrap))
    consumer.subscribe([place.topic])
    assert consumer.poll(TIMEOUT_S) is not None, "the group has fallen silent"
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def consumer_settings(bootstrap: str) -> dict[str, str | bool | int]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "log_level": 0,
    }


def read_all(bootstrap: str, topic: str) -> list[str]:
    consumer = Consumer(consumer_settings(bootstrap))
    partitions = range(PARTITIONS[topic])
    consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
    found, at_end = [], set()
    while len(at_end) < PARTITIONS[topic]:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, "the broker has fallen silent"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            at_end.add(message.partition())
        else:
            found.append(as_line(message, message.headers() or []))
    consumer.close()
    return sorted(found)


def topic_settings(bootstrap: str, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return {name: str(entry.value) for name, entry in found.items()}


def odradek_command(words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "odradek", *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def has_marker(data: Path) -> bool:
    return (data / ".kafka_cleanshutdown").exists()


def check_settings(target: Path, done: "subprocess.CompletedProcess[str]") -> None:
    """A directory imported with ZooKeeper's help has Kafka's settings, ids and partitions."""
    assert (done.returncode, done.stderr.count("left out")) == (0, 0), done.stderr
    stored = read_metadata(str(target))
    counts = {topic.name: len(topic.partitions) for topic in stored.topics}
    assert counts.items() >= PARTITIONS.items()
    for name, settings in CONFIGS.items():
        found = stored.configs[metadata.ConfigResource.topic(name)]
        assert found == settings
    assert stored.next_producer_id >= 1000
    with odradek.Broker(data_dir=str(target)) as broker:
        for name, settings in CONFIGS.items():
            assert topic_settings(broker.bootstrap_servers, name).items() >= settings.items()
    checked = odradek_command(["fsck", "--deep", str(target)])
    assert (checked.returncode, checked.stdout) == (0, "")


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_directory_with_zookeeper_is_served_whole(tmp_path: Path, killed: bool) -> None:
    """Goal: what Kafka acknowledged is read back, with its offsets, times, keys and headers; the
    topic ids and a group's offset come along, also after `kill -9`; settings come from ZooKeeper,
    and that they are missing without it is said."""
    data, target = tmp_path / "kafka", tmp_path / "ours"
    try:
        with zookeeper_kafka_node(data) as node:
            create_topics(node.bootstrap_servers)
            written = fill(node.bootstrap_servers)
            commit(node.bootstrap_servers, TopicPartition("spread", 1, 17))
            os.kill(node.pid, signal.SIGKILL if killed else signal.SIGTERM)
            os.waitid(os.P_PID, node.pid, os.WEXITED | os.WNOWAIT)
            words = ["import", str(data), "--data-dir", str(tmp_path / "with settings")]
            with_settings = odradek_command([*words, "--zookeeper", node.zookeeper])
    except peers.PeerUnavailable as error:
        pytest.skip(str(error))
    assert has_marker(data) != killed
    assert len(list(data.glob("spread-0/*.snapshot"))) > 1, "Kafka has not rolled its log"
    check_settings(tmp_path / "with settings", with_settings)
    done = odradek_command(["import", str(data), "--data-dir", str(target)])
    assert done.returncode == 0, done.stderr
    assert "no topic's settings" in done.stderr
    for topic in PARTITIONS:
        identity = Path(f"{topic}-0", "partition.metadata")
        assert (target / identity).read_text() == (data / identity).read_text()
    with odradek.Broker(data_dir=str(target)) as broker:
        for topic in PARTITIONS:
            assert read_all(broker.bootstrap_servers, topic) == written[topic]
            assert topic_settings(broker.bootstrap_servers, topic)["retention.ms"] == "-1"
        consumer = Consumer(consumer_settings(broker.bootstrap_servers))
        place = consumer.committed([TopicPartition("spread", 1)], timeout=TIMEOUT_S)[0]
        consumer.close()
        assert place.offset == 17
    checked = odradek_command(["fsck", "--deep", str(target)])
    assert (checked.returncode, checked.stdout) == (0, "")
