"""One ZooKeeper, and in it an Apache Kafka 3.9 and ours by turns: each goes on with what the other
has written, and writes the same fields itself."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kazoo")

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.deadlines import deadline_s
from tools.kafka_node import zookeeper_kafka_node
from tools.peers import PeerUnavailable
from tools.zookeeper_node import zookeeper_ensemble

from odradek.testing.processes import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

TIMEOUT_S = deadline_s(60)
SESSION = "zookeeper.session.timeout.ms=6000"
Tree = dict[str, Any]


class Site:
    """A chroot, and whoever serves it at the moment."""

    def __init__(self, connect: str, home: Path) -> None:
        self.connect = connect
        self.home = home

    @contextlib.contextmanager
    def kafka(self) -> Iterator[str]:
        name, _, value = SESSION.partition("=")
        node = zookeeper_kafka_node(
            self.home / "kafka", zookeeper=self.connect, settings={name: value}
        )
        with node as kafka:
            yield kafka.bootstrap_servers

    @contextlib.contextmanager
    def ours(self) -> Iterator[str]:
        flags = ("--zookeeper", self.connect, "--broker-id", "1", "--set", SESSION)
        with BrokerProcess(self.home / "ours", *flags) as broker:
            yield broker.bootstrap_servers

    def tree(self) -> Tree:
        """The content of every node, read as JSON where it is some."""
        client = KazooClient(self.connect)
        client.start(30)
        try:
            found: Tree = {}
            self._walk(client, "/", found)
            return found
        finally:
            client.stop()
            client.close()

    def _walk(self, client: KazooClient, path: str, found: Tree) -> None:
        try:
            data, _ = client.get(path)
            names = client.get_children(path)
        except NoNodeError:
            return  # a topic's deletion is under way
        if data:
            try:
                found[path] = json.loads(data)
            except ValueError:
                found[path] = data
        for name in names:
            self._walk(client, f"{path.rstrip('/')}/{name}", found)


def work(bootstrap: str, topic: str) -> None:
    """Makes a topic with settings, more partitions, other settings, and one that goes again."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = [
        NewTopic(topic, 2, 1, config={"retention.ms": "7777777"}),
        NewTopic(f"{topic}-gone", 1, 1),
    ]
    for future in admin.create_topics(new).values():
        future.result(TIMEOUT_S)
    for future in admin.create_partitions([NewPartitions(topic, 3)]).values():
        future.result(TIMEOUT_S)
    entry = ConfigEntry("retention.ms", "8888888", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", topic, incremental_configs=[entry])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(TIMEOUT_S)
    for deleted in admin.delete_topics([f"{topic}-gone"]).values():
        deleted.result(TIMEOUT_S)


def shown(bootstrap: str) -> dict[str, object]:
    """The answer to a client, once every partition is led."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        with contextlib.suppress(KafkaException):
            topics = admin.list_topics(timeout=deadline_s(10)).topics
            led = [p.leader == 1 for t in topics.values() for p in t.partitions.values()]
            if topics and all(led):
                break
        assert time.monotonic() < deadline, "not everything is led"
    found: dict[str, object] = {}
    for name, topic in topics.items():
        (configs,) = admin.describe_configs([ConfigResource("topic", name)]).values()
        found[name] = (
            {index: (each.replicas, each.isrs) for index, each in topic.partitions.items()},
            configs.result(TIMEOUT_S)["retention.ms"].value,
        )
    return found


def shape(value: object) -> object:
    """The fields and the kinds of their values."""
    if isinstance(value, dict):
        return {
            ("N" if name.isdigit() else name): shape(each) for name, each in sorted(value.items())
        }
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def fields(tree: Tree, topic: str) -> dict[str, object]:
    """The shape of each kind of node that a broker has written, the topic's name left out."""
    kinds = {
        path.replace(topic, "T"): shape(value)
        for path, value in tree.items()
        if path in ("/brokers/ids/1", "/controller", "/controller_epoch", "/feature")
        or path.startswith(f"/brokers/topics/{topic}/")
        or path in (f"/brokers/topics/{topic}", f"/config/topics/{topic}")
    }
    kinds["change"] = [shape(v) for p, v in tree.items() if p.startswith("/config/changes/")][-1]
    return kinds


def test_they_take_over_from_each_other(tmp_path: Path) -> None:
    """A change from one to the other would lose topics, settings or leaders."""
    with contextlib.ExitStack() as resources:
        try:
            ensemble = resources.enter_context(zookeeper_ensemble(1))
            site = Site(f"{ensemble.connect}/shared", tmp_path)
            with site.kafka() as bootstrap:
                work(bootstrap, "theirs")
                told_by_kafka = shown(bootstrap)
                of_kafka = site.tree()
        except PeerUnavailable as error:
            pytest.skip(str(error))
        with site.ours() as bootstrap:
            assert shown(bootstrap) == told_by_kafka
            work(bootstrap, "ours")
            told_by_ours = shown(bootstrap)
            of_ours = site.tree()
        assert of_ours["/cluster/id"] == of_kafka["/cluster/id"]
        assert of_ours["/brokers/topics/theirs"] == of_kafka["/brokers/topics/theirs"]
        assert int(of_ours["/controller_epoch"]) > int(of_kafka["/controller_epoch"])
        with site.kafka() as bootstrap:
            assert shown(bootstrap) == told_by_ours
            work(bootstrap, "again")
        assert fields(of_ours, "ours") == fields(of_kafka, "theirs")
