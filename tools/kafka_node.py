"""Starts one Apache Kafka (KRaft) from its Maven artifacts, as a peer and an oracle.

The node lives on free ports in a temporary folder, is stopped by its process id, and leaves
nothing behind. A freshly started JVM is slow: warm it up before comparing anything with it.
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

from tools import peers

START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 30
CLUSTER_ID = "T2RyYWRla1BlZXJOb2RlMQ"


@dataclass(frozen=True)
class KafkaNode:
    """A running node: where clients reach it, its process, and its data directory."""

    bootstrap_servers: str
    pid: int
    data_dir: Path


@contextlib.contextmanager
def kafka_node(
    heap: str = "1g", data_dir: Path | None = None, settings: dict[str, str] | None = None
) -> Iterator[KafkaNode]:
    """A Kafka node for the length of a `with` block.

    `data_dir` is kept when given (formatted unless it already is one), else it is temporary.
    Raises `peers.PeerUnavailable` when its jars cannot be had or it does not start.
    """
    home = Path(tempfile.mkdtemp(prefix="kafka-node-"))
    data = data_dir or home / "data"
    process = None
    try:
        port, controller_port = _free_port(), _free_port()
        properties = home / "server.properties"
        lines = _properties(port, controller_port, data) | (settings or {})
        properties.write_text("".join(f"{k}={v}\n" for k, v in lines.items()), encoding="utf-8")
        java = [peers.java(), f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", "-server"]
        class_path = ["-cp", os.pathsep.join(map(str, peers.kafka_jars()))]
        storage = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", CLUSTER_ID]
        with (home / "log").open("wb") as log:
            subprocess.run(
                [*java[:1], *class_path, *storage, "-c", str(properties)],
                stdout=log,
                stderr=log,
                check=False,
            )
            process = subprocess.Popen(
                [*java, "-XX:MaxGCPauseMillis=20", *class_path, "kafka.Kafka", str(properties)],
                stdout=log,
                stderr=log,
            )
        _await_started(process, home / "log", port)
        yield KafkaNode(f"127.0.0.1:{port}", process.pid, data)
    finally:
        if process is not None:
            _stop(process)
        shutil.rmtree(home, ignore_errors=True)


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
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_started(process: "subprocess.Popen[bytes]", log: Path, port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    words = log.read_text(errors="replace").strip().splitlines()[-5:]
    raise peers.PeerUnavailable("Apache Kafka did not start: " + " | ".join(words))


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
