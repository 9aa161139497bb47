"""ACLs, quotas, users of SCRAM and delegation tokens of a mixed cluster: a Kafka 3.9 and ours share
them in ZooKeeper."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.deadlines import deadline_s
from tests.wire.differential.harness import Peer, Target
from tools.free_port import free_port
from tools.kafka_node import zookeeper_kafka_node
from tools.zookeeper_node import zookeeper_ensemble

from odradek.acl import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.client import DelegationToken, ScramPassword
from odradek.client.aio.admin.acls import creation_fields, filter_fields
from odradek.client.errors import AuthenticationError
from odradek.client.sync import Admin
from odradek.model import AclOperation, ResourceType
from odradek.security.jaas import jaas_text
from odradek.testing.processes import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
PATIENCE_S = deadline_s(20)
MECHANISM, USER = "SCRAM-SHA-256", "a, b*"


def binding(name: str, type: ResourceType, pattern: PatternType) -> AclBinding:
    return AclBinding(
        ResourcePattern(type, name, pattern),
        AccessControlEntry("User:ä b", "*", AclOperation.DESCRIBE, PermissionType.DENY),
    )


ACLS = {
    binding("orders", ResourceType.TOPIC, PatternType.LITERAL),
    binding("*", ResourceType.GROUP, PatternType.LITERAL),
    binding("tx-", ResourceType.TRANSACTIONAL_ID, PatternType.PREFIXED),
    binding("kafka-cluster", ResourceType.CLUSTER, PatternType.LITERAL),
    binding("User:carol", ResourceType.USER, PatternType.LITERAL),
}


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_acls_are_shared_both_ways(tmp_path: Path) -> None:
    """Somebody would be refused by one broker of a cluster and let in by another."""
    properties = tmp_path / "ours.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    with (
        zookeeper_ensemble(1, tmp_path) as ensemble,
        zookeeper_kafka_node(
            tmp_path / "kafka", "384m", zookeeper=ensemble.connect, settings=SETTINGS
        ) as kafka,
        BrokerProcess(
            tmp_path / "2",
            *("--zookeeper", ensemble.connect, "--config", str(properties), "--broker-id", "2"),
        ) as ours,
    ):
        theirs, mine = (Peer(Target(each.bootstrap_servers)) for each in (kafka, ours))
        for writer, reader in ((theirs, mine), (mine, theirs)):
            creations = [creation_fields(each) for each in ACLS]
            made = writer.quietly("create_acls", 3, creations=creations)
            assert not any(each.error_code for each in made.results), made
            eventually(lambda reader=reader: described(reader) == ACLS)
            remove(writer, AclFilter(name="orders"))
            left = {each for each in ACLS if each.pattern.name != "orders"}
            eventually(lambda reader=reader, left=left: described(reader) == left)
            remove(reader, AclFilter())
            eventually(lambda writer=writer: described(writer) == set())
        theirs.close()
        mine.close()


def test_users_and_tokens_are_shared_both_ways(tmp_path: Path) -> None:
    """A job could log in to one broker of a cluster and not to the next."""
    protected = {
        "sasl.enabled.mechanisms": MECHANISM,
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": jaas_text(MECHANISM, {}),
        "delegation.token.secret.key": "the brokers' own",
    }
    properties = tmp_path / "ours.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in protected.items()))
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    listeners = [f"SASL_PLAINTEXT://{address}" for address in addresses]
    with (
        zookeeper_ensemble(1, tmp_path) as ensemble,
        zookeeper_kafka_node(
            tmp_path / "kafka",
            "384m",
            zookeeper=ensemble.connect,
            settings=protected,
            listeners=listeners[:1],
        ) as kafka,
        BrokerProcess(
            tmp_path / "2",
            *("--zookeeper", ensemble.connect, "--config", str(properties), "--broker-id", "2"),
            *("--listener", listeners[1]),
        ),
    ):
        with Admin(kafka.bootstrap_servers) as admin:  # which is the controller
            password = ScramPassword(USER, MECHANISM, "geheim")
            assert admin.alter_scram_users([password]) == {USER: None}
        eventually(lambda: all(comes_in(each, USER, "geheim") for each in addresses))
        for giver, other in (addresses, addresses[::-1]):
            with Admin(config=login(giver, USER, "geheim")) as admin:
                token = admin.create_delegation_token([f"User:{USER}"])
                eventually(lambda token=token, other=other: comes_by(other, token))
                admin.renew_delegation_token(token.hmac)
                with Admin(config=login(other, USER, "geheim")) as others:
                    (found,) = others.describe_delegation_tokens()
                    assert found[:6] == token[:6]
                    others.expire_delegation_token(token.hmac)
                eventually(lambda token=token, giver=giver: not comes_by(giver, token))


def login(address: str, name: str, password: str, **options: str) -> dict[str, str]:
    line = jaas_text(MECHANISM, {"username": name, "password": password, **options})
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": line,
    }


def comes_by(address: str, token: DelegationToken) -> bool:
    return comes_in(address, token.token_id, token.password, tokenauth="true")


def comes_in(address: str, name: str, password: str, **options: str) -> bool:
    try:
        with Admin(config=login(address, name, password, **options)) as admin:
            return bool(admin.describe_cluster().nodes)
    except AuthenticationError:
        return False


def remove(peer: Peer, wanted: AclFilter) -> None:
    gone = peer.quietly("delete_acls", 3, filters=[filter_fields(wanted)])
    assert gone.filter_results[0].matching_acls, gone


def described(peer: Peer) -> set[AclBinding]:
    answer = peer.quietly("describe_acls", 3, **filter_fields(AclFilter()))
    return {
        AclBinding(
            ResourcePattern(
                ResourceType(resource.resource_type),
                resource.resource_name,
                PatternType(resource.pattern_type),
            ),
            AccessControlEntry(
                acl.principal,
                acl.host,
                AclOperation(acl.operation),
                PermissionType(acl.permission_type),
            ),
        )
        for resource in answer.resources
        for acl in resource.acls
    }


def test_quotas_are_shared_both_ways(tmp_path: Path) -> None:
    """A client would be throttled by one broker of a cluster and not by another."""
    with (
        zookeeper_ensemble(1, tmp_path) as ensemble,
        zookeeper_kafka_node(tmp_path / "kafka", "384m", zookeeper=ensemble.connect) as kafka,
        BrokerProcess(tmp_path / "2", "--zookeeper", ensemble.connect, "--broker-id", "2") as ours,
    ):
        theirs, mine = (Peer(Target(each.bootstrap_servers)) for each in (kafka, ours))
        entities = ({"user": "ä b*"}, {"user": None, "client-id": "a/b"}, {"client-id": None})
        expected = {tuple(sorted(each.items())): 1000.0 for each in entities}
        for writer, reader in ((theirs, mine), (mine, theirs)):
            set_quotas(writer, entities, 1000.0)
            eventually(lambda reader=reader: quotas_of(reader) == expected)
            set_quotas(reader, entities, None)
            eventually(lambda writer=writer: quotas_of(writer) == {})
        theirs.close()
        mine.close()


def set_quotas(
    peer: Peer, entities: tuple[dict[str, str | None], ...], value: float | None
) -> None:
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in each.items()],
            "ops": [{"key": "producer_byte_rate", "value": value or 0.0, "remove": value is None}],
        }
        for each in entities
    ]
    answer = peer.quietly("alter_client_quotas", 1, entries=entries)
    assert not any(each.error_code for each in answer.entries), answer


def quotas_of(peer: Peer) -> dict[tuple[tuple[str, str | None], ...], float]:
    answer = peer.quietly("describe_client_quotas", 1, components=[], strict=False)
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in each.entity)): value.value
        for each in answer.entries
        for value in each.values
        if value.key == "producer_byte_rate"
    }
