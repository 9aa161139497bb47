"""Pipelines as processes: killed in the middle, run for long, told to stop.

If these fail, an archive has lost or doubled records after a crash, or a pipeline that was
stopped leaves a JVM behind.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset as parquet
import pytest
from confluent_kafka import Producer
from tests.deadlines import deadline_s

import odradek

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

PATIENCE_S = deadline_s(180)
POLL_S = 0.05
NEVER_MS = 3_600_000


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        yield broker


@pytest.fixture
def topic(broker: odradek.Broker, request: pytest.FixtureRequest) -> str:
    name = request.node.originalname.replace("_", "-")
    broker.create_topic(name, partitions=3, config={})
    return name


def produce(broker: odradek.Broker, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(first, first + count):
        producer.produce(topic, key=b"%d" % number, value=b"v" * 50, partition=number % 3)
    assert producer.flush(deadline_s(60)) == 0


def start(
    broker: odradek.Broker, name: str, topic: str, *more: str, stderr: int | None = None
) -> "subprocess.Popen[bytes]":
    where = ["--bootstrap-server", broker.bootstrap_servers, "--topic", topic]
    command = [sys.executable, "-m", "odradek", "pipeline", name, *where, "--master", "local[2]"]
    return subprocess.Popen([*command, *more], stderr=stderr)


def finish(process: "subprocess.Popen[bytes]") -> int:
    """Waits for the end of a process; kills it and its JVM rather than leave them behind."""
    try:
        return process.wait(PATIENCE_S)
    finally:
        if process.poll() is None:
            kill(process)


def kill(process: "subprocess.Popen[bytes]") -> None:
    """The power goes: first the JVM, so that it cannot clean up, then its parent."""
    for child in children(process.pid):
        os.kill(child, signal.SIGKILL)
    process.kill()
    process.wait()


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()]


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, "the pipeline ended too early"
        assert time.monotonic() < deadline
        time.sleep(POLL_S)


def archived_keys(target: Path) -> list[int]:
    table = parquet.dataset(target, format="parquet").to_table(columns=["key"])
    return [int(key) for key in table["key"].to_pylist()]


def test_an_archive_that_is_killed_loses_nothing_and_doubles_nothing(
    broker: odradek.Broker, topic: str, tmp_path: Path
) -> None:
    count = 40_000
    produce(broker, topic, 0, count)
    flags = ("--to", str(tmp_path), "--once", "--max-records", "4000")
    # Once while a batch is being written, once when it is complete and Spark does not know yet.
    for landmark in ("batch=1-*", "_manifest/batch-4.json"):
        process = start(broker, "archive", topic, *flags)
        try:
            wait_for(lambda landmark=landmark: any(tmp_path.glob(landmark)), process)
        finally:
            kill(process)
    assert finish(start(broker, "archive", topic, *flags)) == 0
    assert sorted(archived_keys(tmp_path)) == list(range(count))


def test_a_restore_that_is_killed_in_its_writes_is_gone_on_with(
    broker: odradek.Broker, topic: str, tmp_path: Path
) -> None:
    """Records were there twice, or the topic could not be used any more."""
    # Several requests for each partition.
    for number in range(60):
        value = b"%d" % number * 50_000
        broker.produce(topic, value, key=b"%d" % number, partition=number % 3)
    archived, again = str(tmp_path / "archive"), f"{topic}-again"
    assert finish(start(broker, "archive", topic, "--to", archived, "--once")) == 0
    for _ in range(2):
        with broker.faults.delay(NEVER_MS, "Produce", after=True, topic=again) as unanswered:
            process = start(broker, "restore", again, "--from", archived)
            try:
                wait_for(lambda fault=unanswered: fault.struck > 0, process)
            finally:
                kill(process)
    assert 0 < len(broker.records(again)) < 60
    assert finish(start(broker, "restore", again, "--from", archived)) == 0
    assert content(broker, again) == content(broker, topic)
    assert finish(start(broker, "restore", again, "--from", archived)) == 1
    assert content(broker, again) == content(broker, topic)


def content(broker: odradek.Broker, topic: str) -> list[tuple[object, ...]]:
    records = broker.records(topic)
    return [(each.partition, each.offset, each.key, each.value, each.timestamp) for each in records]


def test_a_pipeline_that_goes_on_takes_what_comes_and_stops_when_told(
    broker: odradek.Broker, topic: str, tmp_path: Path
) -> None:
    produce(broker, topic, 0, 300)
    process = start(broker, "archive", topic, "--to", str(tmp_path), "--every", "1s")
    try:
        wait_for((tmp_path / "_checkpoint/commits/0").exists, process)
        produce(broker, topic, 300, 300)
        wait_for((tmp_path / "_checkpoint/commits/1").exists, process)
        [jvm] = children(process.pid)
        process.terminate()
    except BaseException:
        kill(process)
        raise
    assert finish(process) == 0
    assert not Path(f"/proc/{jvm}").exists()
    assert sorted(archived_keys(tmp_path)) == list(range(600))


def test_ctrl_c_ends_what_has_no_batches_at_once(
    broker: odradek.Broker, topic: str, tmp_path: Path
) -> None:
    sql = "SELECT id FROM range(0, 1000000000000000) WHERE hash(id) = id"
    flags = ("--sql", sql, "--to", str(tmp_path))
    process = start(broker, "query", topic, *flags, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: any(tmp_path.glob("batch=0-*/_temporary")), process)
        [jvm] = children(process.pid)
        process.send_signal(signal.SIGINT)
    except BaseException:
        kill(process)
        raise
    assert finish(process) == 130
    assert process.stderr is not None
    with process.stderr as shown:
        assert b"Traceback" not in shown.read()
    assert not Path(f"/proc/{jvm}").exists()


GARBAGE = """
import logging
from pyspark_odradek import session

logging.basicConfig(level=logging.INFO)
with session(master="local[1]") as spark:
    # Its one task counts something in a Python process.
    spark.range(1).mapInArrow(lambda batches: batches, "id long").collect()
    objects = [spark._jvm.java.lang.StringBuilder() for _ in range(5000)]
    objects.clear()
"""


def test_nobody_talks_to_a_jvm_that_has_ended() -> None:
    """Py4J tells it of every object that is gone here, Spark listens for what it has counted: both
    show a traceback when it is gone."""
    command = [sys.executable, "-c", GARBAGE]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert "Traceback" not in shown.stderr
    assert len(shown.stderr.splitlines()) < 100


def test_volume_shows_its_table_and_needs_no_directory(broker: odradek.Broker, topic: str) -> None:
    produce(broker, topic, 0, 300)
    where = ["--bootstrap-server", broker.bootstrap_servers, "--topic", topic]
    command = [sys.executable, "-m", "odradek", "pipeline", "volume", *where]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    records = [int(line.split("|")[3]) for line in shown.stdout.splitlines() if line[:3] == "|20"]
    assert sum(records) == 300


def test_an_archive_without_its_checkpoint_is_refused(
    broker: odradek.Broker, topic: str, tmp_path: Path
) -> None:
    flags = ("--to", str(tmp_path), "--once")
    produce(broker, topic, 0, 3)
    assert finish(start(broker, "archive", topic, *flags)) == 0
    shutil.rmtree(tmp_path / "_checkpoint")
    process = start(broker, "archive", topic, *flags, stderr=subprocess.PIPE)
    assert finish(process) == 1
    assert process.stderr is not None
    with process.stderr as shown:
        assert b"whose checkpoint is gone" in shown.read()
    assert sorted(archived_keys(tmp_path)) == [0, 1, 2]
