"""Source, sink and pipelines for a client of Spark Connect, which has no JVM of its own.

If this fails, a job works on its author's machine and not on the platform that it is for.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.deadlines import deadline_s

from odradek import Broker

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

TIMEOUT_S = deadline_s(600)
PROGRAM = """
import sys
from pyspark.sql import SparkSession
from pyspark_odradek.pipelines import (
    archive, audit, compact, decode, dedup, join, lag, latest, query, redrive, restore, volume,
    window,
)
from pyspark_odradek.pipelines.running.settings import PipelineSettings

servers, folder = sys.argv[1:]
builder = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2")
spark = builder.getOrCreate()
assert not isinstance(spark, SparkSession)

def run(pipeline, topic="t", **settings):
    # Where it writes to, if it does.
    name = pipeline.__name__.rpartition(".")[2]
    settings = PipelineSettings(servers, topic, **{"to": f"{folder}/{name}", **settings})
    return pipeline.build(spark, settings).run()

def rows(name):
    return spark.read.parquet(f"{folder}/{name}").count()

frame = (
    spark.read.format("odradek").option("kafka.bootstrap.servers", servers)
    .option("subscribe", "t").load()
)
print("rows", frame.count())
print("archive", run(archive).records)
outcome = run(audit, source=f"{folder}/archive")
print("audit", outcome.facts["records"], outcome.findings)
print("compact", run(compact, source=f"{folder}/archive").facts["files after"])
print("restore", run(restore, "again", source=f"{folder}/archive").facts["records"])
print("dedup", run(dedup, by="value").records, rows("dedup"))
print("window", run(window, by="value").records, rows("window/late"))
run(volume)
print("volume", spark.read.parquet(f"{folder}/volume").selectExpr("sum(records)").first()[0])
print("join", run(join, other="u", by="value").records, rows("join"))
print("decode", run(decode, schema="n LONG").records)
print("redrive", run(redrive, schema="n LONG", to=f"{folder}/decode").records)
typed = spark.read.parquet(f"{folder}/decode")
print("typed", typed.count(), typed.selectExpr("sum(value.n)").first()[0])
print("latest", run(latest).facts["offsets read"], rows("latest"))
run(query, sql="SELECT value FROM t WHERE partition = 1")
print("query", rows("query"))
print("lag", run(lag).findings)
writer = frame.write.format("odradek").mode("append").option("kafka.bootstrap.servers", servers)
writer.option("topic", "t").save()
print("written", frame.sparkSession.read.format("odradek")
      .option("kafka.bootstrap.servers", servers).option("subscribe", "t").load().count())
spark.stop()
"""
PRINTED = """
rows 100
archive 100
audit 100 []
compact 1
restore 100
dedup 100 100
window 100 0
volume 100
join 200 100
decode 100
redrive 0
typed 100 4950
latest 100 2
query 50
lag []
written 200
"""


def test_a_client_without_a_jvm_reads_writes_and_runs_every_pipeline(tmp_path: Path) -> None:
    if find_spec("grpc") is None:
        pytest.skip("PEER MISSING, NOT TESTED: pip install 'pyspark[connect]'")
    with Broker() as broker:
        for topic in ("t", "u"):
            broker.create_topic(topic, partitions=2, config={"retention.ms": "-1"})
            for partition in (0, 1):
                values = [b'{"n": %d}' % number for number in range(partition, 100, 2)]
                broker.produce_many(topic, [(b"k%d" % partition, v) for v in values], partition)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, broker.bootstrap_servers, str(tmp_path)],
            # Spark takes any free port for its server then, not always the same.
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    printed = [line for line in done.stdout.splitlines() if line.split(" ")[0].isalpha()]
    assert printed == PRINTED.split("\n")[1:-1], done.stderr
