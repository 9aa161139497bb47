"""ACLs in both stores: they survive, everybody hears of them, and Kafka 3.9 can read them."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.unit.metadata.test_embedded_store import must, registered
from tests.unit.metadata.zookeeper.zookeeper_cluster import Cluster

from odradek.acl import (
    AccessControlEntry,
    AclBinding,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import MetadataStoreError
from odradek.metadata.sqlite import schema
from odradek.metadata.sqlite.database import Database
from odradek.metadata.zookeeper.security import acl_znodes
from odradek.metadata.zookeeper.znodes import ZnodeError
from odradek.model import AclOperation, ResourceType

READ = AccessControlEntry("User:alice", "*", AclOperation.READ, PermissionType.ALLOW)
DENY = AccessControlEntry("User:bob", "h", AclOperation.DESCRIBE_CONFIGS, PermissionType.DENY)
ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
PREFIX = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "tx-", PatternType.PREFIXED)


def test_acls_survive_a_restart(tmp_path: Path) -> None:
    """After a restart everybody would be shut out, or in again."""
    store, cache = registered(Database(str(tmp_path)))
    both = [AclBinding(ORDERS, READ), AclBinding(ORDERS, DENY), AclBinding(PREFIX, DENY)]
    store.alter_acls(both, (), must)
    store.alter_acls((), [AclBinding(ORDERS, DENY), AclBinding(PREFIX, READ)], must)
    expected = {ORDERS: frozenset({READ}), PREFIX: frozenset({DENY})}
    assert dict(cache.image.acls) == expected
    store.close()
    _, cache = registered(Database(str(tmp_path)))
    assert dict(cache.image.acls) == expected


def test_a_file_of_version_3_gets_the_table(tmp_path: Path) -> None:
    """A broker that is upgraded would not start."""
    store, _ = registered(Database(str(tmp_path)))
    store.close()
    with closing(sqlite3.connect(tmp_path / schema.FILE_NAME)) as connection:
        connection.execute("DROP TABLE acl")
        connection.execute("PRAGMA user_version = 3")
        connection.commit()
    store, cache = registered(Database(str(tmp_path)))
    store.alter_acls([AclBinding(ORDERS, READ)], (), must)
    assert dict(cache.image.acls) == {ORDERS: frozenset({READ})}


def cluster_with_acls(count: int) -> Cluster:
    return Cluster(count, keeps_acls=True)


def alter(cluster: Cluster, broker_id: int, *added: AclBinding, removed: Any = ()) -> Any:
    return cluster.brokers[broker_id].ask("alter_acls", list(added), list(removed))


def test_every_broker_hears_of_an_acl_and_kafka_can_read_it() -> None:
    """One broker would let in whom the others refuse."""
    cluster = cluster_with_acls(3)
    alter(cluster, 2, AclBinding(ORDERS, READ), AclBinding(PREFIX, DENY))
    expected = {ORDERS: frozenset({READ}), PREFIX: frozenset({DENY})}
    for broker in cluster.brokers.values():
        assert dict(broker.image.acls) == expected
    tree = cluster.tree
    assert json.loads(tree.text("/kafka-acl/Topic/orders")) == {
        "version": 1,
        "acls": [
            {
                "principal": "User:alice",
                "permissionType": "Allow",
                "operation": "Read",
                "host": "*",
            }
        ],
    }
    prefixed = json.loads(tree.text("/kafka-acl-extended/prefixed/TransactionalId/tx-"))
    assert prefixed["acls"][0]["operation"] == "DescribeConfigs"
    assert tree.text("/kafka-acl-changes/acl_changes_0000000000") == "TOPIC:orders"
    assert json.loads(tree.text("/kafka-acl-extended-changes/acl_changes_0000000000")) == {
        "version": 1,
        "resourceType": "TRANSACTIONAL_ID",
        "name": "tx-",
        "patternType": "PREFIXED",
    }
    alter(cluster, 3, removed=[AclBinding(ORDERS, READ)])
    assert "/kafka-acl/Topic/orders" not in tree.entries
    assert all(set(broker.image.acls) == {PREFIX} for broker in cluster.brokers.values())


def test_what_kafka_writes_is_followed() -> None:
    """ACLs that were made with Kafka's brokers of a mixed cluster would not hold with ours."""
    cluster = cluster_with_acls(2)
    cluster.tree.put("/kafka-acl/Topic/orders", acl_znodes.acls_json([READ]).decode())
    cluster.tree.put("/kafka-acl-changes/acl_changes_0000000000", "TOPIC:orders")
    cluster.settle()
    for broker in cluster.brokers.values():
        assert dict(broker.image.acls) == {ORDERS: frozenset({READ})}


def test_a_broker_that_comes_knows_the_acls() -> None:
    """It would refuse everybody until somebody changes an ACL."""
    cluster = cluster_with_acls(1)
    alter(cluster, 1, AclBinding(PREFIX, DENY))
    late = cluster.add(2)
    assert dict(late.image.acls) == {PREFIX: frozenset({DENY})}


def test_announcements_that_are_gone_have_everything_read() -> None:
    """A broker whose connection was away for long would keep ACLs that were taken back."""
    cluster = cluster_with_acls(2)
    alter(cluster, 1, AclBinding(ORDERS, READ))
    tree = cluster.tree
    del tree.entries["/kafka-acl/Topic/orders"]
    tree.put("/kafka-acl/Topic/other", acl_znodes.acls_json([DENY]).decode())
    tree.put("/kafka-acl-changes/acl_changes_0000000009", "TOPIC:nothing")
    cluster.settle()
    other = ResourcePattern(ResourceType.TOPIC, "other")
    for broker in cluster.brokers.values():
        assert dict(broker.image.acls) == {other: frozenset({DENY})}


def prefixed(name: str) -> str:
    change = {"version": 1, "resourceType": "TOPIC", "name": name, "patternType": "PREFIXED"}
    return json.dumps(change)


@pytest.mark.parametrize(
    ("folder", "data"),
    [
        *(("/kafka-acl-changes", data) for data in ("TOPIC:a/b", "TOPIC:", "TOPIC:..", "NO:a", "")),
        *(("/kafka-acl-extended-changes", prefixed(name)) for name in ("a/b", "", ".", "\ud800")),
        ("/kafka-acl-extended-changes", "[]"),
    ],
)
def test_an_announcement_that_names_no_node_has_everything_read(folder: str, data: str) -> None:
    """One line of another program would end every broker."""
    cluster = cluster_with_acls(2)
    read = acl_znodes.acls_json([READ]).decode()
    cluster.tree.put("/kafka-acl/Topic/orders", read)
    cluster.tree.put("/kafka-acl-extended/prefixed/TransactionalId/tx-", read)
    cluster.tree.put(f"{folder}/acl_changes_0000000000", data)
    cluster.settle()
    expected = ORDERS if folder == "/kafka-acl-changes" else PREFIX
    for broker in cluster.brokers.values():
        assert dict(broker.image.acls) == {expected: frozenset({READ})}
        assert broker.broken == []


def test_a_name_that_zookeeper_cannot_have_is_refused() -> None:
    """A group called `a/b` would become a folder, and its ACLs would be lost."""
    cluster = cluster_with_acls(1)
    slashed = ResourcePattern(ResourceType.GROUP, "a/b")
    outcome = alter(cluster, 1, AclBinding(slashed, READ))
    assert isinstance(outcome, BrokerError)
    assert outcome.code is ErrorCode.INVALID_REQUEST


def test_acls_that_nobody_understands_keep_a_broker_from_starting() -> None:
    """A node that it passed over might be one that denies somebody something."""
    cluster = cluster_with_acls(1)
    cluster.tree.put("/kafka-acl/Topic/orders", '{"version":1,"acls":[{"principal":1}]}')
    with pytest.raises(MetadataStoreError, match="/kafka-acl/Topic/orders"):
        cluster.add(2)


def test_acls_that_are_not_understood_any_more_stay_as_they_were(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A spoilt node would let principals in that an ACL denies."""
    cluster = cluster_with_acls(2)
    alter(cluster, 1, AclBinding(ORDERS, DENY))
    cluster.tree.put("/kafka-acl/Topic/orders", '{"version":2,"acls":[]}')
    cluster.tree.put("/kafka-acl-changes/acl_changes_0000000001", "TOPIC:orders")
    cluster.settle()
    for broker in cluster.brokers.values():
        assert dict(broker.image.acls) == {ORDERS: frozenset({DENY})}
    assert "ACLs stay as they were" in caplog.text


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"[]", b"{", b'{"version":2,"acls":[]}', b'{"version":1}'),
        *(b'{"version":1,"acls":[3]}', acl_znodes.acls_json([READ]).replace(b"alice", b"\\ud800")),
    ],
)
def test_garbage_is_no_acl(data: bytes) -> None:
    """It would be taken for no ACLs at all."""
    with pytest.raises(ZnodeError, match="/kafka-acl/Topic/t in ZooKeeper"):
        acl_znodes.read_acls("/kafka-acl/Topic/t", data)
