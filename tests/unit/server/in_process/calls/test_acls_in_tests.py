"""ACLs of a broker in a test: in words, decided by, taken along."""

import pytest
from tests.deadlines import deadline_s

import odradek
from odradek.acl import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.cli.free_port import free_port
from odradek.client import AclOperation, AclResourceType
from odradek.client.errors import AuthorizationError, KafkaError
from odradek.client.sync import Admin, Producer
from odradek.errors import BrokerError
from odradek.server.in_process.arguments.acl_texts import read_acls

ME = "User:ANONYMOUS"
MINE = AclBinding(
    ResourcePattern(AclResourceType.TOPIC, "mine"),
    AccessControlEntry(ME, "*", AclOperation.WRITE, PermissionType.ALLOW),
)


def test_acls_in_words():
    """A test would be about other ACLs than those it names."""
    acls = read_acls(
        [
            "User:alice read,write topic:orders-*",
            "deny bob describe-configs cluster from 10.0.0.1",
            "User:* ALL group:*",
            MINE,
        ]
    )
    prefixed = ResourcePattern(AclResourceType.TOPIC, "orders-", PatternType.PREFIXED)
    allow = PermissionType.ALLOW
    assert acls == [
        (prefixed, ("User:alice", "*", AclOperation.READ, allow)),
        (prefixed, ("User:alice", "*", AclOperation.WRITE, allow)),
        (
            ResourcePattern(AclResourceType.CLUSTER, "kafka-cluster"),
            ("User:bob", "10.0.0.1", AclOperation.DESCRIBE_CONFIGS, PermissionType.DENY),
        ),
        (
            ResourcePattern(AclResourceType.GROUP, "*"),
            ("User:*", "*", AclOperation.ALL, allow),
        ),
        MINE,
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("", "is no ACL"),
        ("User:alice read", "is no ACL"),
        ("alice read topic:t to day", "is no ACL"),
        ("alice red topic:t", "no operation red .did you mean read"),
        ("alice read topik:t", "no resource .did you mean topic"),
        ("alice read topic:", "no resource"),
    ],
)
def test_words_that_are_no_acl(words, reason):
    """A mistake in a test would be a broker that refuses everybody, or nobody."""
    with pytest.raises(ValueError, match=reason):
        odradek.Broker(acls=[words])


def test_a_broker_of_acls_lets_in_whom_they_name():
    """A suite could not see what production refuses."""
    with odradek.Broker(acls=[f"{ME} write topic:mine", f"{ME} alter cluster"]) as broker:
        broker.create_topic("mine")
        broker.create_topic("theirs")
        with Producer(broker.bootstrap_servers) as producer, Admin(broker.bootstrap_servers) as a:
            producer.send("mine", b"x").result()
            with pytest.raises(AuthorizationError):
                producer.send("theirs", b"x").result()
            assert set(a.list_topics()) == {"mine"}
            theirs = AclBinding(ResourcePattern(AclResourceType.TOPIC, "theirs"), MINE.entry)
            bad = AclBinding(ResourcePattern(AclResourceType.TOPIC, ""), MINE.entry)
            made = a.create_acls([theirs, bad])
            assert made[theirs] is None
            assert isinstance(made[bad], KafkaError)
            producer.send("theirs", b"x").result()
            assert set(a.describe_acls(AclFilter(name="theirs"))) == {theirs}
            gone = a.delete_acls([AclFilter(name="mine")])
            assert gone == {AclFilter(name="mine"): [MINE]}
            with pytest.raises(AuthorizationError):
                producer.send("mine", b"x").result()
        broker.restart()
        with Admin(broker.bootstrap_servers) as admin:
            assert len(admin.describe_acls()) == 2


def test_a_broker_whose_acls_are_refused_does_not_run():
    """It would keep its port, and `start` would never return."""
    nameless = AclBinding(ResourcePattern(AclResourceType.TOPIC, ""), MINE.entry)
    broker = odradek.Broker(port=free_port(), acls=[nameless])
    for _ in range(2):  # the port is free again
        with pytest.raises(BrokerError, match=r"INVALID_REQUEST"):
            broker.start()


@pytest.mark.slow
def test_without_an_authorizer_nothing_of_it_is_imported():
    """Every broker would start slower for what few need."""
    import subprocess
    import sys

    code = (
        "import odradek, sys\n"
        "with odradek.Broker() as broker: pass\n"
        "loaded = [name for name in sys.modules if 'authoriz' in name or 'acl_control' in name]\n"
        "assert set(loaded) <= {'odradek.handlers.authorized_operations', "
        "'odradek.server.access.authorization'}, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=deadline_s(60))


def test_a_snapshot_has_acls_and_quotas(tmp_path):
    """A broker that goes on from it would let everybody in, and bound nobody."""
    quotas = {"client-id:x": {"producer_byte_rate": 7}}
    with odradek.Broker(acls=[f"{ME} alter,describe-configs cluster"], quotas=quotas) as broker:
        states = [broker.snapshot(), broker.snapshot(tmp_path / "kept")]
    for state in (*states, tmp_path / "kept"):
        with odradek.Broker.from_snapshot(state) as again, Admin(again.bootstrap_servers) as admin:
            assert len(admin.describe_acls()) == 2
            assert admin.describe_client_quotas() == {
                (("client-id", "x"),): {"producer_byte_rate": 7}
            }
            assert admin.list_topics() == {}
