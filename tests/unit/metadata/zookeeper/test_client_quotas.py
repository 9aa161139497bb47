"""Quotas of clients in both stores: they survive, everybody hears of them, Kafka 3.9 reads them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.metadata.test_embedded_store import must, registered
from tests.unit.metadata.zookeeper.zookeeper_cluster import Cluster

from odradek.client_quota import DEFAULT, QuotaEntity, QuotaKey
from odradek.metadata.image import ConfigResource
from odradek.metadata.sqlite.database import Database
from odradek.metadata.zookeeper.security import quota_znodes
from odradek.model import ConfigResourceType

PRODUCE, CONSUME = QuotaKey.PRODUCER_BYTES, QuotaKey.CONSUMER_BYTES
ALICE = QuotaEntity(user="alice b/ä*~+")
BOTH = QuotaEntity(DEFAULT, "app")
CLIENT = QuotaEntity(client_id=DEFAULT)
ADDRESS, CONNECT = QuotaEntity(ip="10.0.0.1"), QuotaKey.CONNECTION_CREATION


def plain(image: Any) -> dict[QuotaEntity, dict[QuotaKey, float]]:
    return {entity: dict(quotas) for entity, quotas in image.client_quotas.items()}


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    """After a restart everybody would take what they like."""
    store, cache = registered(Database(str(tmp_path)))
    store.alter_client_quotas({ALICE: {PRODUCE: 5.0, CONSUME: 6.0}, BOTH: {PRODUCE: 7.0}}, must)
    everywhere = QuotaEntity(ip=DEFAULT)
    store.alter_client_quotas({ADDRESS: {CONNECT: 3.0}, everywhere: {CONNECT: 4.0}}, must)
    store.alter_client_quotas({ALICE: {PRODUCE: None}, everywhere: {CONNECT: None}}, must)
    expected = {ALICE: {CONSUME: 6.0}, BOTH: {PRODUCE: 7.0}, ADDRESS: {CONNECT: 3.0}}
    assert plain(cache.image) == expected
    store.close()
    _, cache = registered(Database(str(tmp_path)))
    assert plain(cache.image) == expected


@pytest.mark.parametrize(
    "entity",
    [
        *(ALICE, BOTH, CLIENT, QuotaEntity("<default>", "a/b"), QuotaEntity(user=DEFAULT)),
        *(ADDRESS, QuotaEntity(ip="::1"), QuotaEntity(ip=DEFAULT)),
        *(QuotaEntity(".", ".."), QuotaEntity("%2E")),
    ],
)
def test_an_entity_is_found_again(entity: QuotaEntity) -> None:
    """A user called `<default>` would set everybody's quota."""
    assert quota_znodes.quota_entity(quota_znodes.entity_path(entity)) == entity


def test_every_broker_hears_of_a_quota_and_kafka_can_read_it() -> None:
    """Kafka's brokers of a mixed cluster would let pass what ours throttle."""
    cluster = Cluster(2)
    tree = cluster.tree
    user_path = "/config/users/alice%20b%2F%C3%A4%2A%7E%2B"
    tree.put(user_path, '{"version":1,"config":{"SCRAM-SHA-256":"salt=x"}}')
    altered = {
        ALICE: {PRODUCE: 5.0},
        BOTH: {CONSUME: 7.0},
        CLIENT: {CONSUME: 8.0},
        ADDRESS: {CONNECT: 9.0},
    }
    assert cluster.brokers[2].ask("alter_client_quotas", altered) is None
    for broker in cluster.brokers.values():
        assert plain(broker.image) == altered
    assert json.loads(tree.text(user_path)) == {
        "version": 1,
        "config": {"SCRAM-SHA-256": "salt=x", "producer_byte_rate": "5"},
    }
    assert json.loads(tree.text("/config/users/<default>/clients/app"))["config"] == {
        "consumer_byte_rate": "7"
    }
    assert json.loads(tree.text("/config/clients/<default>"))["config"] == {
        "consumer_byte_rate": "8"
    }
    assert json.loads(tree.text("/config/ips/10.0.0.1"))["config"] == {
        "connection_creation_rate": "9"
    }
    names = tree.children("/config/changes")
    announced = [json.loads(tree.text(f"/config/changes/{name}")) for name in names]
    assert {"version": 2, "entity_path": "users/<default>/clients/app"} in announced
    late = cluster.add(3)
    assert plain(late.image) == altered
    cluster.brokers[1].ask("alter_client_quotas", {ALICE: {PRODUCE: None}})
    assert json.loads(tree.text(user_path))["config"] == {"SCRAM-SHA-256": "salt=x"}
    assert all(ALICE not in broker.image.client_quotas for broker in cluster.brokers.values())


def test_a_name_of_dots_is_one_like_any_other() -> None:
    """ZooKeeper has no node of that name: whoever calls a client `..` would have no quota."""
    cluster = Cluster(2)
    altered = {QuotaEntity(".", ".."): {PRODUCE: 5.0}, QuotaEntity(client_id="."): {CONSUME: 6.0}}
    assert cluster.brokers[2].ask("alter_client_quotas", altered) is None
    for broker in (*cluster.brokers.values(), cluster.add(3)):
        assert plain(broker.image) == altered
    users = {ConfigResource(ConfigResourceType.USER, ".."): {"SCRAM-SHA-256": "salt=x"}}
    assert cluster.brokers[1].ask("alter_configs", users) is None
    for broker in (*cluster.brokers.values(), cluster.add(4)):
        assert {each: dict(broker.image.config(each)) for each in users} == users


def test_what_kafka_writes_is_followed() -> None:
    """Quotas that were set with Kafka's tools would not hold with ours."""
    cluster = Cluster(2)
    settings = {"producer_byte_rate": "9", "request_percentage": "5.5"}
    settings |= {"consumer_byte_rate": "x", "controller_mutation_rate": "0"}
    node = json.dumps({"version": 1, "config": settings})
    cluster.tree.put("/config/clients/app", node)
    change = '{"version":2,"entity_path":"clients/app"}'
    cluster.tree.put("/config/changes/config_change_0000000000", change)
    cluster.settle()
    for broker in cluster.brokers.values():
        expected = {PRODUCE: 9.0, QuotaKey.REQUEST_TIME: 5.5}
        assert plain(broker.image) == {QuotaEntity(client_id="app"): expected}
