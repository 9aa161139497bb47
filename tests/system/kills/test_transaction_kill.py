"""`kill -9` of broker and client in the middle of transactions: nothing is lost or doubled.

A process carries records from one topic to another by transactions that also move its group's
offsets. At random moments the broker, that process, or both are killed and started again. In the
end every input is in the output once. The rounds are 6; `./test --rounds` changes
that.
"""

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadlines import deadline_s
from tests.rounds import rounds
from tests.system.processes import CheckedBroker
from tools.free_port import free_port

ROUNDS = rounds(6)
RECORDS_A_ROUND = 100
PARTITIONS = 2
SOURCE, TARGET = "orders", "bills"
SETTINGS = (
    *("--set", "transaction.state.log.num.partitions=4"),
    *("--set", "offsets.topic.num.partitions=4"),
)
DEADLINE_S = deadline_s(180)


class Carrier:
    """A process that carries records; see `carrier`."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        command = [sys.executable, str(Path(__file__).with_name("carrier.py"))]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, bootstrap, SOURCE, TARGET, str(PARTITIONS)], stderr=errors
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class World:
    """The broker and the carrier; either may be killed at any time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self._broker = self._start_broker()
        self.bootstrap = self._broker.bootstrap_servers
        self._carrier: Carrier | None = None

    def _start_broker(self) -> CheckedBroker:
        return CheckedBroker(self._directory, self._port, *SETTINGS).start()

    def start_carrier(self) -> None:
        self._carrier = Carrier(self.bootstrap, self._directory / "carrier.log")

    def kill_broker(self) -> None:
        self._broker.kill()

    def kill_carrier(self) -> None:
        if self._carrier is not None:
            self._carrier.kill()

    def restart_broker(self) -> None:
        self._broker.kill()
        self._broker = self._start_broker()

    def close(self) -> None:
        self.kill_carrier()
        self._broker.kill()


@pytest.mark.slow
def test_every_input_is_in_the_output_once(tmp_path: Path) -> None:
    """Fails when a crash loses a committed transaction, or lets a part of an aborted one count."""
    rng = random.Random(24)
    world = World(tmp_path)
    with contextlib.closing(world):
        admin = AdminClient({"bootstrap.servers": world.bootstrap})
        topics = [NewTopic(name, PARTITIONS, 1) for name in (SOURCE, TARGET)]
        for made in admin.create_topics(topics).values():
            made.result(DEADLINE_S)
        feed = Producer({"bootstrap.servers": world.bootstrap, "enable.idempotence": True})
        world.start_carrier()
        for round_ in range(ROUNDS):
            for number in range(RECORDS_A_ROUND):
                value = f"{round_}-{number}".encode()
                feed.produce(SOURCE, value, partition=number % PARTITIONS)
            assert feed.flush(DEADLINE_S) == 0
            time.sleep(rng.uniform(0.1, 1.0))
            victims = rng.choice(("broker", "carrier", "both"))
            if victims != "carrier":
                world.kill_broker()
            if victims != "broker":
                world.kill_carrier()
                world.start_carrier()
            if victims != "carrier":
                world.restart_broker()
        found = sorted(carried(world.bootstrap, ROUNDS * RECORDS_A_ROUND))
    wanted = [f"{round_}-{n}" for round_ in range(ROUNDS) for n in range(RECORDS_A_ROUND)]
    assert found == sorted(wanted), (tmp_path / "carrier.log").read_text()[-2000:]


def carried(bootstrap: str, wanted: int) -> Iterator[str]:
    """The committed records of the output, once as many are there as should be."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TARGET, index, 0) for index in range(PARTITIONS)])
    deadline, count, at_end = time.monotonic() + DEADLINE_S, 0, set[int]()
    # At least as much as should be there, and then to the ends: there must not be more.
    while count < wanted or len(at_end) < PARTITIONS:
        assert time.monotonic() < deadline, f"{count} of {wanted} records were carried"
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error() is not None:
            at_end.add(message.partition())
            continue
        at_end.discard(message.partition())
        count += 1
        yield message.value().decode()
    consumer.close()
