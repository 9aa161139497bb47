"""Requests of administrators while the metadata store does not answer: each ends in its time."""

import pytest
from kio.schema.errors import ErrorCode

from odradek.acl import PatternType, PermissionType
from odradek.controller.acl_control import AclControl
from odradek.errors import BrokerError
from odradek.errors import ErrorCode as OwnCode
from odradek.handlers.table import API_TABLE, ZOOKEEPER_API_TABLE
from odradek.handlers.topics.metadata import CREATION_TIMEOUT_MS
from odradek.metadata import PartitionChange
from odradek.model import AclOperation, ResourceType
from odradek.protocol import messages

TIMED_OUT = ErrorCode.request_timed_out
SET = {"name": "retention.ms", "config_operation": 0, "value": "4"}
OTHER = {**SET, "value": "5"}
CONFIG = {"resource_type": 2, "resource_name": "orders"}
ACL = {
    "resource_type": ResourceType.TOPIC,
    "resource_name": "orders",
    "resource_pattern_type": PatternType.LITERAL,
    "principal": "User:a",
    "host": "*",
    "operation": AclOperation.READ,
    "permission_type": PermissionType.ALLOW,
}
QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": "a"}],
    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
}
UPSERTION = {"name": "a", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
FEATURE = {"feature": "group.version", "max_version_level": 0, "upgrade_type": 2}
MOVED = {"name": "orders", "partitions": [{"partition_index": 0, "replicas": [1, 2]}]}
ELECTED = {"topic": "orders", "partitions": [0, 1]}
OF_BROKER, OWN = 30_000, 7_000
REQUESTS = {
    "CreateAcls": (30, 3, OF_BROKER, {"creations": [ACL]}),
    "AlterConfigs": (33, 2, OF_BROKER, {"resources": [{**CONFIG, "configs": []}]}),
    "IncrementalAlterConfigs": (
        44,
        1,
        OF_BROKER,
        {"resources": [{**CONFIG, "configs": [OTHER]}]},
    ),
    "AlterPartitionReassignments": (45, 1, OWN, {"timeout_ms": OWN, "topics": [MOVED]}),
    "AlterClientQuotas": (49, 1, OF_BROKER, {"entries": [QUOTA], "validate_only": False}),
    "AlterUserScramCredentials": (51, 0, OF_BROKER, {"deletions": [], "upsertions": [UPSERTION]}),
    "UpdateFeatures": (57, 2, OWN, {"timeout_ms": OWN, "feature_updates": [FEATURE]}),
}


class Silence:
    """In the place of a store's operations: notes who waits."""

    def __init__(self, store, monkeypatch):
        self.waiting = []
        for name in (
            *("alter_acls", "alter_client_quotas", "alter_configs", "change_partitions"),
            *("create_topics", "delete_topics", "create_partitions", "sync", "update_features"),
        ):
            monkeypatch.setattr(store, name, lambda *arguments: self.waiting.append(arguments[-1]))


@pytest.fixture
def silent(cluster, monkeypatch):
    cluster.create("orders", 2)
    cluster.ask(44, 1, resources=[{**CONFIG, "configs": [SET]}])
    cluster.replace(acls=AclControl(cluster.store, cluster.cache))
    cluster.silence = Silence(cluster.store, monkeypatch)
    return cluster


def begin(cluster, key, version, fields):
    exchange = cluster.exchange(key, version, messages.encode_request(key, version, fields))
    cluster.dispatcher().handle_frame(exchange)
    assert exchange.sent is None
    return exchange


def errors(answer):
    """All errors of an answer, however deep they lie."""
    if hasattr(answer, "__slots__"):
        fields = {name: getattr(answer, name) for name in answer.__slots__}
        own = {fields["error_code"]} if "error_code" in fields else set()
        return own.union(*(errors(each) for each in fields.values()))
    if isinstance(answer, tuple):
        return set().union(*(errors(each) for each in answer))
    return set()


@pytest.mark.parametrize("table", [API_TABLE, ZOOKEEPER_API_TABLE], ids=["alone", "zookeeper"])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_ends_when_its_time_is_over(silent, name, table):
    """While ZooKeeper is away a tool would hang until its user ends it, and its connection with it:
    Kafka answers REQUEST_TIMED_OUT."""
    key, version, timeout_ms, fields = REQUESTS[name]
    silent.replace(apis=table)
    exchange = begin(silent, key, version, fields)
    (on_done,) = silent.silence.waiting
    silent.timer.advance_clock(timeout_ms - 1)
    assert exchange.sent is None
    silent.timer.advance_clock(1)
    assert TIMED_OUT in errors(silent.answer(exchange, key, version))
    assert errors(silent.answer(exchange, key, version)) <= {TIMED_OUT, ErrorCode.none}
    told = exchange.sent
    on_done(None)
    assert exchange.sent is told
    assert silent.timer.size == 0


CREATING = {
    "Metadata": (3, 9, {"topics": [{"name": "new"}], "allow_auto_topic_creation": True}),
    "FindCoordinator": (10, 4, {"key_type": 0, "coordinator_keys": ["g"]}),
}


@pytest.mark.parametrize("name", CREATING)
def test_what_has_a_topic_created_waits_for_a_moment(cluster_with, monkeypatch, name):
    """Clients would hang for as long as ZooKeeper is away, and all that they ask for behind it: a
    topic that is not there yet is nothing to wait for, they ask again."""
    silent = cluster_with({"offsets.topic.replication.factor": "1"})
    silence = Silence(silent.store, monkeypatch)
    key, version, fields = CREATING[name]
    exchange = begin(silent, key, version, fields)
    (on_done,) = silence.waiting
    silent.timer.advance_clock(CREATION_TIMEOUT_MS - 1)
    assert exchange.sent is None
    silent.timer.advance_clock(1)
    assert errors(silent.answer(exchange, key, version)) - {ErrorCode.none}
    told = exchange.sent
    on_done(BrokerError(OwnCode.NOT_CONTROLLER))
    assert exchange.sent is told
    assert silent.timer.size == 0


@pytest.mark.parametrize("name", REQUESTS)
def test_an_answer_in_time_ends_the_wait(silent, name):
    """Each request would leave something in the timer for half a minute."""
    key, version, _, fields = REQUESTS[name]
    exchange = begin(silent, key, version, fields)
    while silent.silence.waiting:
        silent.silence.waiting.pop()(None)
    assert exchange.sent is not None
    assert silent.timer.size == 0


def test_alterations_behind_one_that_hangs_end_in_their_time(silent):
    """They come one after another: all would hang behind the first."""
    key, version, timeout_ms, fields = REQUESTS["AlterConfigs"]
    both = [begin(silent, key, version, fields) for _ in range(2)]
    assert len(silent.silence.waiting) == 1
    silent.timer.advance_clock(timeout_ms)
    for exchange in both:
        assert errors(silent.answer(exchange, key, version)) == {TIMED_OUT}


def test_an_election_ends_when_its_time_is_over(silent, monkeypatch):
    """Refusals at once are told as such, and only the rest as late."""
    wrong = {"topic": "nothing", "partitions": [0]}
    monkeypatch.setattr("odradek.controller.replicas.leader_elections.plan_election", plan_if_there)
    fields = {"timeout_ms": OWN, "topic_partitions": [ELECTED, wrong], "election_type": 0}
    exchange = begin(silent, 43, 2, fields)
    (on_done,) = silent.silence.waiting
    silent.timer.advance_clock(OWN)
    answer = silent.answer(exchange, 43, 2)
    results = {
        (topic.topic, each.partition_id): each.error_code
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }
    assert results == {
        ("nothing", 0): ErrorCode.unknown_topic_or_partition,
        ("orders", 0): TIMED_OUT,
        ("orders", 1): TIMED_OUT,
    }
    on_done([])


def plan_if_there(image, topic_partition, _type):
    partition = image.partition(topic_partition)
    if partition is None:
        raise BrokerError(OwnCode.UNKNOWN_TOPIC_OR_PARTITION)
    return PartitionChange(topic_partition, partition.partition_epoch, 1, (1,))
