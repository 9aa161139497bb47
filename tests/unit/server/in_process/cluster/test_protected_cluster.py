"""`odradek.Cluster(security=...)`: brokers log in to each other, and replicate all the same."""

import pytest
from tests.unit.server.in_process.cluster.test_cluster import until

import odradek
from odradek.client.errors import AuthenticationError, AuthorizationError
from odradek.client.sync import Admin, Consumer, Producer
from odradek.server.in_process.protected.protection import BROKER_USER

USERS = {"alice": "secret", "bob": "geheim"}
ACLS = [
    "User:alice all topic:*",
    "User:alice all group:*",
    "User:alice all transactional-id:*",
]


def certificates() -> None:
    """Skips a test where nobody can make them."""
    pytest.importorskip("cryptography", reason="PEER MISSING, NOT TESTED: the extra `security`")


@pytest.mark.parametrize("word", ["mtls", "plain", "oauth", "scram+tls"])
def test_a_protected_cluster_outlives_its_leader(word: str) -> None:
    """Followers, coordinators or markers would not get through, and records be lost."""
    if "tls" in word:
        certificates()
    with odradek.Cluster(3, security=word, users=USERS) as cluster:
        login = cluster.login("alice").client()
        cluster.create_topic("t", config={"min.insync.replicas": 2})
        with Producer(config=login, transactional_id="tx") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("t", b"one").result()
            leader = cluster.leader("t")
            assert leader is not None
            leader.kill()
            with producer.transaction():
                producer.send("t", b"two").result()
        leader.start()
        until(cluster, "t", 1, 2, 3)
        settings = {**cluster.login("bob").client(), "group.id": "g"}
        settings |= {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        with Consumer(config=settings, topics=["t"]) as consumer:
            found = [next(consumer).value for _ in range(2)]
        assert found == [b"one", b"two"]


def test_brokers_may_do_everything_and_users_what_the_acls_say() -> None:
    """Followers would be refused, or every user be as good as a broker."""
    with odradek.Cluster(2, security="scram", users=USERS, acls=ACLS) as cluster:
        cluster.create_topic("t", config={"min.insync.replicas": 2})
        with Producer(config=cluster.login("alice").client(), transactional_id="tx") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("t", b"x").result()
        with (
            Producer(config=cluster.login("bob").client()) as producer,
            pytest.raises(AuthorizationError),
        ):
            producer.send("t", b"x").result()
        with (
            pytest.raises(AuthenticationError),
            Admin(config=cluster.login(BROKER_USER, "guessed").client()) as admin,
        ):
            admin.list_topics()


def test_brokers_have_certificates_where_clients_have_none() -> None:
    """Brokers and clients would be ANONYMOUS alike, and the ACLs of one those of the other."""
    certificates()
    acls = ["User:ANONYMOUS write,describe topic:t", "deny User:ANONYMOUS cluster-action cluster"]
    with odradek.Cluster(2, security="tls", acls=acls) as cluster:
        cluster.create_topic("t", config={"min.insync.replicas": 2})
        with Producer(config=cluster.login("", "").client()) as producer:
            producer.send("t", b"x").result()


def test_a_cluster_without_security_has_acls_and_quotas() -> None:
    """Its followers are ANONYMOUS as its clients are, and would be refused."""
    quotas = {"client-id:x": {"producer_byte_rate": 7}}
    mine = "User:ANONYMOUS write,describe topic:mine"
    theirs = "User:ANONYMOUS describe-configs cluster"
    with odradek.Cluster(2, acls=[mine, theirs], quotas=quotas) as cluster:
        cluster.create_topic("mine", config={"min.insync.replicas": 2})
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send("mine", b"x").result()
        with Admin(cluster.brokers[1].bootstrap_servers) as admin:
            assert admin.describe_client_quotas() == {
                (("client-id", "x"),): {"producer_byte_rate": 7}
            }
        with pytest.raises(ValueError, match="has no authentication"):
            cluster.login("alice")


def test_a_password_of_the_brokers_own_is_shown_nowhere() -> None:
    """A report of a failed test is read by many."""
    with odradek.Cluster(2, security="plain", users=USERS) as cluster:
        password = cluster._protection._broker_password  # type: ignore[union-attr]
        assert password not in cluster.report() + repr(cluster) + repr(cluster.brokers)
