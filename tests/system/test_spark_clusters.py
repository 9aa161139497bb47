"""The source on executors that are processes of their own, without an activated environment."""

import os
import subprocess
import sys

import pytest

from odradek import Broker

TIMEOUT_S = 300
PROGRAM = """
import sys
from pyspark_odradek import session

with session(master="local-cluster[2,1,640]", conf={"spark.executor.memory": "512m"}) as spark:
    frame = (
        spark.read.format("odradek")
        .option("kafka.bootstrap.servers", sys.argv[1])
        .option("subscribe", "t")
        .option("minPartitions", "4")
        .load()
    )
    print("rows", frame.count(), frame.selectExpr("sum(offset)").first()[0])
"""


@pytest.mark.slow
@pytest.mark.xdist_group("jvm")
def test_two_workers_read_without_an_activated_environment() -> None:
    """Workers would be started with another Python, or not at all: DATA_SOURCE_NOT_FOUND."""
    kept = ("HOME", "JAVA_HOME", "PYTHONPATH", "ODRADEK_PURE")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment["PATH"] = "/usr/local/bin:/usr/bin:/bin"
    with Broker() as broker:
        broker.create_topic("t")
        broker.produce_many("t", [b"%d" % number for number in range(1000)])
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, broker.bootstrap_servers],
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "rows 1000 499500" in done.stdout
