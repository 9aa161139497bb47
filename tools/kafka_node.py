"""Starts one Apache Kafka from its Maven artifacts, as a peer and an oracle.

It is one without ZooKeeper, or the last version that could have one. The node lives on free ports
in a temporary folder, is stopped by its process id, and leaves nothing behind. A freshly started
JVM is slow: warm it up before comparing anything with it.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools import peers
from tools.free_port import free_port
from tools.java_server import (
    START_TIMEOUT_S,
    JavaServer,
    java,
    running,
    temporary_folder,
    write_properties,
)
from tools.zookeeper_node import zookeeper_ensemble

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
    with temporary_folder() as home:
        data = data_dir or home / "data"
        port, controller_port = free_port(), free_port()
        lines = _properties(port, controller_port, data) | (settings or {})
        properties = write_properties(home / "server.properties", lines)
        jars = peers.kafka_jars()
        storage = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", CLUSTER_ID]
        levels = [f"--feature={name}={level}" for name, level in (features or {}).items()]
        with (home / "log").open("wb") as log:
            subprocess.run(
                [*java(jars), *storage, *levels, "-c", properties],
                stdout=log,
                stderr=log,
                timeout=START_TIMEOUT_S,
                check=False,
            )
        command = [*_java(jars, heap), "kafka.Kafka", properties]
        with running(JavaServer(command, home / "log", port)) as server:
            yield KafkaNode(f"127.0.0.1:{port}", server.pid, data)


@contextlib.contextmanager
def zookeeper_kafka_node(
    data_dir: Path,
    heap: str = "512m",
    *,
    broker_id: int = 1,
    zookeeper: str | None = None,
    settings: dict[str, str] | None = None,
) -> Iterator[KafkaNode]:
    """A Kafka 3.9 with a ZooKeeper for the length of a `with` block: one of its own, unless the
    address of another is given.

    `data_dir` is kept; what a ZooKeeper of its own holds is not, so the node cannot be started on
    it again then. Raises `peers.PeerUnavailable` as `kafka_node` does.
    """
    with contextlib.ExitStack() as resources:
        home = resources.enter_context(temporary_folder())
        if zookeeper is None:
            zookeeper = resources.enter_context(zookeeper_ensemble(1, home)).connect
        port = free_port()
        lines = {
            "broker.id": str(broker_id),
            "zookeeper.connect": zookeeper,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(data_dir),
            **_SINGLE_NODE,
            **(settings or {}),
        }
        properties = write_properties(home / "server.properties", lines)
        command = [*_java(peers.zookeeper_kafka_jars(), heap), "kafka.Kafka", properties]
        server = resources.enter_context(running(JavaServer(command, home / "log", port)))
        yield KafkaNode(f"127.0.0.1:{port}", server.pid, data_dir, zookeeper)


def _java(jars: list[Path], heap: str) -> list[str]:
    sizes = (f"-Xms{heap}", f"-Xmx{heap}")
    return java(jars, *sizes, "-XX:+UseG1GC", "-server", "-XX:MaxGCPauseMillis=20")


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
