"""Announced settings, quotas and ACLs in ZooKeeper: whoever was away misses none of them."""

import json
from typing import Any

import pytest
from tests.unit.metadata.zookeeper.zookeeper_cluster import Broker, Cluster

from odradek.acl import (
    AccessControlEntry,
    AclBinding,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.client_quota import DEFAULT, QuotaEntity, QuotaKey
from odradek.metadata import ConfigResource
from odradek.metadata.image import MetadataImage
from odradek.metadata.zookeeper import announcements
from odradek.model import AclOperation, ConfigResourceType, ResourceType

CHANGES = "/config/changes"
PRODUCE = QuotaKey.PRODUCER_BYTES
APP = QuotaEntity("alice", "app")
BROKER = ConfigResource(ConfigResourceType.BROKER, "2")
SETTINGS = {"log.cleaner.threads": "2"}
DENY = AccessControlEntry("User:bob", "*", AclOperation.READ, PermissionType.DENY)
PREFIX = ResourcePattern(ResourceType.TOPIC, "tx-", PatternType.PREFIXED)


def announce(cluster: Cluster, number: int, entity: str) -> None:
    change = json.dumps({"version": 2, "entity_path": entity})
    cluster.tree.put(f"{CHANGES}/config_change_{number:010}", change)


def write_quota(cluster: Cluster, path: str) -> None:
    for each in ("/config/users/alice", "/config/users/alice/clients"):
        cluster.tree.put(each, '{"version":1,"config":{}}')
    node = json.dumps({"version": 1, "config": {"producer_byte_rate": "9"}})
    cluster.tree.put(path, node)


@pytest.mark.parametrize(
    ("path", "entity"),
    [
        ("/config/users/alice/clients/app", APP),
        ("/config/clients/<default>", QuotaEntity(client_id=DEFAULT)),
        ("/config/users/bob", QuotaEntity("bob")),
    ],
)
@pytest.mark.parametrize("seen", [(), (0,)])
def test_a_quota_whose_announcement_has_gone_is_found(
    path: str, entity: QuotaEntity, seen: tuple[int, ...]
) -> None:
    """Fails when a broker that was away while a quota was set lets everything pass for ever."""
    cluster = Cluster(1)
    for number in seen:
        announce(cluster, number, "topics/other")
        cluster.settle()
    write_quota(cluster, path)
    announce(cluster, 7, "topics/other")
    cluster.settle()
    assert dict(cluster.brokers[1].image.client_quotas) == {entity: {PRODUCE: 9.0}}


def test_a_quota_that_was_taken_away_meanwhile_is_gone() -> None:
    """Fails when a broker that was away throttles clients by what nobody wants any more."""
    cluster = Cluster(1)
    assert cluster.brokers[1].ask("alter_client_quotas", {APP: {PRODUCE: 5.0}}) is None
    cluster.tree.put("/config/users/alice/clients/app", '{"version":1,"config":{}}')
    announce(cluster, 7, "topics/other")
    cluster.settle()
    assert not cluster.brokers[1].image.client_quotas


def test_an_announcement_that_goes_while_it_is_read_is_not_missed() -> None:
    """Fails when others tidy up between a broker's look at the names and at what they say."""
    for steps in range(6):
        cluster = Cluster(1)
        write_quota(cluster, "/config/users/alice/clients/app")
        announce(cluster, 0, "users/alice/clients/app")
        for _ in range(steps):
            cluster.tree.step()
        del cluster.tree.entries[f"{CHANGES}/config_change_0000000000"]
        announce(cluster, 1, "topics/other")
        cluster.settle()
        found = dict(cluster.brokers[1].image.client_quotas)
        assert found == {APP: {PRODUCE: 9.0}}, f"after {steps} steps"


def quotas(image: MetadataImage) -> Any:
    return dict(image.client_quotas)


def settings(image: MetadataImage) -> Any:
    return dict(image.config(BROKER))


def acls(image: MetadataImage) -> Any:
    return dict(image.acls)


@pytest.mark.parametrize(
    ("operation", "arguments", "look", "expected"),
    [
        ("alter_client_quotas", ({APP: {PRODUCE: 5.0}},), quotas, {APP: {PRODUCE: 5.0}}),
        ("alter_configs", ({BROKER: SETTINGS},), settings, SETTINGS),
        ("alter_acls", ([AclBinding(PREFIX, DENY)], []), acls, {PREFIX: frozenset({DENY})}),
    ],
)
@pytest.mark.parametrize("missed", [False, True])
def test_a_session_that_ends_loses_no_announcement(
    operation: str, arguments: Any, look: Any, expected: Any, missed: bool
) -> None:
    """Fails when what was announced counts as read, and the session ends before it is."""
    for steps in range(0, 60, 2):
        cluster = Cluster(2, keeps_acls=True)
        for each in ("/config/changes", "/kafka-acl-extended-changes"):
            # Numbers are missing, so that everything is read.
            cluster.tree.entries[each].numbered += 3 * missed
        cluster.brokers[1].begin(operation, *arguments)
        other: Broker = cluster.brokers[2]
        for _ in range(steps):
            cluster.tree.step()
        other.expire()
        cluster.settle(2)
        assert look(other.image) == expected, f"after {steps} steps"


def test_old_announcements_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when the folder grows for ever."""
    monkeypatch.setattr(announcements, "KEPT", 3)
    cluster = Cluster(1)
    for number in range(10):
        announce(cluster, number, "topics/other")
        cluster.settle(1)
    names = sorted(cluster.tree.children(CHANGES))
    assert names == [f"config_change_{number:010}" for number in (7, 8, 9)]
