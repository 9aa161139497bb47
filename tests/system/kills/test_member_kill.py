"""`kill -9` of members and of their broker: nothing is lost, and the group settles.

Members are processes of their own: ours alone, and ours beside confluent-kafka and kafka-python in
one group. Each writes down what it reads before it commits it. They are killed in turn and others
take their places; once the broker is killed under all of them.
"""

import asyncio
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.deadlines import deadline_s
from tests.system.processes import CheckedBroker
from tools.free_port import free_port

from odradek.client import Admin
from odradek.client.core.admin_types import GroupDescription, NewTopic

DEADLINE_S = deadline_s(180)
PARTITIONS = 6
KILLS = 3
TOPIC, GROUP = "orders", "shop"
SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "group.min.session.timeout.ms=1000",
    "group.consumer.min.session.timeout.ms=1000",
    "group.consumer.session.timeout.ms=3000",
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=300",
)
ARGUMENTS = tuple(itertools.chain.from_iterable(("--set", each) for each in SETTINGS))
MEMBER = str(Path(__file__).with_name("member.py"))


class Member:
    """A process that reads; what it wrote down is added to `read` as it comes."""

    def __init__(
        self, library: str, protocol: str, servers: str, read: set[tuple[int, int]]
    ) -> None:
        self.library = library
        self.count = 0
        self._read = read
        command = [sys.executable, MEMBER, library, protocol, servers, TOPIC, GROUP]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # not the half that a killed one leaves
                partition, offset = map(int, line.split())
                self._read.add((partition, offset))
                self.count += 1

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def check(self) -> None:
        assert self._process.poll() is None, f"{self.library} has ended"


def wait_until(condition: Callable[[], bool], what: str, members: list[Member]) -> None:
    """Waits for other processes; the time-out is only for failing."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        for member in members:
            member.check()
        time.sleep(0.05)


@contextmanager
def writing(servers: str) -> Iterator[Callable[[], int]]:
    """Writes all the time, and says how many records of each partition are acknowledged."""
    is_over = threading.Event()
    acknowledged = [0] * PARTITIONS

    def write() -> None:
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 0})
        while not is_over.is_set():
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, b"v", partition=partition)
            assert producer.flush(DEADLINE_S) == 0
            for partition in range(PARTITIONS):
                acknowledged[partition] += 1
            is_over.wait(0.005)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()

    def stop() -> int:
        is_over.set()
        writer.join(DEADLINE_S)
        assert not writer.is_alive(), "the writer does not end"
        return acknowledged[0]

    try:
        yield stop
    finally:
        is_over.set()
        writer.join(DEADLINE_S)


async def make_topic(servers: str) -> None:
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])


async def shares(servers: str) -> list[int]:
    """How many partitions each member of a stable group has; nothing of another."""
    async with Admin(servers) as admin:
        found = (await admin.describe_groups([GROUP]))[GROUP]
    if not isinstance(found, GroupDescription) or found.state != "Stable":
        return []
    return [len(each.partitions) for each in found.members]


def is_settled(servers: str, count: int) -> bool:
    found = asyncio.run(shares(servers))
    return len(found) == count and sum(found) == PARTITIONS and min(found) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "libraries"),
    [
        ("classic", ["ours", "ours", "ours"]),
        ("classic", ["ours", "confluent", "kafka-python"]),
        ("consumer", ["ours", "ours", "confluent"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_nothing_is_lost_and_the_group_settles(
    protocol: str, libraries: list[str], tmp_path: Path
) -> None:
    """Fails when a member commits what it has not given out, or does not find back to its group."""
    port = free_port()
    servers = f"127.0.0.1:{port}"
    read: set[tuple[int, int]] = set()
    members: list[Member] = []
    try:
        with CheckedBroker(tmp_path, port, *ARGUMENTS) as broker:
            asyncio.run(make_topic(servers))
            members += [Member(each, protocol, servers, read) for each in libraries]
            wait_until(lambda: is_settled(servers, len(members)), "the members", members)
            with writing(servers) as stop:
                for number in range(KILLS):
                    wait_until(lambda: all(each.count for each in members), "reads", members)
                    victim = members.pop(0)
                    victim.kill()
                    members.append(Member(victim.library, protocol, servers, read))
                    if number == KILLS // 2:
                        broker.kill()
                        broker.start()
                count = stop()
            wanted = {(index, offset) for index in range(PARTITIONS) for offset in range(count)}
            wait_until(lambda: wanted <= read, "all records", members)
            wait_until(lambda: is_settled(servers, len(members)), "the group to settle", members)
    finally:
        for member in members:
            member.kill()
