"""The source on executors that are processes of their own, without an activated environment."""

import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deadlines import deadline_s
from tests.system.spark.standalone import (
    SPARK_HOME,
    bare_environment,
    need_a_whole_java,
    standalone_cluster,
)

import odradek
import pyspark_odradek
from odradek import Broker

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

TIMEOUT_S = deadline_s(300)
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
# As a user's job has it: master, archives and Python are the command's.
SHIPPED = f"""
import os, sys
from pyspark.sql import SparkSession
{QUESTION}
def package(_):
    import odradek
    return [os.path.dirname(odradek.__file__)]
spark = SparkSession.builder.getOrCreate()
ask(spark)
[here], there = package(0), spark.sparkContext.range(8).mapPartitions(package).collect()
print("shipped", here not in there and all("/env/lib/" in place for place in there))
spark.stop()
"""


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """Spark's own cluster of two workers; gives its address."""
    with standalone_cluster(tmp_path / "work") as address:
        yield address


def asked(program: str, master: str) -> str:
    """The output of a program that asks a topic, in a session on this master."""
    return printed_by([sys.executable, "-c", program], [master], bare_environment())


def printed_by(
    command: list[str], more: list[str], environment: dict[str, str], folder: Path | None = None
) -> str:
    """The output of a command that asks a topic of a thousand records, in four tasks."""
    with Broker() as broker:
        broker.create_topic("t")
        broker.produce_many("t", [b"%d" % number for number in range(1000)])
        done = subprocess.run(
            [*command, broker.bootstrap_servers, *more],
            env=environment,
            cwd=folder,
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
    need_a_whole_java()
    printed = asked(THEIRS, standalone)
    assert "rows 1000 499500" in printed
    assert "workers 2" in printed


def test_executors_get_the_package_in_a_packed_environment(standalone: str, tmp_path: Path) -> None:
    """By the commands of docs/spark/reference.md; without them the executors have no package."""
    need_a_whole_java()
    pack(tmp_path)
    (tmp_path / "job.py").write_text(SHIPPED)
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", standalone]
    submit += ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1"]
    submit += ["--conf", "spark.ui.enabled=false", "--conf", "spark.executorEnv.PYTHONPATH="]
    environment = {**bare_environment(), "PYSPARK_PYTHON": "./env/bin/python", "PYTHONPATH": ""}
    command = [*submit, "--archives", "env.tar.gz#env", "job.py"]
    printed = printed_by(command, [], environment, tmp_path)
    assert "rows 1000 499500" in printed
    assert "workers 2" in printed
    assert "shipped True" in printed


def pack(folder: Path) -> None:
    """An environment `env` with this package, and `env.tar.gz` as `venv-pack` would make it.

    What ours needs comes from the environment of the tests.
    """
    environment = folder / "env"
    venv.create(environment, symlinks=True)
    [site] = environment.glob("lib/python*/site-packages")
    without = shutil.ignore_patterns("*.so", "__pycache__")
    for package in (odradek, pyspark_odradek):
        shutil.copytree(package.__path__[0], site / package.__name__, ignore=without)
    others = [path for path in sys.path if path.endswith("site-packages")]
    (site / "others.pth").write_text("\n".join(others))
    with tarfile.open(folder / "env.tar.gz", "w:gz", compresslevel=1) as archive:
        for path in environment.iterdir():
            archive.add(path, path.name)
