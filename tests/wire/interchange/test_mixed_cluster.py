"""One cluster of an Apache Kafka 3.9 and two brokers of ours, who follow and command each other."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import pytest

pytest.importorskip("kazoo")

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.deadlines import deadline_s
from tests.system.cluster.history import Load, read_log, running
from tests.system.cluster.polling import until
from tools.free_port import free_port
from tools.kafka_node import KafkaNode, zookeeper_kafka_node
from tools.peers import PeerUnavailable
from tools.zookeeper_node import zookeeper_ensemble

from odradek.client import Admin
from odradek.client.core.admin_types import NewTopic
from odradek.model import TopicPartition
from odradek.testing.processes import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

T = TypeVar("T")
KAFKA, FIRST, SECOND = 1, 2, 3
TOPIC: Final = "shared"
# Each broker leads one, and follows the two others.
LAID: Final = {0: [KAFKA, FIRST, SECOND], 1: [FIRST, SECOND, KAFKA], 2: [SECOND, KAFKA, FIRST]}
SETTINGS: Final = {
    "zookeeper.session.timeout.ms": "6000",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": "5000",
}


class Site:
    """The brokers, and what ZooKeeper has of them."""

    def __init__(self, connect: str, home: Path) -> None:
        self.connect = connect
        self.home = home
        self.zookeeper = KazooClient(connect, timeout=deadline_s(10))
        self.ours = {broker_id: self._ours(broker_id) for broker_id in (FIRST, SECOND)}

    def _ours(self, broker_id: int) -> BrokerProcess:
        flags = ["--zookeeper", self.connect, "--broker-id", str(broker_id)]
        flags += [flag for each in SETTINGS.items() for flag in ("--set", "=".join(each))]
        data, log = self.home / f"ours-{broker_id}", self.home / f"ours-{broker_id}.log"
        return BrokerProcess(data, *flags, port=free_port(), log=log)

    @contextlib.contextmanager
    def kafka(self) -> Iterator[KafkaNode]:
        data = self.home / "kafka"
        with zookeeper_kafka_node(
            data, broker_id=KAFKA, zookeeper=self.connect, settings=SETTINGS
        ) as node:
            yield node

    @property
    def servers(self) -> str:
        """Where ours listen; they tell where the other is."""
        return ",".join(each.bootstrap_servers for each in self.ours.values())

    def ask(self, call: Callable[[Admin], Awaitable[T]]) -> T:
        async def asked() -> T:
            async with Admin(self.servers) as admin:
                return await call(admin)

        return asyncio.run(asked())

    def state(self, partition: int) -> tuple[int, set[int]]:
        """The leader and the ISR."""
        path = f"/brokers/topics/{TOPIC}/partitions/{partition}/state"
        try:
            state = json.loads(self.zookeeper.get(path)[0])
        except NoNodeError:
            return -1, set()
        return state["leader"], set(state["isr"])

    def states(self) -> list[tuple[int, set[int]]]:
        return [self.state(each) for each in LAID]

    def controller(self) -> int:
        try:
            return int(json.loads(self.zookeeper.get("/controller")[0])["brokerid"])
        except NoNodeError:
            return -1

    def await_in_sync(self, *brokers: int) -> None:
        """Returns when these are the replicas in sync of every partition, and one of them leads."""

        def are_in_sync() -> bool:
            return all(isr == set(brokers) and leader in isr for leader, isr in self.states())

        until(are_in_sync, f"{brokers} are in sync", self.states)

    def elect_preferred(self) -> None:
        """Returns when every partition is led by its first replica."""
        outcomes = self.ask(lambda admin: admin.elect_leaders())
        assert not any(outcomes.values()), outcomes
        wanted = [replicas[0] for replicas in LAID.values()]
        until(lambda: [leader for leader, _ in self.states()] == wanted, "they lead", self.states)

    def reassign(self, *replicas: int) -> None:
        """Moves partition 0; returns when it has just these replicas, in sync."""
        where = TopicPartition(TOPIC, 0)
        begun = self.ask(lambda admin: admin.alter_partition_reassignments({where: replicas}))
        assert begun == {where: None}
        until(lambda: self.state(0)[1] == set(replicas), "they are in sync", self.states)
        until(
            lambda: not self.ask(lambda admin: admin.list_partition_reassignments([where])),
            "the reassignment is over",
        )


@contextlib.contextmanager
def a_site(home: Path) -> Iterator[Site]:
    with zookeeper_ensemble(1) as ensemble:
        site = Site(ensemble.connect, home)
        try:
            site.zookeeper.start(30)
            yield site
        finally:
            for each in site.ours.values():
                each.kill()
            site.zookeeper.stop()
            site.zookeeper.close()


def test_they_are_one_cluster(tmp_path: Path) -> None:
    """A cluster exchanged broker by broker would lose records on the way, or be stuck where the one
    does not understand the other: replicas, leaders and reassignments go both ways, with either as
    the controller, while clients write with acks=all."""
    try:
        with a_site(tmp_path) as site:
            _live(site)
    except PeerUnavailable as error:
        pytest.skip(str(error))
    for log in tmp_path.glob("*.log"):
        assert "Traceback" not in log.read_text()


def _live(site: Site) -> None:
    with contextlib.ExitStack() as kafka:
        kafka.enter_context(site.kafka())
        for each in site.ours.values():
            each.start()
        assert site.controller() == KAFKA
        made = site.ask(lambda admin: admin.create_topics([NewTopic(TOPIC, assignment=LAID)]))
        assert not isinstance(made[TOPIC], Exception), made
        site.await_in_sync(KAFKA, FIRST, SECOND)
        with running(Load(site.servers, TOPIC, len(LAID))) as load:
            load.await_progress()
            # Kafka commands: it gives its leadership to ours, and takes it again.
            site.reassign(FIRST, SECOND)
            load.await_progress()
            site.reassign(*LAID[0])
            site.elect_preferred()
            load.await_progress()
            # It goes in order, and one of ours commands.
            kafka.close()
            site.await_in_sync(FIRST, SECOND)
            assert site.controller() in site.ours
            load.await_progress()
            kafka.enter_context(site.kafka())
            site.await_in_sync(KAFKA, FIRST, SECOND)
            site.elect_preferred()
            site.reassign(FIRST, SECOND)
            site.reassign(*LAID[0])
            site.elect_preferred()
            load.await_progress()
            # Ours that commands is killed: what it alone led is Kafka's or the other's.
            victim = site.controller()
            site.ours[victim].kill()
            site.await_in_sync(*{KAFKA, FIRST, SECOND} - {victim})
            load.await_progress()
            site.ours[victim].start()
            site.await_in_sync(KAFKA, FIRST, SECOND)
            load.finish_writing()
            log = read_log(site.servers, TOPIC, len(LAID))
            load.finish_reading({partition: len(records) for partition, records in log.items()})
        assert not load.history.failed, load.history.failed[:5]
        findings = load.findings(log)
        assert not findings, "\n".join(findings[:20])
