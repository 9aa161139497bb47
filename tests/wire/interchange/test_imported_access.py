"""`odradek import` takes over users, tokens, ACLs and quotas of a Kafka with and without ZooKeeper.

The ZooKeeper lets only users in.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.wire.interchange.test_shared_security import (
    ACLS,
    MECHANISM,
    USER,
    comes_by,
    comes_in,
    eventually,
    login,
)
from tests.wire.interchange.test_zookeeper import odradek_command
from tools.free_port import free_port
from tools.kafka_node import kafka_node, zookeeper_kafka_node
from tools.zookeeper_node import DIGEST_MODULE, JAAS_OPTION, zookeeper_ensemble

from odradek.acl import AclFilter
from odradek.client import DelegationToken, ScramPassword
from odradek.client.sync import Admin
from odradek.security.jaas import jaas_text
from odradek.testing.processes import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

AUTHORIZERS = {
    "kraft": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "zookeeper": "kafka.security.authorizer.AclAuthorizer",
}
PROTECTED = {
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": MECHANISM,
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": jaas_text(MECHANISM, {}),
    "delegation.token.secret.key": "the brokers' own",
}
QUOTAS: dict[tuple[tuple[str, str | None], ...], dict[str, float | None]] = {
    (("user", "ä b*"),): {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
    (("user", None), ("client-id", "a/b")): {"consumer_byte_rate": 2000.0},
    (("client-id", None),): {"controller_mutation_rate": 0.5},
    (("ip", "127.0.0.9"),): {"connection_creation_rate": 3.0},
}
PASSWORD = "geheim"
ZK_LOGIN = f'{DIGEST_MODULE} required username="broker" password="zk";'


@contextlib.contextmanager
def a_kafka(home: Path, kind: str, listener: str) -> Iterator[Any]:
    settings = PROTECTED | {"authorizer.class.name": AUTHORIZERS[kind]}
    if kind == "kraft":
        protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        settings["listener.security.protocol.map"] = protocols
        with kafka_node("384m", home / "kafka", settings=settings, listeners=[listener]) as node:
            yield node
        return
    (home / "client.conf").write_text(f"Client {{ {ZK_LOGIN} }};")
    with zookeeper_kafka_node(
        home / "kafka",
        "384m",
        zookeeper=(home / "connect").read_text(),
        settings=settings | {"zookeeper.set.acl": "true"},
        listeners=[listener],
        options=[f"-D{JAAS_OPTION}={home / 'client.conf'}"],
    ) as node:
        yield node


@contextlib.contextmanager
def its_zookeeper(home: Path, kind: str) -> Iterator[list[str]]:
    """The words by which an import finds it; it outlives the Kafka."""
    if kind == "kraft":
        yield []
        return
    with zookeeper_ensemble(1, home, {"broker": "zk"}) as ensemble:
        connect = f"{ensemble.connect}/kafka"
        (home / "connect").write_text(connect)
        (home / "way.properties").write_text(f"zookeeper.sasl.jaas.config={ZK_LOGIN}\n")
        yield ["--zookeeper", connect, "--zk-tls-config-file", str(home / "way.properties")]


def fill(bootstrap: str, protected: str) -> DelegationToken:
    """Makes what is to be imported, and of each kind something that is removed again."""
    with Admin(bootstrap) as admin:
        users = [ScramPassword(name, MECHANISM, PASSWORD) for name in (USER, "gone")]
        assert not any(admin.alter_scram_users(users).values())
        assert not any(admin.alter_scram_users(delete=[("gone", MECHANISM)]).values())
        assert not any(admin.create_acls(ACLS).values())
        assert len(admin.delete_acls([AclFilter(name="orders")])[AclFilter(name="orders")]) == 1
        assert not any(admin.alter_client_quotas(QUOTAS).values())
        gone = (("user", "gone"),)
        for value in (1.0, None):
            assert not any(
                admin.alter_client_quotas({gone: {"producer_byte_rate": value}}).values()
            )
    eventually(lambda: comes_in(protected, USER, PASSWORD))
    with Admin(config=login(protected, USER, PASSWORD)) as admin:
        token, other = (admin.create_delegation_token([f"User:{USER}"]) for _ in range(2))
        # A broker without ZooKeeper hears of them later than its controller.
        eventually(lambda: len(admin.describe_delegation_tokens()) == 2)
        admin.expire_delegation_token(other.hmac)
    eventually(lambda: comes_by(protected, token))
    return token


def sorted_entities(quotas: Any) -> dict[Any, Any]:
    return {tuple(sorted(entity)): values for entity, values in quotas.items()}


@pytest.mark.parametrize("kind", AUTHORIZERS)
def test_access_is_imported(tmp_path: Path, kind: str) -> None:
    """Every client would be refused, or every client let in, by the broker that takes over."""
    theirs, ours = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with its_zookeeper(tmp_path, kind) as words:
        with a_kafka(tmp_path, kind, f"SASL_PLAINTEXT://{theirs}") as kafka:
            token = fill(kafka.bootstrap_servers, theirs)
        imported = odradek_command(
            ["import", str(tmp_path / "kafka"), "--data-dir", str(tmp_path / "ours"), *words]
        )
    assert imported.returncode == 0, imported.stderr
    said = "1 users, 1 delegation tokens, 4 ACLs, 4 quotas; ACLs count with authorizer.class.name"
    assert said in imported.stderr
    properties = tmp_path / "ours.properties"
    settings = PROTECTED | {"authorizer.class.name": AUTHORIZERS[kind]}
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with BrokerProcess(
        tmp_path / "ours",
        *("--config", str(properties), "--listener", f"SASL_PLAINTEXT://{ours}"),
    ) as broker:
        with Admin(broker.bootstrap_servers) as admin:
            assert set(admin.describe_acls()) == {x for x in ACLS if x.pattern.name != "orders"}
            assert sorted_entities(admin.describe_client_quotas()) == sorted_entities(QUOTAS)
            assert admin.describe_scram_users() == {USER: {MECHANISM: 4096}}
        assert comes_in(ours, USER, PASSWORD)
        assert not comes_in(ours, "gone", PASSWORD)
        assert comes_by(ours, token)
        with Admin(config=login(ours, USER, PASSWORD)) as admin:
            (found,) = admin.describe_delegation_tokens()
            assert found[:6] == token[:6]


def test_without_its_login_zookeeper_is_not_read(tmp_path: Path) -> None:
    """An import without the settings that were asked for would be served open."""
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=x\n")
    with its_zookeeper(tmp_path, "zookeeper") as words:
        target = tmp_path / "ours"
        imported = odradek_command(
            ["import", str(tmp_path / "kafka"), "--data-dir", str(target), *words[:2]]
        )
    assert imported.returncode == 1
    assert imported.stderr.startswith(f"odradek: ZooKeeper at {words[1]}")
    assert imported.stderr.count("\n") == 1
    assert not target.exists()
