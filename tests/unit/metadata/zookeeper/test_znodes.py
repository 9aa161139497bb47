"""The JSON of the nodes in ZooKeeper, against what an Apache Kafka 3.9.2 has written.

`kafka_3_9_znodes.json` is what two of its brokers left: two topics (one with settings, one that
was given settings and one that was given a partition later), a broker's settings, a deleted topic
and an idempotent producer; and what became of it when the controller was killed.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.metadata.image import (
    BrokerRegistration,
    ConfigResource,
    PartitionImage,
    ReplicaAssignment,
)
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.znodes import ZnodeError
from odradek.model import ConfigResourceType, EndPoint, TopicPartition

RECORDED: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parent / "kafka_3_9_znodes.json").read_text(encoding="utf-8")
)
KAFKA = RECORDED["two brokers"]
AFTER = RECORDED["one was killed"]


def recorded(path: str, nodes: dict[str, str] = KAFKA) -> bytes:
    return nodes[path].encode()


def test_brokers() -> None:
    written = json.loads(KAFKA["/brokers/ids/1"])
    broker = znodes.read_broker(1, recorded("/brokers/ids/1"), 26)
    assert broker.endpoints == (EndPoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", written["port"]),)
    assert (broker.id, broker.rack, broker.epoch) == (1, "r1", 26)
    assert znodes.broker_json(broker, int(written["timestamp"])) == recorded("/brokers/ids/1")


def test_topics() -> None:
    for path in ("/brokers/topics/plain", "/brokers/topics/cfg"):
        topic = znodes.read_topic(path.rpartition("/")[2], recorded(path))
        assert topic.topic_id is not None
        assert znodes.topic_json(topic.topic_id, topic.assignments) == recorded(path)


def test_states() -> None:
    for nodes in (KAFKA, AFTER):
        for path in nodes:
            if not path.endswith("/state"):
                continue
            words = path.split("/")
            where = TopicPartition(words[3], int(words[5]))
            assert znodes.state_path(where) == path
            state = znodes.read_state(where, recorded(path, nodes))
            image = PartitionImage(
                *(where.partition, state.leader, state.leader_epoch, 0, state.isr, state.isr)
            )
            assert znodes.state_json(image, state.controller_epoch) == recorded(path, nodes)


def test_the_rest_of_what_kafka_wrote() -> None:
    controller = json.loads(KAFKA["/controller"])
    assert znodes.read_controller(recorded("/controller")) == 1
    assert znodes.controller_json(1, int(controller["timestamp"])) == recorded("/controller")
    assert znodes.read_controller_epoch(recorded("/controller_epoch", AFTER)) == 2
    assert znodes.read_config("/config/topics/cfg", recorded("/config/topics/cfg")) == {
        "cleanup.policy": "compact",
        "retention.ms": "1234",
    }
    settings = {"retention.ms": "1234", "cleanup.policy": "compact"}
    assert znodes.config_json(settings) == recorded("/config/topics/cfg")
    cluster_id = znodes.read_cluster_id(recorded("/cluster/id"))
    assert znodes.cluster_id_json(cluster_id) == recorded("/cluster/id")
    assert znodes.read_next_producer_id(recorded("/latest_producer_id_block")) == 1000
    assert znodes.producer_ids_json(2, range(1000)) == recorded("/latest_producer_id_block")
    assert znodes.read_features(recorded("/feature")) == {}
    assert znodes.features_json({}) == recorded("/feature")


def test_notifications_that_kafka_wrote() -> None:
    first = "/config/changes/config_change_0000000000"
    resource = ConfigResource.topic("plain")
    assert znodes.config_change_json(resource) == recorded(first)
    assert znodes.read_config_change(first, recorded(first)) == "topics/plain"
    assert znodes.sequence_number(first) == 0
    assert znodes.config_resource("topics/plain") == resource
    assert znodes.config_resource("brokers/<default>") == ConfigResource(
        ConfigResourceType.BROKER, ""
    )
    user = ConfigResource(ConfigResourceType.USER, "a b*é~")
    assert znodes.entity_path(user) == "users/a%20b%2A%C3%A9%7E"
    assert znodes.config_resource(znodes.entity_path(user)) == user
    assert znodes.config_resource("users/alice/clients/c") is None
    old = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert znodes.read_config_change(first, old) == "topics/t"


def test_older_versions_are_read() -> None:
    """A topic of Kafka before 2.4 has neither id nor reassignments, one before 2.8 no id."""
    old = b'{"version":1,"partitions":{"2":[3,1],"1":[2,3],"0":[1,2]}}'
    replicas = [ReplicaAssignment(each) for each in ((1, 2), (2, 3), (3, 1))]
    assert znodes.read_topic("t", old) == (None, tuple(replicas))
    moving = b'{"version":2,"partitions":{"0":[2,1]},"adding_replicas":{"0":[2]},'
    moving += b'"removing_replicas":{"0":[1]}}'
    assert znodes.read_topic("t", moving) == (None, (ReplicaAssignment((2, 1), (2,), (1,)),))
    broker = b'{"version":2,"endpoints":["PLAINTEXT://h:1"],"jmx_port":-1,"host":"h","port":1}'
    assert znodes.read_broker(5, broker, 0).endpoints == (
        EndPoint("PLAINTEXT", "PLAINTEXT", "h", 1),
    )
    assert znodes.read_next_producer_id(b"") == 0
    features = (
        b'{"version":1,"status":1,"features":{"f":{"min_version_level":1,"max_version_level":3}}}'
    )
    assert znodes.read_features(features) == {"f": 3}
    assert znodes.read_features(b'{"version":2,"status":0,"features":{"f":3}}') == {}


def test_what_administrators_write() -> None:
    requested = {TopicPartition("t", 0): (2, 3)}
    assert znodes.read_reassignments(znodes.reassignments_json(requested)) == requested
    elections = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    assert znodes.read_elections(elections) == [TopicPartition("t", 0)]
    assert znodes.read_isr_change("/x", elections) == [TopicPartition("t", 0)]
    assert znodes.read_log_dir_event("/x", znodes.log_dir_event_json(7)) == 7


TP = TopicPartition("t", 0)
READERS: list[tuple[str, Callable[[bytes], Any]]] = [
    ("/brokers/ids/1", lambda data: znodes.read_broker(1, data, 0)),
    ("/brokers/topics/t", lambda data: znodes.read_topic("t", data)),
    ("/brokers/topics/t/partitions/0/state", lambda data: znodes.read_state(TP, data)),
    ("/controller", znodes.read_controller),
    ("/controller_epoch", znodes.read_controller_epoch),
    ("/config/topics/t", lambda data: znodes.read_config("/config/topics/t", data)),
    ("/config/changes/x", lambda data: znodes.read_config_change("/config/changes/x", data)),
    ("/admin/reassign_partitions", znodes.read_reassignments),
    ("/admin/preferred_replica_election", znodes.read_elections),
    (
        "/isr_change_notification/x",
        lambda d: znodes.read_isr_change("/isr_change_notification/x", d),
    ),
    (
        "/log_dir_event_notification/x",
        lambda d: znodes.read_log_dir_event("/log_dir_event_notification/x", d),
    ),
    ("/cluster/id", znodes.read_cluster_id),
    ("/feature", znodes.read_features),
    ("/latest_producer_id_block", znodes.read_next_producer_id),
]
GARBAGE = [
    *(b"\xff\x00", b"{", b"[]", b"{}", b'"text"', b"null", b'{"version":99}', b"[" * 100_000),
    b'{"version":true,"brokerid":true}',
    b'{"version":1,"partitions":{"0":["a"]},"config":{"a":1},"brokerid":"1","block_end":"x"}',
    b'{"version":1,"partitions":{"1":[1]},"leader":1,"leader_epoch":1,"isr":[1.5]}',
    b'{"version":1,"partitions":[3],"config":[],"broker":null,"id":3}',
    b'{"version":3,"partitions":{"0":[1]},"topic_id":"!","endpoints":["x"]}',
    b'{"version":2,"status":1,"features":{"a":"b"}}',
]


@pytest.mark.parametrize(("path", "read"), READERS, ids=[path for path, _ in READERS])
def test_garbage_is_named(path: str, read: Callable[[bytes], Any]) -> None:
    refused = []
    for data in GARBAGE:
        try:
            read(data)
        except ZnodeError as error:
            refused.append(str(error))
    assert len(refused) >= 8
    assert all(text.startswith(path) for text in refused)


def test_a_number_is_no_epoch_when_it_is_none() -> None:
    with pytest.raises(ZnodeError, match="config_change"):
        znodes.sequence_number("config_change_x")


_IDS = st.lists(st.integers(0, 5), unique=True, min_size=1, max_size=4).map(tuple)
_NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=10)


@given(st.uuids(), st.lists(_IDS, min_size=1, max_size=4), _IDS)
def test_topics_come_back(topic_id: UUID, replicas: list[tuple[int, ...]], moving: Any) -> None:
    assignments = tuple(ReplicaAssignment(each, moving, each) for each in replicas)
    read = znodes.read_topic("t", znodes.topic_json(topic_id, assignments))
    assert read == (topic_id, assignments)


@given(st.dictionaries(_NAMES, st.text(st.characters(exclude_categories=("Cs",)))))
def test_settings_come_back(settings: dict[str, str]) -> None:
    assert znodes.read_config("/x", znodes.config_json(settings)) == settings


@given(
    st.sampled_from(["h", "10.0.0.1", "::1"]),
    st.integers(0, 65535),
    st.none() | _NAMES,
    st.booleans(),
)
def test_brokers_come_back(host: str, port: int, rack: str | None, is_missing_logs: bool) -> None:
    endpoints = (EndPoint("IN", "PLAINTEXT", host, port), EndPoint("OUT", "SSL", host, port))
    broker = BrokerRegistration(7, endpoints, rack, 3, is_missing_logs)
    assert znodes.read_broker(7, znodes.broker_json(broker, 12), 3) == broker
