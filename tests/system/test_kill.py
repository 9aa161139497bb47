"""`kill -9` in the middle of producing: what was acknowledged is there, once, in order.

An idempotent producer of librdkafka sends numbered records with acks=all while the broker
is killed and started again on the same port and directory, round after round. At the end
everything is read back: every acknowledged record is there, none twice, each partition in
the order in which it was sent. The rounds are 100; `ODRADEK_KILL_ROUNDS` changes that.
"""

import os
import random
import socket
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.system.processes import BrokerProcess

ROUNDS = int(os.environ.get("ODRADEK_KILL_ROUNDS", "100"))
PARTITIONS = 3
TOPIC = "survivors"
FLUSH_S = 120


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


class Ledger:
    """What the producer was told: acknowledged values by partition, in order."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
        self.failed: list[str] = []
        self.count = 0

    def on_delivery(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        self.count += 1
        self.acknowledged[message.partition()].append(int(message.value()))


def read_all(bootstrap_servers: str) -> dict[int, list[int]]:
    """Every record of the topic, by partition, in the order of the log."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None, "the broker does not give its records"
        if message.error() is not None:
            ended.add(message.partition())
        else:
            found[message.partition()].append(int(message.value()))
    consumer.close()
    return found


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_and_nothing_is_doubled(tmp_path: Path) -> None:
    """Goal: an acknowledgement with acks=all outlives the process that gave it."""
    dice = random.Random(20131231)
    port = free_port()
    ledger = Ledger()
    with BrokerProcess(tmp_path, port) as first:
        admin = AdminClient({"bootstrap.servers": first.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
        assert first.stop() == 0
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 1,
            "batch.num.messages": 50,
            "message.timeout.ms": 300_000,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 10,
            "log_level": 0,
        }
    )
    sent = 0
    for _ in range(ROUNDS):
        with BrokerProcess(tmp_path, port) as broker:
            target = ledger.count + dice.randrange(100, 2000)
            while ledger.count < target:
                producer.produce(
                    TOPIC,
                    str(sent).encode(),
                    partition=sent % PARTITIONS,
                    on_delivery=ledger.on_delivery,
                )
                sent += 1
                producer.poll(0.01 if len(producer) > 2000 else 0)
            broker.kill()
    with BrokerProcess(tmp_path, port) as last:
        assert producer.flush(FLUSH_S) == 0, "the producer could not go on after a restart"
        found = read_all(last.bootstrap_servers)
        assert last.stop() == 0
    assert not ledger.failed
    for partition, acknowledged in ledger.acknowledged.items():
        doubled = [value for value, times in Counter(found[partition]).items() if times > 1]
        assert not doubled, f"partition {partition} holds {doubled[:5]}... twice"
        assert found[partition] == sorted(found[partition])
        missing = set(acknowledged) - set(found[partition])
        assert not missing, f"partition {partition} lost {sorted(missing)[:5]}..."
    assert sum(map(len, found.values())) == sent
    assert "Traceback" not in (tmp_path / "stderr.log").read_text()
