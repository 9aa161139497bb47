"""Every pipeline on a cluster of several processes, of which one is killed while it works.

If this fails, what works in one process does not past it: a record is in an output twice or not at
all when an executor dies, or a task looks for something that only the driver has.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.deadlines import deadline_s
from tests.system.spark.standalone import bare_environment, need_a_whole_java, standalone_cluster

from odradek import Broker

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

TIMEOUT_S = deadline_s(1200)
RECORDS = 60
PROGRAM = """
import os, signal, sys, threading
from dataclasses import replace
from pyspark.errors import PySparkException
from pyspark_odradek import session
from pyspark_odradek.pipelines import (
    PipelineSettings, archive, audit, compact, decode, dedup, join, lag, latest, query, read_table,
    redrive, restore, volume, window
)

servers, master, folder, records = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
settings = PipelineSettings(
    servers, "orders", other="orders", by="CAST(key AS STRING)", schema="n INT",
    dead_letters="dead", max_offsets_per_trigger=records, source=f"{folder}/archive",
)
killed = []

def executors():
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as command:
                text = command.read()
        except OSError:
            continue
        if "CoarseGrainedExecutorBackend" in text and spark.sparkContext.applicationId in text:
            yield int(pid)

def kill_one(name, done):
    # As soon as something is under way.
    tracker = spark.sparkContext.statusTracker()
    while not done.wait(0.02):
        running = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        if any(stage is not None and stage.numActiveTasks for stage in running):
            for pid in executors():
                os.kill(pid, signal.SIGKILL)
                killed.append(name)
                return

def run(pipeline, may_die=True, **more):
    name, done = pipeline.__name__.rpartition(".")[2], threading.Event()
    killer = threading.Thread(target=kill_one, args=(name, done))
    if may_die:
        killer.start()
    try:
        to = more.pop("to", f"{folder}/{name}")
        return again_if_slow(lambda: pipeline.build(spark, replace(settings, to=to, **more)).run())
    finally:
        done.set()
        if may_die:
            killer.join()

def again_if_slow(work):
    # Spark gives a process of its driver ten seconds to start, which on a busy machine are few.
    for _ in range(3):
        try:
            return work()
        except PySparkException as error:
            if "failed to connect back" not in str(error):
                raise
    return work()

def numbers(name):
    return sorted(int(row.key) for row in read_table(spark, f"{folder}/{name}").collect())

conf = {"spark.executor.memory": "512m"}
with session("cluster", master=master, conf=conf) as spark:
    everything = list(range(records))
    for pipeline in (archive, dedup, join, latest):
        run(pipeline)
        assert numbers(pipeline.__name__.rpartition(".")[2]) == everything, pipeline
    run(query, sql="SELECT key FROM orders")
    assert numbers("query") == everything
    run(volume)
    assert read_table(spark, f"{folder}/volume").groupBy().sum("records").first()[0] == records
    run(window)
    opened = spark.read.parquet(f"{folder}/window/_open")
    assert opened.groupBy().sum("records").first()[0] == records
    run(decode)
    good = numbers("decode/source=topic")
    assert good == [number for number in everything if number % 5]
    run(redrive, to=f"{folder}/decode", schema="n STRING")
    assert run(audit).findings == []
    run(compact)
    assert run(audit).findings == []
    facts = run(lag).facts
    assert facts["groups"] >= 1, facts
    assert facts["behind"] >= records // 2 - 10, facts
    # A task that is repeated writes again, and it says so: nobody dies here.
    run(restore, may_die=False, topic="again")
    print("killed in", *killed)
"""


def test_every_pipeline_outlives_an_executor(tmp_path: Path) -> None:
    need_a_whole_java()
    with Broker() as broker, standalone_cluster(tmp_path / "work") as master:
        broker.create_topic("orders", partitions=2, config={"retention.ms": "-1"})
        for number in range(RECORDS):
            value = b'{"n": %d}' if number % 5 else b"none %d"
            broker.produce("orders", value % number, key=b"%d" % number, partition=number % 2)
        reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
        reader.commit(offsets=[TopicPartition("orders", 0, 10)], asynchronous=False)
        reader.close()
        arguments = [broker.bootstrap_servers, master, str(tmp_path), str(RECORDS)]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            env=bare_environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        # The letters of a batch whose executor was killed are a transaction that was aborted.
        dead = broker.records("dead", read_committed=True)
        letters = sorted(int(record.key or b"") for record in dead)
        again = sorted(int(record.key or b"") for record in broker.records("again"))
    assert len(done.stdout.split("killed in")[1].split()) >= 6, done.stdout
    # Once from `decode`, and once from `redrive`, which can read them no better.
    assert letters == sorted([*range(0, RECORDS, 5)] * 2)
    assert again == list(range(RECORDS))
