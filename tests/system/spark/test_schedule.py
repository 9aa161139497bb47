"""The schedule of the documentation, archive each minute, compact, audit, all at once, under kills.

If this fails, an archive that is looked after as the documentation says loses or doubles a record
some night, or an audit finds what is not there. A minute is two seconds here. In each of
`ODRADEK_ROUNDS` rounds Spark, or Spark and its JVM, is killed at any moment while all three are at
work; compactions and audits die alone besides. In every other round Spark has an executor that is
a process of its own, and is killed while Spark goes on. At the end the audit compares everything.
`ODRADEK_MINUTES=60` has the rounds follow for an hour:

    ODRADEK_MINUTES=60 .venv/bin/python -m pytest -s -o faulthandler_timeout=0 FILE
"""

import itertools
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadlines import deadline_s
from tools.suite.limits import grown

from odradek.testing.processes import BrokerProcess

ROUNDS = int(os.environ.get("ODRADEK_ROUNDS", "0"))
MINUTES = float(os.environ.get("ODRADEK_MINUTES", "0"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(not ROUNDS + MINUTES, reason="ODRADEK_ROUNDS says how long"),
]

PROGRAM = Path(__file__).parent / "kills" / "schedule.py"
LIFE_TIMEOUT_S = deadline_s(900)
# A life lasts for so many batches, and a little longer.
MOST_BATCHES, LAST_S = 8, 3.0
# Where Spark runs, in turn: as one process, and with one more for its executor.
MASTERS = ("local[2]", "local-cluster[1,2,512]")
HOUR_MS = 3_600_000
FIRST_TIME_MS = 1_700_000_000_000
PARTITIONS, PER_TRANSACTION, PAUSE_S = 3, 40, 0.5


class Traffic:
    """Transactions, one after another, of which every third is taken back."""

    def __init__(self, servers: str) -> None:
        settings = {"bootstrap.servers": servers, "transactional.id": "traffic"}
        self._producer = Producer(settings)
        self._producer.init_transactions(deadline_s(60))
        self.committed = 0

    def go_on(self) -> None:
        self._producer.begin_transaction()
        for number in range(self.committed, self.committed + PER_TRANSACTION):
            # Of three hours, in turn.
            time_ms = FIRST_TIME_MS + number % 3 * HOUR_MS
            self._producer.produce(
                "orders", b"%d" % number, partition=number % PARTITIONS, timestamp=time_ms
            )
        self._producer.flush(deadline_s(60))
        if random.randrange(3):
            self._producer.commit_transaction(deadline_s(60))
            self.committed += PER_TRANSACTION
        else:
            self._producer.abort_transaction(deadline_s(60))

    @contextmanager
    def flowing(self) -> Iterator[None]:
        ended = threading.Event()

        def flow() -> None:
            while not ended.wait(PAUSE_S):
                self.go_on()

        thread = threading.Thread(target=flow)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def children_of(pid: int) -> list[int]:
    """The processes that this one has started."""
    found: list[int] = []
    # Of each of its threads, some of which end meanwhile.
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, thread.read_text().split())
    return found


def kill_executors(pid: int) -> int:
    """Kills the executors of a Spark; says how many."""
    executors = [child for jvm in children_of(pid) for child in children_of(jvm) if is_java(child)]
    for executor in executors:
        with suppress(ProcessLookupError):
            os.kill(executor, signal.SIGKILL)
    return len(executors)


def is_java(pid: int) -> bool:
    """Tells a JVM: Spark starts processes of Python as well."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return "java" in os.readlink(f"/proc/{pid}/exe")
    return False


def lives() -> Iterator[int]:
    """The numbers of the rounds: as many as were asked for, and until the minutes are over."""
    began = time.monotonic()
    for number in itertools.count():
        if number >= ROUNDS and time.monotonic() - began >= MINUTES * 60:
            return
        yield number


@pytest.mark.timeout(grown(LIFE_TIMEOUT_S) + 60 * MINUTES)
def test_the_schedule_keeps_every_record_once(tmp_path: Path) -> None:
    log = tmp_path / "schedule.log"
    rng = random.Random(ROUNDS)
    with BrokerProcess(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        topic = NewTopic("orders", PARTITIONS, config={"retention.ms": "-1"})
        admin.create_topics([topic])["orders"].result(deadline_s(60))
        command = [sys.executable, str(PROGRAM), servers, str(tmp_path / "archive")]
        traffic = Traffic(servers)
        traffic.go_on()
        began, rounds, executors = time.monotonic(), 0, 0
        with traffic.flowing():
            for round_ in lives():
                master = MASTERS[round_ % len(MASTERS)]
                executors += live_and_die([*command, master, str(round_), "on"], log, rng)
                rounds += 1
        seconds = time.monotonic() - began
        with log.open("ab") as output:
            command += [MASTERS[0], "0", "once"]
            subprocess.run(command, stdout=output, check=True, timeout=LIFE_TIMEOUT_S)
    lines = log.read_text().splitlines()
    counts = Counter(line.partition(" ")[0] for line in lines)
    died = sum(line.endswith(" died") for line in lines)
    kills = f"{rounds} kills of all, {executors} of executors, {died} of one"
    print(f"{seconds:.0f} s, {kills}, {dict(counts)}, {traffic.committed} records")
    assert [line for line in lines if line.startswith("FAULT")] == []
    assert lines[-1].startswith("audit ")
    found = re.search(r"'records': (\d+)", lines[-1])
    assert found is not None
    assert int(found[1]) == traffic.committed


def errors_of(log: Path) -> Path:
    return log.with_suffix(".errors")


def batches_in(log: Path) -> int:
    """How many batches the archive has told of, in all lives."""
    return sum(line.startswith("batch ") for line in log.read_text().splitlines())


def live_and_die(command: list[str], log: Path, rng: random.Random) -> int:
    """A life of the schedule: it begins, works for a while, and is killed. Gives how many of its
    executors were killed before."""
    # What Spark says of its death is of no use to anybody.
    with log.open("ab") as output, errors_of(log).open("ab") as errors:
        last = errors.tell()
        process = subprocess.Popen(command, stdout=output, stderr=errors)
    victims, executors = [process.pid], 0
    try:
        deadline = time.monotonic() + LIFE_TIMEOUT_S
        done = batches_in(log)
        wanted = done + rng.randint(1, MOST_BATCHES)
        while (batches := batches_in(log)) < wanted:
            if process.poll() is not None:
                # On a busy machine the ten seconds that Spark gives a process to start are few.
                assert "failed to connect back" in errors_of(log).read_text()[last:]
                return executors
            assert time.monotonic() < deadline, "it does nothing"
            if batches > done and not rng.randrange(3):
                executors += kill_executors(process.pid)
            done = batches
            time.sleep(0.1)
        time.sleep(rng.uniform(0, LAST_S))
        # Without its Python the JVM goes on until it sees that it is alone.
        if rng.randrange(2):
            victims += children_of(process.pid)
    finally:
        for pid in victims if process.poll() is None else []:
            os.kill(pid, signal.SIGKILL)
        process.wait()
    return executors
