"""A disk that fills up while producers write: a real, small file system under a real broker.

The file system is a tmpfs in a mount namespace of the broker's own, so that no rights are needed
where user namespaces are allowed, and nothing is left behind.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadlines import deadline_s

from odradek.testing.processes import BrokerProcess

DISK_BYTES = 48 * 1024 * 1024
RECORD_BYTES = 50_000
TIMEOUT_S = deadline_s(120)
QUICK_CLEANING = [
    *("--set", "log.retention.check.interval.ms=100"),
    *("--set", "log.segment.delete.delay.ms=0"),
]


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    """A broker whose data directory is a file system of 48 MiB."""
    unshare = shutil.which("unshare")
    disk = tmp_path / "disk"
    disk.mkdir()
    alone = [str(unshare), "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size={DISK_BYTES} tmpfs {disk}"
    if unshare is None or subprocess.run([*alone, mount], check=False).returncode != 0:
        pytest.skip("NOT TESTED: this machine does not let a test mount a small file system")
    log = tmp_path / "stderr.log"
    within = [*alone, f'{mount} && exec "$@"', "sh"]
    with BrokerProcess(disk / "data", *QUICK_CLEANING, log=log, within=within) as broker:
        yield broker.bootstrap_servers
    assert "Traceback" not in log.read_text()
    assert len(log.read_text().splitlines()) < 200, "the log fills up as well"


def create(bootstrap: str, topic: str) -> None:
    small = {"segment.bytes": "4194304"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=small)])[topic].result(TIMEOUT_S)


def produce(
    bootstrap: str, topic: str, count: int, retries: int = 0
) -> tuple[dict[int, bytes], set[int]]:
    """Sends records; what was acknowledged by offset, and the errors of the rest."""
    acknowledged: dict[int, bytes] = {}
    errors: set[int] = set()

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged[message.offset()] = message.value()
        else:
            errors.add(error.code())

    settings = {"acks": "all", "retries": retries, "batch.size": 200_000}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for _ in range(count):
        producer.produce(topic, os.urandom(RECORD_BYTES), partition=0, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    return acknowledged, errors


def read_all(bootstrap: str, topic: str, count: int) -> dict[int, bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[int, bytes] = {}
    while len(found) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"{len(found)} of {count} acknowledged records are there"
        assert message.error() is None, message.error()
        found[message.offset()] = message.value()
    consumer.close()
    return found


def test_a_full_disk_refuses_and_loses_nothing(bootstrap: str) -> None:
    """An append that did not fit is acknowledged, or the broker does not recover from it."""
    create(bootstrap, "fills")
    create(bootstrap, "waits")
    records = 2 * DISK_BYTES // RECORD_BYTES
    acknowledged, errors = produce(bootstrap, "fills", records)
    assert 0 < len(acknowledged) < records
    assert errors == {KafkaError.KAFKA_STORAGE_ERROR}
    assert read_all(bootstrap, "fills", len(acknowledged)) == acknowledged

    end = TopicPartition("fills", 0, max(acknowledged) + 1)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert admin.delete_records([end])[end].result(TIMEOUT_S).low_watermark == end.offset
    later, none = produce(bootstrap, "waits", 100, retries=1000)
    assert (sorted(later), none) == (list(range(100)), set())
    assert read_all(bootstrap, "waits", 100) == later
    create(bootstrap, "again")
    admin.delete_topics(["fills"])["fills"].result(TIMEOUT_S)


def test_a_full_disk_lets_topics_be_made_and_deleted(bootstrap: str) -> None:
    """No topic could be deleted to make room, or those made meanwhile would stay useless."""
    create(bootstrap, "fills")
    acknowledged, _ = produce(bootstrap, "fills", 2 * DISK_BYTES // RECORD_BYTES)
    assert acknowledged
    create(bootstrap, "later")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics(["fills"])["fills"].result(TIMEOUT_S)
    later, none = produce(bootstrap, "later", 100, retries=1000)
    assert (sorted(later), none) == (list(range(100)), set())
    assert read_all(bootstrap, "later", 100) == later
