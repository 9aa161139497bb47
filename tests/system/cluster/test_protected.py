"""Three broker processes that meet in ZooKeeper and speak with each other over TLS, logged in by
SCRAM or PLAIN."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("kazoo")

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadlines import deadline_ms
from tests.system.cluster.polling import PATIENCE_S, until
from tests.system.cluster.running_cluster import BROKERS, RunningCluster
from tests.system.cluster.test_faults import FAULTS
from tools import peers
from tools.free_port import free_port
from tools.pem_stores import pem_stores
from tools.zookeeper_node import zookeeper_ensemble

from odradek.security.jaas import jaas_text
from odradek.server.in_process.protected.authority import CertificateAuthority
from odradek.testing.processes import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster faults")]

MECHANISM = "SCRAM-SHA-512"
USERS = {"broker": "s3cret-of-brokers", "alice": "s3cret-of-alice"}
SETTINGS = {
    "security.inter.broker.protocol": "SASL_SSL",
    "sasl.mechanism.inter.broker.protocol": MECHANISM,
    "sasl.enabled.mechanisms": MECHANISM,
    "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": jaas_text(
        MECHANISM, {"username": "broker", "password": USERS["broker"]}
    ),
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:broker;User:alice",
    "zookeeper.session.timeout.ms": str(deadline_ms(2000)),
    "replica.lag.time.max.ms": str(deadline_ms(1500)),
    "replica.fetch.wait.max.ms": "200",
    "replica.socket.timeout.ms": str(deadline_ms(2000)),
    "controller.socket.timeout.ms": str(deadline_ms(2000)),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
}


def test_a_leader_is_killed(tmp_path: Path) -> None:
    """Followers, the controller's commands or markers would not get through a listener that asks
    who is there; or the first broker could not know the users that are in ZooKeeper."""
    authority = CertificateAuthority(datetime.now(UTC))
    stores = pem_stores(authority, tmp_path)
    properties = tmp_path / "server.properties"
    lines = (f"{name}={value}\n" for name, value in {**SETTINGS, **stores}.items())
    properties.write_text("".join(lines))
    ports = {broker_id: free_port() for broker_id in (1, 2, 3)}
    addresses = ",".join(f"localhost:{port}" for port in ports.values())
    client = {
        "bootstrap.servers": addresses,
        "security.protocol": "sasl_ssl",
        "ssl.ca.pem": authority.certificate,
        "sasl.mechanism": MECHANISM,
        "sasl.username": "alice",
        "sasl.password": USERS["alice"],
    }
    users = [f"--add-scram={MECHANISM}=[name={name},password={USERS[name]}]" for name in USERS]
    with zookeeper_ensemble(1, tmp_path) as ensemble:
        brokers = {
            broker_id: BrokerProcess(
                tmp_path / str(broker_id),
                *("--zookeeper", ensemble.connect, "--config", str(properties)),
                *("--broker-id", str(broker_id)),
                *("--listener", f"SASL_SSL://localhost:{port}"),
                *(users if broker_id == 1 else ()),
                log=tmp_path / f"{broker_id}.log",
            )
            for broker_id, port in ports.items()
        }
        try:
            for each in brokers.values():
                each.start()
            _lose_a_leader(client, brokers)
        finally:
            for each in brokers.values():
                each.kill()
    for path in tmp_path.glob("*.log"):
        text = path.read_text()
        assert "Traceback" not in text
        assert not any(password in text for password in USERS.values())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """A cluster whose brokers speak with each other over TLS, as one user."""
    home = tmp_path_factory.mktemp("cluster")
    users = {"username": "broker", "password": USERS["broker"], "user_broker": USERS["broker"]}
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.internal.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.internal.plain.sasl.jaas.config": jaas_text("PLAIN", users),
        **pem_stores(CertificateAuthority(datetime.now(UTC)), home),
    }
    try:
        with RunningCluster(home, settings) as made:
            yield made
            made.stop_soundly()
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")


def test_one_fault_after_another(cluster: RunningCluster) -> None:
    """Connections between brokers that break, hang or come anew amid a handshake or a login would
    leave a replica behind for good."""
    rng = random.Random(20261129)
    with cluster.load("protected") as load:
        for fault in rng.sample(FAULTS, len(FAULTS)):
            fault(cluster, load, rng.choice(BROKERS))
            load.await_progress()
            cluster.await_in_sync("protected")
    for each in cluster.brokers.values():
        assert USERS["broker"] not in each.log.read_text()


def _lose_a_leader(client: dict[str, str], brokers: dict[int, BrokerProcess]) -> None:
    admin = AdminClient(client)
    admin.create_topics([NewTopic("t", 1, 3)])["t"].result(PATIENCE_S)

    def leader_and_isr() -> tuple[int, set[int]]:
        found = admin.list_topics("t", PATIENCE_S).topics["t"].partitions[0]
        return found.leader, set(found.isrs)

    until(lambda: leader_and_isr()[1] == {1, 2, 3}, "all replicas are in sync", leader_and_isr)
    producer = Producer({**client, "transactional.id": "tx"})
    producer.init_transactions(PATIENCE_S)
    _commit(producer, "one")
    brokers[leader_and_isr()[0]].kill()
    _commit(producer, "two")
    reading = {"group.id": "g", "isolation.level": "read_committed", "enable.auto.commit": "false"}
    consumer = Consumer({**client, **reading})
    # A group's topic could not be made now: a third of the replicas is away.
    consumer.assign([TopicPartition("t", 0, 0)])
    try:
        values = [each.value() for each in consumer.consume(2, PATIENCE_S)]
    finally:
        consumer.close()
    assert values == [b"one", b"two"]


def _commit(producer: Producer, value: str) -> None:
    producer.begin_transaction()
    producer.produce("t", value, partition=0)
    producer.commit_transaction(PATIENCE_S)
