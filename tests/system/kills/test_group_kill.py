"""`kill -9` of the broker under group load: no acknowledged commit goes back.

Two members of a group read and commit, synchronously and one record at a time, while the broker
is killed and started again on the same port and directory. After every start the committed
offsets are compared with what was acknowledged before. Every other round lasts until something
was committed in it; in the others one member takes the place of another, and the end may come in
the middle of that rebalance. The rounds are 8; `./test --rounds` changes that.
"""

import random
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadlines import deadline_s
from tests.rounds import rounds
from tests.system.processes import CheckedBroker
from tools.free_port import free_port

ROUNDS = rounds(8)
PARTITIONS = 4
RECORDS_A_ROUND = 20_000
TOPIC = "orders"
GROUP = "billing"
NO_DELAY = ("--set", "group.initial.rebalance.delay.ms=0")
DEADLINE_S = deadline_s(180)
SHOWN_LOG_LINES = 100


class Acknowledged:
    """The highest offset that a member was told is committed, by partition."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.count = 0

    def note(self, partition: int, offset: int) -> None:
        self.offsets[partition] = max(offset, self.offsets.get(partition, 0))
        self.count += 1


class MemberThread(threading.Thread):
    """Reads and commits until it is stopped; errors of a dying broker are borne."""

    def __init__(self, bootstrap_servers: str, acknowledged: Acknowledged) -> None:
        super().__init__(daemon=True)
        self.bootstrap_servers = bootstrap_servers
        self.acknowledged = acknowledged
        self.stopping = threading.Event()

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 300,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        consumer.subscribe([TOPIC])
        while not self.stopping.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            try:
                for done in consumer.commit(message, asynchronous=False):
                    if done.error is None:
                        self.acknowledged.note(done.partition, done.offset)
            except KafkaException:
                continue
        # A rebalance that is handed over within `close` lets librdkafka wait for itself, for ever
        # (its issue 4884): the last one is served before.
        consumer.unsubscribe()
        while consumer.assignment():
            consumer.poll(0.1)
        consumer.close()


def committed(bootstrap_servers: str) -> dict[int, int]:
    """The offsets that the group has committed, by partition, as anybody may ask."""
    asking = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": GROUP})
    wanted = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    found = {each.partition: each.offset for each in asking.committed(wanted, timeout=DEADLINE_S)}
    asking.close()
    return found


@pytest.mark.slow
def test_no_acknowledged_commit_goes_back(tmp_path: Path) -> None:
    """Fails when a commit is acknowledged before it is in the log, or lost in loading."""
    rng = random.Random(6)
    port = free_port()
    acknowledged = Acknowledged()
    members: list[MemberThread] = []
    for round_ in range(ROUNDS):
        with CheckedBroker(tmp_path, port, *NO_DELAY) as broker:
            address = broker.bootstrap_servers
            if round_ == 0:
                make_topic(address)
                members = [start_member(address, acknowledged) for _ in range(2)]
            before = dict(acknowledged.offsets)
            found = committed(address)
            for partition, offset in before.items():
                assert found[partition] >= offset, f"round {round_}: {partition} went back"
            count = acknowledged.count
            fill(address)
            if round_ % 2:
                members[-2].stopping.set()
                members.append(start_member(address, acknowledged))
            threading.Event().wait(rng.uniform(0.2, 1.5))
            if round_ % 2 == 0:
                await_more(acknowledged, count, f"round {round_}", tmp_path / "stderr.log")
            broker.kill()
    for member in members:
        member.stopping.set()
    with CheckedBroker(tmp_path, port, *NO_DELAY) as broker:
        for member in members:
            member.join(DEADLINE_S)
            assert not member.is_alive(), "a member does not stop"
        found = committed(broker.bootstrap_servers)
        for partition, offset in acknowledged.offsets.items():
            assert found[partition] >= offset, f"at the end: {partition} went back"
    assert acknowledged.count >= ROUNDS // 2


def start_member(bootstrap_servers: str, acknowledged: Acknowledged) -> MemberThread:
    member = MemberThread(bootstrap_servers, acknowledged)
    member.start()
    return member


def await_more(acknowledged: Acknowledged, count: int, when: str, log: Path) -> None:
    """Waits for a commit that is acknowledged; the time-out is only for failing."""
    deadline = time.monotonic() + DEADLINE_S
    while acknowledged.count == count:
        if time.monotonic() > deadline:
            last = log.read_text(encoding="utf-8").splitlines()[-SHOWN_LOG_LINES:]
            raise AssertionError("\n".join((f"{when}: nobody commits", *last)))
        time.sleep(0.02)


def make_topic(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()


def fill(bootstrap_servers: str) -> None:
    """More records than the members of a fast machine read in a round."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
    for number in range(RECORDS_A_ROUND):
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0
