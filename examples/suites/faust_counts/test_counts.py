"""The stream as it is deployed, a worker in a process of its own, against a real Kafka."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

FOLDER = Path(__file__).parent
PATIENCE_S = 60


@pytest.fixture
def worker(kafka_bootstrap_servers: str, tmp_path: Path) -> Iterator[None]:
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap_servers})
    wanted = [NewTopic(name, 1, 1) for name in ("sentences", "counted")]
    for created in admin.create_topics(wanted).values():
        created.result(PATIENCE_S)
    process = subprocess.Popen(
        [sys.executable, "-m", "faust", "-A", "counts", "worker", "-l", "info"],
        cwd=FOLDER,
        env=os.environ | {"COUNTS_KAFKA": kafka_bootstrap_servers, "COUNTS_DATA": str(tmp_path)},
    )
    yield
    process.terminate()
    process.wait(PATIENCE_S)


@pytest.mark.usefixtures("worker")
def test_words_are_counted(kafka_bootstrap_servers: str) -> None:
    producer = Producer({"bootstrap.servers": kafka_bootstrap_servers})
    for sentence in ("one spool of thread", "one thread"):
        producer.produce("sentences", json.dumps(sentence))
    assert producer.flush(PATIENCE_S) == 0
    settings = {
        "bootstrap.servers": kafka_bootstrap_servers,
        "group.id": "test",
        "auto.offset.reset": "earliest",
    }
    found: dict[str, int] = {}
    wanted = {"one": 2, "spool": 1, "of": 1, "thread": 2}
    deadline = time.monotonic() + PATIENCE_S
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe(["counted"])
        while found != wanted:
            assert time.monotonic() < deadline, found
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                found[key.decode().strip('"')] = json.loads(value)
