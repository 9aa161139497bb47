"""Source, sink and pipelines for a client of Spark Connect, which has no JVM of its own.

If this fails, a job works on its author's machine and not on the platform that it is for.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from odradek import Broker

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

TIMEOUT_S = 300
PROGRAM = """
import sys
from pyspark.sql import SparkSession
from pyspark_odradek.pipelines import archive, audit, dedup, window
from pyspark_odradek.pipelines.settings import PipelineSettings

servers, target = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert not isinstance(spark, SparkSession)
frame = (
    spark.read.format("odradek").option("kafka.bootstrap.servers", servers)
    .option("subscribe", "t").load()
)
print("rows", frame.count())
settings = PipelineSettings(servers, "t", to=target, source=target)
print("archived", archive.build(spark, settings).run().records)
outcome = audit.build(spark, settings).run()
print("audited", outcome.facts["records"], outcome.findings)
for pipeline in (dedup, window):
    place = target + "-" + pipeline.__name__
    more = PipelineSettings(servers, "t", to=place, by="value")
    print("taken", pipeline.build(spark, more).run().records)
writer = frame.write.format("odradek").mode("append").option("kafka.bootstrap.servers", servers)
writer.option("topic", "t").save()
print("written", frame.sparkSession.read.format("odradek")
      .option("kafka.bootstrap.servers", servers).option("subscribe", "t").load().count())
spark.stop()
"""


def test_a_client_without_a_jvm_reads_archives_audits_and_writes(tmp_path: Path) -> None:
    if find_spec("grpc") is None:
        pytest.skip("PEER MISSING, NOT TESTED: pip install 'pyspark[connect]'")
    with Broker() as broker:
        broker.create_topic("t", partitions=2, config={"retention.ms": "-1"})
        broker.produce_many("t", [b"%d" % number for number in range(100)])
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, broker.bootstrap_servers, str(tmp_path / "archive")],
            # Spark takes any free port for its server then, not always the same.
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    printed = [line for line in done.stdout.splitlines() if line.split(" ")[0].isalpha()]
    assert printed == [
        "rows 100", "archived 100", "audited 100 []", "taken 100", "taken 100", "written 200",
    ], done.stderr  # fmt: skip
