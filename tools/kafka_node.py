"""Starts Apache Kafka from its Maven artifacts, as a peer and an oracle: one node, or three.

It is one without ZooKeeper, or the last version that could have one. The nodes live on free ports
in a temporary folder, are stopped by their process ids, and leave nothing behind. A freshly started
JVM is slow: warm it up before comparing anything with it.
"""

import contextlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from odradek.client.sync import Admin
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
_LOOK_AGAIN_S = 0.05
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
    listeners: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Iterator[KafkaNode]:
    """A Kafka node for the length of a `with` block.

    `data_dir` is kept when given (formatted unless it already is one), else it is temporary;
    `features` are levels other than the newest; `listeners` come on top of its own; `options` are
    for its JVM. Raises `peers.PeerUnavailable` when its jars cannot be had or it does not start.
    """
    with temporary_folder() as home:
        data = data_dir or home / "data"
        port, controller_port = free_port(), free_port()
        lines = _properties(port, controller_port, data) | (settings or {})
        for name in ("listeners", "advertised.listeners") if listeners else ():
            lines[name] = ",".join((lines[name], *listeners))
        properties = write_properties(home / "server.properties", lines)
        jars = peers.kafka_jars()
        _format(jars, properties, home / "log", _levels(features))
        command = [*_java(jars, heap, *options), "kafka.Kafka", properties]
        with running(JavaServer(command, home / "log", port)) as server:
            yield KafkaNode(f"127.0.0.1:{port}", server.pid, data)


@contextlib.contextmanager
def kafka_cluster(
    count: int = 3,
    heap: str = "512m",
    settings: dict[str, str] | None = None,
    features: dict[str, int] | None = None,
) -> Iterator[list[JavaServer]]:
    """Kafka nodes for the length of a `with` block, each a broker and a controller, ids from 1.

    They keep their ports and files, so that one that was stopped or killed can be started again.
    `features` and what it raises are as for `kafka_node`.
    """
    with contextlib.ExitStack() as resources:
        home = resources.enter_context(temporary_folder())
        jars = peers.kafka_jars()
        ports = [free_port() for _ in range(count)]
        controllers = [free_port() for _ in range(count)]
        voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(controllers, 1))
        nodes = []
        for node_id, port, controller in zip(range(1, count + 1), ports, controllers, strict=True):
            folder = home / str(node_id)
            folder.mkdir()
            own = {"node.id": str(node_id), "controller.quorum.voters": voters}
            lines = _properties(port, controller, folder / "data") | _cluster(count) | own
            properties = write_properties(folder / "server.properties", lines | (settings or {}))
            _format(jars, properties, folder / "log", _levels(features))
            command = [*_java(jars, heap), "kafka.Kafka", properties]
            nodes.append(JavaServer(command, folder / "log", port))
        # None of them listens before most of them run.
        with ThreadPoolExecutor(count) as pool:
            for server in pool.map(resources.enter_context, map(running, nodes)):
                assert server.pid, "it was started"
        try:
            yield nodes
        finally:
            # In order they would end one by one, and the last wait in vain for a quorum.
            for node in nodes:
                node.kill()


@contextlib.contextmanager
def zookeeper_kafka_node(
    data_dir: Path,
    heap: str = "512m",
    *,
    broker_id: int = 1,
    zookeeper: str | None = None,
    settings: dict[str, str] | None = None,
    listeners: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Iterator[KafkaNode]:
    """A Kafka 3.9 with a ZooKeeper for the length of a `with` block: one of its own, unless the
    address of another is given. `options` are for its JVM.

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
            "listeners": ",".join((f"PLAINTEXT://127.0.0.1:{port}", *listeners)),
            "log.dirs": str(data_dir),
            **_SINGLE_NODE,
            **(settings or {}),
        }
        properties = write_properties(home / "server.properties", lines)
        command = [*_java(peers.zookeeper_kafka_jars(), heap, *options), "kafka.Kafka", properties]
        server = resources.enter_context(running(JavaServer(command, home / "log", port)))
        _await_metadata(f"127.0.0.1:{port}")
        yield KafkaNode(f"127.0.0.1:{port}", server.pid, data_dir, zookeeper)


def _await_metadata(bootstrap_servers: str) -> None:
    """Waits until the broker knows of itself, by its controller. It listens before that, and
    librdkafka's admin client never asks again where it was told of no brokers."""
    deadline = time.monotonic() + START_TIMEOUT_S
    with Admin(bootstrap_servers) as admin:
        while not admin.describe_cluster().nodes:
            assert time.monotonic() < deadline, "the broker hears nothing of its controller"
            time.sleep(_LOOK_AGAIN_S)


def _java(jars: list[Path], heap: str, *options: str) -> list[str]:
    sizes = (f"-Xms{heap}", f"-Xmx{heap}")
    return java(jars, *sizes, *options, "-XX:+UseG1GC", "-server", "-XX:MaxGCPauseMillis=20")


def _levels(features: dict[str, int] | None) -> list[str]:
    return [f"--feature={name}={level}" for name, level in (features or {}).items()]


def _format(jars: list[Path], properties: str, log: Path, levels: list[str]) -> None:
    """Makes the data directory that the properties name; what goes wrong is in the log."""
    storage = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", CLUSTER_ID]
    with log.open("wb") as output:
        subprocess.run(
            [*java(jars), *storage, *levels, "-c", properties],
            stdout=output,
            stderr=output,
            timeout=START_TIMEOUT_S,
            check=False,
        )


def _cluster(count: int) -> dict[str, str]:
    """Where a cluster's internal topics differ from those of a single node."""
    internal = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    return {f"{name}.replication.factor": str(count) for name in internal}


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
