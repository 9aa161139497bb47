"""Starts one Apache Kafka from its Maven artifacts, as a peer and an oracle.

It is one without ZooKeeper, or the last version that could have one. The node lives on free ports
in a temporary folder, is stopped by its process id, and leaves nothing behind. A freshly started
JVM is slow: warm it up before comparing anything with it.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from odradek.testing.processes import ProcessFailed, ServerProcess
from tools import peers
from tools.free_port import free_port

START_TIMEOUT_S = 180
CLUSTER_ID = "T2RyYWRla1BlZXJOb2RlMQ"
_SINGLE_NODE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass(frozen=True)
class KafkaNode:
    """A running node: where clients reach it, its process, its data directory, its ZooKeeper."""

    bootstrap_servers: str
    pid: int
    data_dir: Path
    zookeeper: str = ""


@contextlib.contextmanager
def kafka_node(
    heap: str = "1g",
    data_dir: Path | None = None,
    settings: dict[str, str] | None = None,
    features: dict[str, int] | None = None,
) -> Iterator[KafkaNode]:
    """A Kafka node for the length of a `with` block.

    `data_dir` is kept when given (formatted unless it already is one), else it is temporary;
    `features` are levels other than the newest. Raises `peers.PeerUnavailable` when its jars
    cannot be had or it does not start.
    """
    with _temporary_folder() as home:
        data = data_dir or home / "data"
        port, controller_port = free_port(), free_port()
        lines = _properties(port, controller_port, data) | (settings or {})
        properties = _write_properties(home / "server.properties", lines)
        jars = peers.kafka_jars()
        storage = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", CLUSTER_ID]
        levels = [f"--feature={name}={level}" for name, level in (features or {}).items()]
        with (home / "log").open("wb") as log:
            subprocess.run(
                [*_java(jars), *storage, *levels, "-c", properties],
                stdout=log,
                stderr=log,
                timeout=START_TIMEOUT_S,
                check=False,
            )
        with _running([*_java(jars, heap), "kafka.Kafka", properties], home / "log", port) as pid:
            yield KafkaNode(f"127.0.0.1:{port}", pid, data)


@contextlib.contextmanager
def zookeeper_kafka_node(data_dir: Path, heap: str = "512m") -> Iterator[KafkaNode]:
    """A Kafka 3.9 with a ZooKeeper of its own for the length of a `with` block.

    `data_dir` is kept; what ZooKeeper holds is not, so the node cannot be started on it again.
    Raises `peers.PeerUnavailable` as `kafka_node` does.
    """
    with _temporary_folder() as home, _zookeeper(home) as zookeeper:
        port = free_port()
        lines = {
            "broker.id": "1",
            "zookeeper.connect": zookeeper,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(data_dir),
            **_SINGLE_NODE,
        }
        properties = _write_properties(home / "server.properties", lines)
        java = _java(peers.zookeeper_kafka_jars(), heap)
        with _running([*java, "kafka.Kafka", properties], home / "log", port) as pid:
            yield KafkaNode(f"127.0.0.1:{port}", pid, data_dir, zookeeper)


@contextlib.contextmanager
def _zookeeper(home: Path) -> Iterator[str]:
    """A ZooKeeper that keeps its files in `home`; where clients reach it."""
    port = free_port()
    lines = {
        "dataDir": str(home / "zookeeper"),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
    }
    properties = _write_properties(home / "zoo.cfg", lines)
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    java = [*_java(peers.zookeeper_jars(), "64m"), main, properties]
    with _running(java, home / "zookeeper.log", port):
        yield f"127.0.0.1:{port}"


class JavaServer(ServerProcess):
    """A server on the JVM, which can serve when something listens on `port`."""

    # Tests kill it by its process id, too.
    orderly = (0, 128 + signal.SIGTERM, -signal.SIGKILL)

    def __init__(self, command: list[str], log: Path, port: int) -> None:
        super().__init__(command, log)
        self._port = port

    def await_ready(self, process: "subprocess.Popen[str]") -> None:
        """Looks again and again: it does not say so."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)):
                return
            time.sleep(0.2)
        raise self.failure("Apache Kafka did not start")


@contextlib.contextmanager
def _running(command: list[str], log: Path, port: int) -> Iterator[int]:
    """The process id of a server that listens on `port`; it is stopped behind the block."""
    server = JavaServer(command, log, port)
    try:
        server.start()
    except ProcessFailed as error:
        raise peers.PeerUnavailable(str(error)) from None
    try:
        yield server.pid
    finally:
        server.__exit__(None, None, None)


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="kafka-node-"))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _java(jars: list[Path], heap: str | None = None) -> list[str]:
    """The words that a class's name goes behind; with a `heap` it is a server."""
    sizes = [f"-Xms{heap}", f"-Xmx{heap}"] if heap else []
    server = [*sizes, "-XX:+UseG1GC", "-server", "-XX:MaxGCPauseMillis=20"] if heap else []
    return [peers.java(), *server, "-cp", os.pathsep.join(map(str, jars))]


def _write_properties(path: Path, lines: dict[str, str]) -> str:
    path.write_text("".join(f"{k}={v}\n" for k, v in lines.items()), encoding="utf-8")
    return str(path)


def _properties(port: int, controller_port: int, data: Path) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data),
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        **_SINGLE_NODE,
    }
