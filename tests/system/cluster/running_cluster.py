"""Three broker processes on an ensemble of three ZooKeepers, with proxies between them all."""

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from tests.deadlines import deadline_ms, deadline_s
from tests.system.cluster import faulty_machine
from tests.system.cluster.history import Load, read_log, running
from tests.system.cluster.polling import PATIENCE_S, until
from tests.system.cluster.proxies import ZOOKEEPER, Switchboard, broker, has_port
from tests.system.cluster.transactions import TransactionalLoad
from tests.system.processes import fsck
from tools.free_port import free_port
from tools.zookeeper_node import ZooKeeperEnsemble

from odradek.cli.local_cluster.health import await_brokers
from odradek.client.core.admin_types import ConfigChange, ConfigResource
from odradek.client.sync import Admin
from odradek.testing.processes import BrokerProcess

BROKERS: Final = (1, 2, 3)
SESSION_MS: Final = deadline_ms(2_000)
PARTITIONS: Final = 3
SETTINGS: Final = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "zookeeper.connection.timeout.ms": 30_000,
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.state.log.num.partitions": 3,
    # Some records of the tests of other suites are of 1970.
    "log.retention.ms": -1,
    "replica.lag.time.max.ms": deadline_ms(1_500),
    "replica.fetch.wait.max.ms": 200,
    "replica.fetch.backoff.ms": 100,
    "replica.socket.timeout.ms": deadline_ms(2_000),
    "controller.socket.timeout.ms": deadline_ms(2_000),
    "controlled.shutdown.retry.backoff.ms": 300,
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
}
STOOD_STILL: Final = r"The ZooKeeper session has ended: this process stood still for \d+ ms"
EXPIRED: Final = "The ZooKeeper session has ended: it has expired"


class LoggedBroker(BrokerProcess):
    """A broker on a faulty machine, whose log can be read from some moment on. It has two disks, of
    which the second one can fail."""

    def __init__(self, home: Path, broker_id: int, port: int, *arguments: str) -> None:
        self.bad_disk: Final = home / f"broker-{broker_id}{faulty_machine.BAD_DISK}"
        self.disks: Final = (home / f"broker-{broker_id}", self.bad_disk)
        self.log: Final = home / f"broker-{broker_id}.log"
        machine = [sys.executable, faulty_machine.__file__]
        directories = ",".join(map(str, self.disks))
        super().__init__(directories, *arguments, port=port, log=self.log, within=machine)
        self._mark = 0

    def signal(self, number: int) -> None:
        """Makes something happen to the machine; see `faulty_machine`."""
        os.kill(self.pid, number)

    def mark(self) -> None:
        """The records in the log so far are of the past."""
        self._mark = self.log.stat().st_size if self.log.exists() else 0

    def said(self) -> str:
        """The log since the mark."""
        return self.log.read_bytes()[self._mark :].decode(errors="replace")

    def await_saying(self, text: str) -> None:
        """Returns when the log has a line since the mark in which the pattern is found."""
        pattern = re.compile(text)
        until(lambda: pattern.search(self.said()), f"{self.log.name} says {text!r}")


class RunningCluster:
    """The processes, the ways between them, and a look into ZooKeeper. `settings` are those of the
    brokers that come on top, or in place of `SETTINGS`."""

    def __init__(self, home: Path, settings: Mapping[str, object] | None = None) -> None:
        self.home: Final = home
        self._settings: Final = {**SETTINGS, **(settings or {})}
        self.ensemble: Final = ZooKeeperEnsemble(home, 3)
        self.board: Final = Switchboard()
        self.brokers: dict[int, LoggedBroker] = {}
        self._resources: Final = contextlib.ExitStack()
        self._zookeeper: KazooClient | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as starting:
            starting.enter_context(self.board)
            self.ensemble.start()
            starting.callback(self.ensemble.stop)
            self._zookeeper = KazooClient(self.ensemble.connect, timeout=deadline_s(10))
            self._zookeeper.start(timeout=PATIENCE_S)
            starting.callback(self._zookeeper.close)
            starting.callback(self._zookeeper.stop)
            for broker_id in BROKERS:
                self.brokers[broker_id] = self._make(broker_id)
                starting.callback(self.brokers[broker_id].kill)
            self.restore()
            self._resources.enter_context(starting.pop_all())
        return self

    def __exit__(self, *error: object) -> None:
        self._resources.close()

    def _make(self, broker_id: int) -> LoggedBroker:
        def own(_: int) -> str:
            return broker(broker_id)

        port, internal = free_port(), free_port()
        ways = ",".join(
            f"127.0.0.1:{self.board.forward(ZOOKEEPER, node.port, own)}"
            for node in self.ensemble.nodes
        )
        proxy = self.board.forward(broker(broker_id), internal, self._speaker)
        advertised = f"PLAINTEXT://127.0.0.1:{port},INTERNAL://127.0.0.1:{proxy}"
        arguments = ["--zookeeper", ways, "--broker-id", str(broker_id)]
        arguments += ["--listener", f"INTERNAL://127.0.0.1:{internal}"]
        for name, value in {**self._settings, "advertised.listeners": advertised}.items():
            arguments += ["--set", f"{name}={value}"]
        return LoggedBroker(self.home, broker_id, port, *arguments)

    def _speaker(self, port: int) -> str:
        """The broker that opened a connection from a port, or somebody else."""
        for broker_id, each in self.brokers.items():
            if each.is_running and has_port(each.pid, port):
                return broker(broker_id)
        return "client"

    @property
    def bootstrap_servers(self) -> str:
        """Where clients reach the brokers, those that are away among them."""
        return ",".join(f"127.0.0.1:{each.port}" for each in self.brokers.values())

    # What ZooKeeper knows

    @property
    def zookeeper(self) -> KazooClient:
        assert self._zookeeper is not None, "it is entered"
        return self._zookeeper

    def _node(self, path: str) -> dict[str, object]:
        try:
            found = json.loads(self.zookeeper.get(path)[0])
        except (KazooException, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def controller(self) -> int:
        """The id of the controller; waits for there to be one."""
        found: list[dict[str, object]] = []

        def is_there() -> bool:
            found.append(self._node("/controller"))
            return bool(found[-1])

        until(is_there, "there is a controller")
        return int(str(found[-1]["brokerid"]))

    def state(self, topic: str, partition: int = 0) -> tuple[int, set[int]]:
        """The leader of a partition (-1: none) and its ISR."""
        state = self._node(f"/brokers/topics/{topic}/partitions/{partition}/state")
        if not state:
            return -1, set()
        return int(str(state["leader"])), set(state["isr"])  # type: ignore[call-overload]

    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader of a partition."""
        return self.state(topic, partition)[0]

    def led_by(self, broker_id: int, topic: str) -> list[int]:
        """The partitions that a broker leads."""
        return [each for each in range(PARTITIONS) if self.leader(topic, each) == broker_id]

    def another_leader(self) -> int:
        """A broker that leads and is not the controller; with one partition each, all lead."""
        controller = self.controller()
        return next(each for each in BROKERS if each != controller)

    def await_others_lead(self, broker_id: int, topic: str) -> None:
        """Returns when every partition of a topic is led, and none by that broker."""
        until(
            lambda: not self.led_by(broker_id, topic) and not self.led_by(-1, topic),
            f"broker {broker_id} leads nothing of {topic}",
        )

    def registered(self) -> set[int]:
        """The ids of the brokers that live."""
        return {int(each) for each in self.zookeeper.get_children("/brokers/ids")}

    # Changing things

    def create(self, topic: str, partitions: int = PARTITIONS, **config: str) -> None:
        """Makes a topic; returns when all its replicas are in sync."""
        new = NewTopic(
            topic, partitions, 3, config={k.replace("_", "."): v for k, v in config.items()}
        )
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        admin.create_topics([new])[topic].result(PATIENCE_S)
        self.await_in_sync(topic, partitions)

    def configure(self, topic: str, name: str, value: str) -> None:
        """Sets something of a topic, or of all brokers where none is named."""
        resource = ConfigResource.topic(topic) if topic else ConfigResource.broker(None)
        with Admin(self.bootstrap_servers) as admin:
            outcome = admin.alter_configs({resource: [ConfigChange(name, value)]})
        assert outcome == {resource: None}

    def await_in_sync(self, topic: str, partitions: int = PARTITIONS) -> None:
        """Returns when every replica of a topic is in sync, and somebody leads."""

        def states() -> list[tuple[int, set[int]]]:
            return [self.state(topic, each) for each in range(partitions)]

        def are_in_sync() -> bool:
            return all(leader in isr and isr == set(BROKERS) for leader, isr in states())

        until(are_in_sync, f"all replicas of {topic} are in sync", states)

    def restore(self) -> None:
        """Starts what is not there; returns when all brokers are registered."""
        for node in self.ensemble.nodes:
            if not node.is_running:
                node.start()
        away = [each for each in self.brokers.values() if not each.is_running]
        with ThreadPoolExecutor(3) as threads:
            for each in [threads.submit(each.start) for each in away]:
                each.result()
        asyncio.run(await_brokers(self.bootstrap_servers.split(","), BROKERS, PATIENCE_S))

    def await_same_logs(self, topic: str, partitions: int = PARTITIONS) -> None:
        """Returns when the files of all replicas are the same, byte by byte."""

        def contents(broker_id: int, partition: int) -> bytes:
            found = [
                segment
                for disk in self.brokers[broker_id].disks
                for segment in (disk / f"{topic}-{partition}").glob("*.log")
            ]
            return b"".join(each.read_bytes() for each in sorted(found))

        for partition in range(partitions):
            until(
                lambda: len({contents(each, partition) for each in BROKERS}) == 1,  # noqa: B023
                f"all replicas of {topic}-{partition} have the same records",
            )

    @contextlib.contextmanager
    def load(self, topic: str, **config: str) -> Iterator[Load]:
        """Clients at work on a topic, whose history is checked when the block is left: nothing may
        have failed, and nothing be wrong."""
        transactional = f"{topic}-transactions"
        for name in (topic, transactional):
            self.create(name, **config)
        for each in self.brokers.values():
            each.mark()
        with (
            running(TransactionalLoad(self.bootstrap_servers, transactional, PARTITIONS)) as (
                transactions
            ),
            running(Load(self.bootstrap_servers, topic, PARTITIONS)) as load,
        ):
            load.await_progress()
            transactions.await_progress()
            yield load
            load.await_progress()
            transactions.await_progress()
            load.finish_writing()
            transactions.finish()
            for name in (topic, transactional):
                self.await_in_sync(name)
                self.await_same_logs(name)
            log = read_log(self.bootstrap_servers, topic, PARTITIONS)
            load.finish_reading({partition: len(records) for partition, records in log.items()})
        assert not load.history.failed, load.history.failed[:5]
        findings = load.findings(log) + transactions.findings()
        assert not findings, "\n".join(findings[:20])

    def stop_soundly(self) -> None:
        """Ends all brokers in order, and has a look at what they leave."""
        with ThreadPoolExecutor(3) as threads:
            statuses = list(threads.map(lambda each: each.stop(), self.brokers.values()))
        assert statuses == [0, 0, 0]
        for each in self.brokers.values():
            for disk in each.disks:
                findings = fsck(disk)
                assert not findings, findings
            assert "Traceback" not in each.log.read_text()
