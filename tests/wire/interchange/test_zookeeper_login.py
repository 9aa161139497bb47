"""Brokers log in to ZooKeeper and protect their nodes there, as a Kafka 3.9 does.

The ensemble lets nobody in who has not logged in by DIGEST-MD5.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import deadline_s
from tests.wire.interchange.test_shared_security import eventually
from tools.kafka_node import zookeeper_kafka_node
from tools.zookeeper_node import (
    DIGEST_MODULE,
    JAAS_OPTION,
    ZooKeeperEnsemble,
    zookeeper_ensemble,
)

from odradek.client import NewTopic, ScramPassword
from odradek.client.sync import Admin
from odradek.testing.processes import BrokerProcess, ProcessFailed

pytest.importorskip("puresasl")

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

# A password that must be escaped in the file, in DIGEST-MD5, and where it is printed.
PASSWORD = 'a "b\\c,=; d'
USERS = {"broker": PASSWORD, "other": "other-secret"}
SETTINGS = {
    "zookeeper.set.acl": "true",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "the brokers' own",
}
# Names with numbers of their own, as those of sessions, brokers and topics.
VARIABLE = re.compile(r"\d{5,}")


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def jaas(name: str, password: str) -> str:
    return f'{DIGEST_MODULE} required username="{name}" password="{escaped(password)}";'


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
    users = {name: escaped(password) for name, password in USERS.items()}
    with zookeeper_ensemble(1, tmp_path, users) as running:
        yield running


@contextmanager
def our_broker(
    home: Path, ensemble: ZooKeeperEnsemble, login: str | None, chroot: str = ""
) -> Iterator[BrokerProcess]:
    settings = SETTINGS | ({} if login is None else {"zookeeper.sasl.jaas.config": login})
    properties = home / "ours.properties"
    lines = (f"{k}={v}\n".replace("\\", "\\\\") for k, v in settings.items())
    properties.write_text("".join(lines), encoding="utf-8")
    arguments = ("--zookeeper", ensemble.connect + chroot, "--config", str(properties))
    with BrokerProcess(home / "ours", *arguments, "--broker-id", "1", log=home / "log") as broker:
        yield broker


@contextmanager
def their_broker(home: Path, ensemble: ZooKeeperEnsemble, chroot: str) -> Iterator[Any]:
    file = home / "client.conf"
    file.write_text(f"Client {{ {jaas('broker', PASSWORD)} }};", encoding="utf-8")
    with zookeeper_kafka_node(
        home / "kafka",
        "384m",
        zookeeper=ensemble.connect + chroot,
        settings=SETTINGS,
        options=[f"-D{JAAS_OPTION}={file}"],
    ) as node:
        yield node


@contextmanager
def looking(ensemble: ZooKeeperEnsemble, name: str) -> Iterator[KazooClient]:
    sasl = {"mechanism": "DIGEST-MD5", "username": name, "password": USERS[name]}
    client = KazooClient(ensemble.connect, sasl_options=sasl, timeout=deadline_s(10))
    client.start(timeout=deadline_s(30))
    try:
        yield client
    finally:
        client.stop()
        client.close()


def acls_below(client: KazooClient, path: str) -> dict[str, list[str]]:
    """The ACL of every node there, by its path from there on."""
    found: dict[str, list[str]] = {}

    def walk(below: str) -> None:
        try:
            acl, _ = client.get_acls(path + below)
            names = client.get_children(path + below)
        except NoNodeError:
            return  # it was of a moment
        shown = sorted(f"{each.id.scheme}:{each.id.id}:{each.perms}" for each in acl)
        found[VARIABLE.sub("N", below) or "/"] = shown
        for name in names:
            walk(f"{below}/{name}")

    walk("")
    return found


def use(bootstrap: str) -> None:
    """Lets the broker create nodes of most kinds."""
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic("t", 1, config={"retention.ms": "5000"})])
        admin.alter_scram_users([ScramPassword("alice", "SCRAM-SHA-256", "secret")])


def same_paths(ours: Mapping[str, object], theirs: Mapping[str, object]) -> set[str]:
    return set(ours) & set(theirs)


def test_nodes_are_protected_as_kafka_s(tmp_path: Path, ensemble: ZooKeeperEnsemble) -> None:
    """Any client of ZooKeeper could read the users' keys and become the controller."""
    with our_broker(tmp_path, ensemble, jaas("broker", PASSWORD), "/ours") as ours:
        use(ours.bootstrap_servers)
        with looking(ensemble, "broker") as client:
            mine = acls_below(client, "/ours")
    with their_broker(tmp_path, ensemble, "/theirs") as theirs:
        use(theirs.bootstrap_servers)
        with looking(ensemble, "broker") as client:
            others = acls_below(client, "/theirs")
    both = same_paths(mine, others)
    assert {path: mine[path] for path in both} == {path: others[path] for path in both}
    expected = {"/", "/controller", "/brokers/ids/1", "/config/users/alice", "/config/topics/t"}
    expected |= {"/brokers/topics/t/partitions/0/state", "/consumers", "/delegation_token"}
    assert expected <= both
    assert mine["/config/users/alice"] == ["sasl:broker:31"]


def test_another_user_cannot_change_them(tmp_path: Path, ensemble: ZooKeeperEnsemble) -> None:
    """Below a chroot, as ZooKeeper's root is open to all."""
    with our_broker(tmp_path, ensemble, jaas("broker", PASSWORD), "/ours") as ours:
        use(ours.bootstrap_servers)
        with looking(ensemble, "other") as client:
            client.chroot = "/ours"
            assert client.get("/brokers/topics/t")[0]
            for refused in (
                lambda: client.set("/controller_epoch", b"9"),
                lambda: client.delete("/controller"),
                lambda: client.create("/brokers/topics/mine"),
                lambda: client.get("/config/users/alice"),
                lambda: client.get_children("/delegation_token/tokens"),
            ):
                with pytest.raises(NoAuthError):
                    refused()


@pytest.mark.parametrize("name", ["broker", "nobody"])
def test_a_refused_login_ends_the_start(
    tmp_path: Path, ensemble: ZooKeeperEnsemble, name: str
) -> None:
    with (
        pytest.raises(ProcessFailed) as failure,
        our_broker(tmp_path, ensemble, jaas(name, "wrong")),
    ):
        pass
    said = (tmp_path / "log").read_text() + str(failure.value)
    assert f"refuses the login of the user '{name}', or hung up during it" in said
    assert "wrong" not in said
    assert "Traceback" not in said


def test_a_broker_outlives_a_restart_of_the_ensemble(
    tmp_path: Path, ensemble: ZooKeeperEnsemble
) -> None:
    """It logs in again, also where the ensemble hangs up during that."""
    (node,) = ensemble.nodes
    with our_broker(tmp_path, ensemble, jaas("broker", PASSWORD)) as ours:
        users = tmp_path / "zookeeper-1" / "jaas.conf"
        right = users.read_text()
        node.kill()
        users.write_text(right.replace("user_broker", "user_nobody"))
        node.start()
        node.await_serving()
        log = tmp_path / "log"
        eventually(lambda: "refuses the login of the user 'broker'" in log.read_text())
        node.kill()
        users.write_text(right)
        node.start()
        node.await_serving()
        eventually(lambda: _creates(ours.bootstrap_servers))
        assert log.read_text().count("Logged in to ZooKeeper") == 1
        assert "Traceback" not in log.read_text()


def _creates(bootstrap: str) -> bool:
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic("again", 1)])
        return "again" in admin.list_topics()
