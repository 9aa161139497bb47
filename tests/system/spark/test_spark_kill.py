"""A query that writes exactly once, and whose processes are killed at every step of a batch.

If this fails, a record is lost or there twice after a crash of Spark. A query copies one topic to
another while its workers, or Spark itself, or Spark but not the worker that was writing, are
killed before a write, in it, after it, in the commit of the sink and after it, and before Spark's
own. A worker that is left goes on at once, or when a new Spark has done its batch: then it has to
be refused. The rounds are one for every step; with `./test --rounds N` all manners to die
follow at every step, in turn, and `ODRADEK_SPARK_KILL_KAFKA=1` has it done with an Apache Kafka.
"""

import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadlines import deadline_s
from tests.rounds import rounds
from tests.system.spark.kills import pyspark_killed as kills
from tools import peers
from tools.kafka_node import kafka_node

from odradek.testing.processes import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

# One of every step; without more rounds these are all.
FIRST = [
    (kills.BEFORE_WRITE, kills.WORKER),
    (kills.IN_WRITE, kills.WORKER),
    (kills.AFTER_WRITE, kills.DRIVER_LATE),
    (kills.AFTER_PREPARING, kills.WORKER),
    (kills.IN_COMMIT, kills.DRIVER),
    (kills.BEFORE_CHECKPOINT, kills.DRIVER),
]
_IN_TASK = [kills.BEFORE_WRITE, kills.IN_WRITE, kills.AFTER_WRITE]
_TASK = [*_IN_TASK, kills.AFTER_PREPARING]
# Every manner of Spark to die. A worker that is done with its task is not refused any more, and
# the driver's own Python does not outlive the batch.
DRIVERS = [
    *itertools.product([*_TASK, kills.IN_COMMIT], [kills.DRIVER, kills.DRIVER_ONLY]),
    *itertools.product([*_IN_TASK, kills.IN_COMMIT], [kills.DRIVER_LATE]),
    (kills.BEFORE_CHECKPOINT, kills.DRIVER),
]
ROUNDS = rounds(len(FIRST))
RECORDS_A_ROUND = 120
FOLDER = Path(__file__).parent / "kills"


@contextlib.contextmanager
def servers(folder: Path) -> Iterator[str]:
    """The broker: ours as a process, or Apache Kafka."""
    if not os.environ.get("ODRADEK_SPARK_KILL_KAFKA"):
        with BrokerProcess(folder / "data") as broker:
            yield broker.bootstrap_servers
        return
    try:
        with kafka_node(heap="384m") as node:
            yield node.bootstrap_servers
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")


class Query:
    """The process of the query, and whoever it leaves behind."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self._arguments = [str(FOLDER / "query.py"), bootstrap_servers, str(folder / "checkpoint")]
        self._plans = folder / "plans"
        self._plans.mkdir()
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def start(self, how: str) -> None:
        """Starts it, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        path = os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, kills.FOLDER: str(self._plans)}
        command = [sys.executable, *self._arguments, how]
        log = (self._plans.parent / f"query-{self._starts}.log").open("wb")
        with log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self._starts += 1

    def kill_at(self, step: str, victim: str) -> None:
        """Returns when a process has died there; when that was Spark, the query has ended."""
        plan = self._plans / step
        plan.with_name(".new").write_text(victim)
        plan.with_name(".new").rename(plan)
        deadline = time.monotonic() + kills.PATIENCE_S
        while plan.exists():
            self._check(deadline, step)
            time.sleep(0.02)
        if victim != kills.WORKER:
            assert self.wait() != 0

    def _check(self, deadline: float, step: str) -> None:
        assert self._process is not None, "it was started"
        assert self._process.poll() is None, f"the query ended, nobody came to {step}"
        assert time.monotonic() < deadline, f"nobody came to {step}"

    def wait(self) -> int:
        assert self._process is not None, "it was started"
        return self._process.wait(kills.PATIENCE_S)

    def late_outcomes(self, count: int) -> list[str]:
        """The outcomes of so many workers that went on late."""
        deadline = time.monotonic() + kills.PATIENCE_S
        while True:
            notes = list(self._plans.glob(f"{kills.LATE_OUTCOME}*"))
            outcomes = [text for note in notes if (text := note.read_text())]
            if len(outcomes) == count:
                return outcomes
            assert time.monotonic() < deadline, f"{len(outcomes)} of {count} workers have ended"
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends it if it is there; its JVM ends with it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def produce(bootstrap_servers: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(first, first + RECORDS_A_ROUND):
        producer.produce("in", b"%d" % number, b"k%d" % (number % 7), partition=number % 3)
    assert producer.flush(deadline_s(60)) == 0


def copied(bootstrap_servers: str) -> Counter[int]:
    """How often each number is seen by a reader of committed records."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "check",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("out", number, 0) for number in range(3)])
    found: Counter[int] = Counter()
    ended = 0
    while ended < 3:
        message = consumer.poll(kills.PATIENCE_S)
        assert message is not None, "the end is not reached: a transaction is open"
        if message.error() is not None:
            ended += 1
        else:
            found[int(message.value())] += 1
    consumer.close()
    return found


def plans() -> list[tuple[str, str]]:
    """Where each round kills, and whom."""
    workers = itertools.cycle((step, kills.WORKER) for step in _TASK)
    # Every Spark loses two workers before it dies itself: that many come while another starts.
    lives = [[next(workers), next(workers), plan] for plan in DRIVERS]
    return list(itertools.islice(itertools.cycle([*FIRST, *itertools.chain(*lives)]), ROUNDS))


def test_a_query_is_killed_and_every_record_is_there_once(tmp_path: Path) -> None:
    with servers(tmp_path) as bootstrap_servers:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        for future in admin.create_topics([NewTopic("in", 3), NewTopic("out", 3)]).values():
            future.result(deadline_s(60))
        query = Query(bootstrap_servers, tmp_path)
        try:
            for round_, (step, victim) in enumerate(plans()):
                produce(bootstrap_servers, round_ * RECORDS_A_ROUND)
                query.start("on")
                query.kill_at(step, victim)
            query.stop()
            query.start("once")
            assert query.wait() == 0
            late = query.late_outcomes(sum(victim == kills.DRIVER_LATE for _, victim in plans()))
        finally:
            query.stop()
        found = copied(bootstrap_servers)
    assert found == Counter(range(ROUNDS * RECORDS_A_ROUND))
    assert [text for text in late if not text.startswith(("refused: ", "wrote 0"))] == []
