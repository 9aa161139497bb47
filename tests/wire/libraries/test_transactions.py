"""Transactions of other people's clients: atomic, fenced, and exactly once through a chain."""

import asyncio
import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import ProducerFenced
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.structs import OffsetAndMetadata
from tests.deadlines import deadline_s
from tests.system.cluster.polling import until
from tests.wire.differential.harness import Peer, Target
from tests.wire.replicas import REPLICAS, await_ended, await_known
from tools import peers

from odradek import Broker, Cluster
from odradek.client import Admin
from odradek.client import Producer as OurProducer
from odradek.client.core.admin_types import TransactionDescription
from odradek.client.errors import KafkaError

TIMEOUT_S = deadline_s(60)
JAVA_TIMEOUT_S = deadline_s(240)
INPUTS = 40
ROUNDS = 6
# The records of every other transaction.
KEPT = [f"{number}-{index}" for number in range(0, ROUNDS, 2) for index in range(4)]


def create(bootstrap: str, *topics: str, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(topic, partitions, REPLICAS) for topic in topics]
    for topic, future in admin.create_topics(new).items():
        future.result(TIMEOUT_S)
        await_known(bootstrap, topic, partitions)


def transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    return producer


@contextlib.contextmanager
def reading(bootstrap: str, isolation: str, group: str = "unused"):
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def read_all(bootstrap: str, topic: str, isolation: str, partitions: int = 2) -> list[str]:
    """Everything up to the ends of the partitions, in the order of each."""
    with reading(bootstrap, isolation) as consumer:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        values: list[str] = []
        ends = 0
        while ends < partitions:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"nothing came, {values} so far"
            if message.error() is not None:
                ends += 1
            else:
                values.append(message.value().decode())
        return values


def read_committed(bootstrap: str, topic: str, partitions: int = 2) -> list[str]:
    """The committed records, once every transaction has ended in the topic."""
    await_ended(bootstrap, topic)
    return read_all(bootstrap, topic, "read_committed", partitions)


def test_a_transaction_is_read_whole_or_not_at_all(
    bootstrap: str, names: Callable[[str], str]
) -> None:
    """Fails when aborted records are read, or committed ones are missing."""
    topic = names("atomic")
    create(bootstrap, topic)
    producer = transactional(bootstrap, topic)
    for number in range(ROUNDS):
        producer.begin_transaction()
        for index in range(4):
            producer.produce(topic, f"{number}-{index}".encode(), partition=index % 2)
        producer.flush(TIMEOUT_S)
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    assert sorted(read_committed(bootstrap, topic)) == KEPT
    assert len(read_all(bootstrap, topic, "read_uncommitted")) == 4 * ROUNDS


def test_a_newer_producer_fences_the_older(bootstrap: str, names: Callable[[str], str]) -> None:
    """Fails when a zombie commits what its successor knows nothing of."""
    topic = names("fenced")
    create(bootstrap, topic)
    zombie = transactional(bootstrap, topic)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie", partition=0)
    zombie.flush(TIMEOUT_S)
    successor = transactional(bootstrap, topic)
    with pytest.raises(KafkaException):
        zombie.commit_transaction(TIMEOUT_S)
    successor.begin_transaction()
    successor.produce(topic, b"successor", partition=0)
    successor.commit_transaction(TIMEOUT_S)
    assert read_committed(bootstrap, topic) == ["successor"]


def test_offsets_move_with_the_records_that_were_made_of_them(
    bootstrap: str, names: Callable[[str], str]
) -> None:
    """Fails when a consume-transform-produce chain loses an input or has one twice in its output.

    Every other transaction is aborted and done again from the offsets that are committed.
    """
    source, target, group = (names(name) for name in ("source", "target", "chain"))
    create(bootstrap, source, target)
    feed = Producer({"bootstrap.servers": bootstrap})
    for number in range(12):
        feed.produce(source, str(number).encode(), partition=number % 2)
    assert feed.flush(TIMEOUT_S) == 0
    producer = transactional(bootstrap, target)
    done, attempt = 0, 0
    with reading(bootstrap, "read_committed", group) as consumer:
        places = [TopicPartition(source, index) for index in range(2)]
        while done < 12:
            committed = consumer.committed(places, TIMEOUT_S)
            consumer.assign(
                [
                    TopicPartition(each.topic, each.partition, max(each.offset, 0))
                    for each in committed
                ]
            )
            taken = take(consumer, 3)
            producer.begin_transaction()
            for message in taken:
                producer.produce(target, message.value(), partition=message.partition())
            producer.send_offsets_to_transaction(
                [
                    TopicPartition(each.topic, each.partition, each.offset)
                    for each in consumer.position(places)
                    if each.offset >= 0
                ],
                consumer.consumer_group_metadata(),
                TIMEOUT_S,
            )
            attempt += 1
            if attempt % 2:
                producer.abort_transaction(TIMEOUT_S)
            else:
                producer.commit_transaction(TIMEOUT_S)
                done += len(taken)
    assert sorted(map(int, read_committed(bootstrap, target))) == list(range(12))


def take(consumer: Consumer, count: int) -> list:
    taken: list = []
    ends = 0
    while len(taken) < count and ends < 2:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error() is None:
            taken.append(message)
        else:
            ends += 1
    return taken


def test_aiokafka_commits_aborts_moves_offsets_and_is_fenced(
    bootstrap: str, names: Callable[[str], str]
) -> None:
    """Fails when aiokafka's transactions are not atomic, or its zombie goes on."""
    topic, group = names("aio"), names("aio-group")
    create(bootstrap, topic)

    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
        await producer.start()
        for number in range(ROUNDS):
            await producer.begin_transaction()
            for index in range(4):
                value = f"{number}-{index}".encode()
                await producer.send_and_wait(topic, value, partition=index % 2)
            offsets = {AioTopicPartition(topic, 0): number + 1}
            await producer.send_offsets_to_transaction(offsets, group)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
        successor = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
        await successor.start()
        with pytest.raises(ProducerFenced):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"zombie", partition=0)
        await producer.stop()
        await successor.stop()

    asyncio.run(run())
    assert sorted(read_committed(bootstrap, topic)) == KEPT
    with reading(bootstrap, "read_committed", group) as consumer:
        (place,) = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
    assert place.offset == ROUNDS - 1


def test_kafka_python_commits_and_aborts(bootstrap: str, names: Callable[[str], str]) -> None:
    """Fails when kafka-python's transactions are not atomic.

    It flushes before it aborts: what it has not sent yet makes its own sender stumble.
    """
    topic = names("kp")
    create(bootstrap, topic)
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    producer.init_transactions()
    for number in range(ROUNDS):
        producer.begin_transaction()
        for index in range(4):
            producer.send(topic, f"{number}-{index}".encode(), partition=index % 2)
        producer.flush(TIMEOUT_S)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close(TIMEOUT_S)
    assert sorted(read_committed(bootstrap, topic)) == KEPT


def test_aiokafka_carries_each_record_once(bootstrap: str, names: Callable[[str], str]) -> None:
    """Fails when aiokafka's consume-transform-produce chain loses an input or has one twice.

    Every other transaction is aborted and done again from the offsets that are committed.
    """
    source, target, group = (names(name) for name in ("source", "target", "chain"))
    fill_source(bootstrap, source, target)

    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=target)
        consumer = AIOKafkaConsumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await producer.start()
        await consumer.start()
        done, attempt = 0, 0
        while done < INPUTS:
            taken = await consumer.getmany(timeout_ms=200, max_records=7)
            if not taken:
                continue
            await producer.begin_transaction()
            for place, messages in taken.items():
                for each in messages:
                    await producer.send_and_wait(target, each.value, partition=place.partition)
            offsets = {place: messages[-1].offset + 1 for place, messages in taken.items()}
            await producer.send_offsets_to_transaction(offsets, group)
            attempt += 1
            if attempt % 2:
                await producer.abort_transaction()
                for place in consumer.assignment():
                    consumer.seek(place, await consumer.committed(place) or 0)
            else:
                await producer.commit_transaction()
                done += sum(map(len, taken.values()))
        await consumer.stop()
        await producer.stop()

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))
    assert_carried(bootstrap, target)


def test_kafka_python_carries_each_record_once(bootstrap: str, names: Callable[[str], str]) -> None:
    """Fails when kafka-python's consume-transform-produce chain loses an input or has one twice.

    It flushes before it ends a transaction, see above.
    """
    source, target, group = (names(name) for name in ("source", "target", "chain"))
    fill_source(bootstrap, source, target)
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=target)
    producer.init_transactions()
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=7,
    )
    places = [KafkaTopicPartition(source, index) for index in range(2)]
    consumer.assign(places)
    done, attempt, deadline = 0, 0, time.monotonic() + TIMEOUT_S
    while done < INPUTS:
        assert time.monotonic() < deadline, f"{done} records were carried"
        taken = consumer.poll(timeout_ms=200)
        if not taken:
            continue
        producer.begin_transaction()
        for place, messages in taken.items():
            for each in messages:
                producer.send(target, each.value, partition=place.partition)
        offsets = {
            place: OffsetAndMetadata(messages[-1].offset + 1, "", -1)
            for place, messages in taken.items()
        }
        producer.send_offsets_to_transaction(offsets, group)
        producer.flush(TIMEOUT_S)
        attempt += 1
        if attempt % 2:
            producer.abort_transaction()
            for place in places:
                consumer.seek(place, consumer.committed(place) or 0)
        else:
            producer.commit_transaction()
            done += sum(map(len, taken.values()))
    consumer.close()
    producer.close(TIMEOUT_S)
    assert_carried(bootstrap, target)


def fill_source(bootstrap: str, source: str, target: str) -> None:
    """Two topics, and in one of them what a chain has to carry to the other."""
    create(bootstrap, source, target)
    feed = Producer({"bootstrap.servers": bootstrap})
    for number in range(INPUTS):
        feed.produce(source, f"input-{number}".encode(), partition=number % 2)
    assert feed.flush(TIMEOUT_S) == 0


def assert_carried(bootstrap: str, target: str) -> None:
    """Every input is there once."""
    wanted = [f"input-{number}" for number in range(INPUTS)]
    assert sorted(read_committed(bootstrap, target)) == sorted(wanted)


@pytest.mark.slow
def test_transactions_go_on_when_a_broker_dies() -> None:
    """Fails when markers do not reach other brokers, or those of a dead coordinator are lost."""
    with Cluster(3, config={"transaction.state.log.num.partitions": 1}) as cluster:
        cluster.create_topic("t", partitions=6)
        producer = transactional(cluster.bootstrap_servers, "t")
        for number in range(ROUNDS):
            producer.begin_transaction()
            for index in range(6):
                producer.produce("t", f"{number}-{index}".encode(), partition=index)
            producer.flush(TIMEOUT_S)
            if number == 2:
                cluster.kill(cluster.leader("__transaction_state", 0).id)
            if number % 2:
                producer.abort_transaction(TIMEOUT_S)
            else:
                producer.commit_transaction(TIMEOUT_S)
        values = read_committed(cluster.bootstrap_servers, "t", partitions=6)
        wanted = {f"{number}-{index}" for number in range(0, ROUNDS, 2) for index in range(6)}
        assert sorted(values) == sorted(wanted)


@pytest.mark.slow
def test_what_a_transaction_waits_for_is_told() -> None:
    """Fails when an operator cannot see why a transaction does not end. The words of this run are
    in docs/concepts/transactions.md."""
    with Cluster(3) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=3)
        producer = transactional(cluster.bootstrap_servers, "shop")
        producer.begin_transaction()
        for index in range(3):
            producer.produce("orders", b"v", partition=index)
        assert producer.flush(TIMEOUT_S) == 0
        coordinator = cluster.leader("__transaction_state", 12).id
        for other in {1, 2, 3} - {coordinator}:
            cluster.partition(coordinator, other)
        commit = threading.Thread(target=producer.commit_transaction, args=(TIMEOUT_S,))
        commit.start()
        told = await_told(cluster, coordinator, "DelayedWrite")
        assert told["DelayedWrite"] == "replicas of the internal topic"
        assert told["DelayedProduce"].startswith("acks of 1 partitions: __transaction_state-12 to ")
        assert "DelayedMarkers" not in told, "nobody has decided anything"
        # Once the replicas have it, the markers would be written before anybody can look.
        with cluster.fail("WriteTxnMarkers", "NOT_LEADER_OR_FOLLOWER"):
            cluster.heal()
            told = await_told(cluster, coordinator, "DelayedMarkers")
            assert told["DelayedMarkers"].startswith("markers in orders-")
        commit.join(TIMEOUT_S)
        assert not commit.is_alive()


def await_told(cluster: Cluster, broker_id: int, kind: str) -> dict[str, str]:
    """The operations of a broker in words of what they wait for, once one of a kind is among
    them."""
    deadline = time.monotonic() + TIMEOUT_S
    while kind not in (told := {e.kind: e.missing for e in cluster.waiting()[broker_id]}):
        assert time.monotonic() < deadline, told
        time.sleep(0.001)
    return told


@pytest.mark.slow
@pytest.mark.xdist_group("jvm")
def test_kafkas_producer_speaks_the_newer_protocol(
    bootstrap: str, tool: Callable[..., str], names: Callable[[str], str]
) -> None:
    """Fails when Kafka's own producer cannot commit, or its epoch is not raised by every end."""
    topic = names("java")
    create(bootstrap, topic)
    sent = ["--topic", topic, "--num-records", "200", "--record-size", "10", "--throughput", "400"]
    address = ["--command-property", f"bootstrap.servers={bootstrap}"]
    transactional_id = ["--transactional-id", topic]
    tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *[*sent, *address, *transactional_id, "--transaction-duration-ms", "50"],
    )
    assert len(read_committed(bootstrap, topic)) == 200
    command = "org.apache.kafka.tools.TransactionsCommand"

    def described() -> list[str]:
        return tool(command, "describe", *transactional_id).splitlines()[-1].split()

    # Its coordinator writes down that it has ended when the markers are written.
    until(lambda: described()[4] == "CompleteCommit", "the last one has ended", described)
    assert described()[1] == topic
    assert int(described()[3]) > 1, "the epoch was not raised"
    assert topic in tool(command, "list")


UPGRADE, SAFE_DOWNGRADE = 1, 2


def finalize(bootstrap: str, level: int, kind: int) -> None:
    """Changes transaction.version, which decides by which protocol producers have transactions."""
    wish = {"feature": "transaction.version", "max_version_level": level, "upgrade_type": kind}
    peer = Peer(Target(bootstrap))
    answer = peer.ask("update_features", 2, feature_updates=[wish], timeout_ms=9000)
    peer.close()
    assert answer.error_code == 0, answer.error_message


def test_transactions_go_on_while_their_version_is_lowered_and_raised() -> None:
    """Fails when a transaction that is open at the change cannot be ended, or later ones begun."""
    with Broker() as broker:
        bootstrap = broker.bootstrap_servers
        broker.create_topic("t", partitions=2)
        producer = transactional(bootstrap, "kept")
        changes = [None, (1, SAFE_DOWNGRADE), (0, SAFE_DOWNGRADE), (2, UPGRADE), None]
        for number, change in enumerate(changes):
            later = transactional(bootstrap, f"made-{number}")
            for each in (producer, later):
                each.begin_transaction()
                for index in range(2):
                    each.produce("t", b"%d" % number, partition=index)
                each.flush(TIMEOUT_S)
            if change is not None:
                finalize(bootstrap, *change)
            producer.commit_transaction(TIMEOUT_S)
            later.abort_transaction(TIMEOUT_S)
        values = read_committed(bootstrap, "t")
        assert sorted(values) == sorted(str(number) for number in range(len(changes)) for _ in "ab")


@pytest.mark.parametrize("level", [0, 1, 2])
def test_our_own_client_commits_aborts_and_is_fenced(level: int) -> None:
    """Fails when our own producer's transactions depend on the version that the broker has."""
    with Broker() as broker:
        bootstrap = broker.bootstrap_servers
        broker.create_topic("t", partitions=2)
        if level < 2:
            finalize(bootstrap, level, SAFE_DOWNGRADE)

        async def run() -> None:
            async with OurProducer(bootstrap, transactional_id="id") as producer:
                await producer.init_transactions()
                for number in range(ROUNDS):
                    producer.begin_transaction()
                    for index in range(2):
                        await producer.send_and_wait("t", b"%d" % number, partition=index)
                    if number % 2:
                        await producer.abort_transaction()
                    else:
                        await producer.commit_transaction()
                producer.begin_transaction()
                await producer.send_and_wait("t", b"zombie", partition=0)
                async with OurProducer(bootstrap, transactional_id="id") as successor:
                    await successor.init_transactions()
                    with pytest.raises(KafkaError):
                        await producer.commit_transaction()

        asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))
        wanted = [str(number) for number in range(0, ROUNDS, 2) for _ in range(2)]
        assert sorted(read_committed(bootstrap, "t")) == wanted


@pytest.mark.slow
@pytest.mark.xdist_group("jvm")
def test_kafkas_producer_takes_the_older_protocol_when_the_version_is_lowered(
    tool: Callable[..., str],
) -> None:
    """Fails when clients do not notice the change: the epoch would be raised by every end."""
    with Broker() as broker:
        bootstrap = broker.bootstrap_servers
        broker.create_topic("t", partitions=2)
        finalize(bootstrap, 1, SAFE_DOWNGRADE)
        tool.unbound(  # type: ignore[attr-defined]
            "org.apache.kafka.tools.ProducerPerformance",
            *["--topic", "t", "--num-records", "200", "--record-size", "10", "--throughput", "400"],
            *["--command-property", f"bootstrap.servers={bootstrap}", "--transactional-id", "java"],
            *["--transaction-duration-ms", "50"],
        )
        assert len(read_committed(bootstrap, "t")) == 200
        peer = Peer(Target(bootstrap))

        def told() -> tuple[str, int]:
            answer = peer.ask("describe_transactions", 0, transactional_ids=["java"])
            (state,) = answer.transaction_states
            return state.transaction_state, state.producer_epoch

        until(lambda: told() == ("CompleteCommit", 0), "the last one has ended", told)
        peer.close()


@pytest.fixture
def java_chain(
    java: str, javac: str, bootstrap: str, tmp_path: Path
) -> Callable[[Sequence[Path], str, str], dict[str, str]]:
    """Runs `java/TransactionalChain.java` with the clients among some jars: what it printed."""
    (tmp_path / "log4j2.properties").write_text("rootLogger.level = OFF\n", encoding="utf-8")

    def call(jars: Sequence[Path], *topics: str) -> dict[str, str]:
        path = os.pathsep.join([str(tmp_path), *map(str, jars)])
        source = Path(__file__).parents[1] / "java" / "TransactionalChain.java"
        for command in (
            [javac, "-cp", path, "-d", str(tmp_path), str(source)],
            [java, "-Xmx128m", "-cp", path, source.stem, bootstrap, *topics, str(INPUTS)],
        ):
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
        return dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())

    return call


@pytest.mark.slow
@pytest.mark.xdist_group("jvm")
@pytest.mark.parametrize(("release", "raises_epochs"), [("3.9", False), ("4.3", True)])
def test_javas_producer_is_atomic_fenced_and_carries_each_record_once(
    java_chain: Callable[..., dict[str, str]],
    bootstrap: str,
    names: Callable[[str], str],
    release: str,
    raises_epochs: bool,
) -> None:
    """Fails when Kafka's own producer, of the older protocol and of the newer, loses a record,
    has one twice, or goes on when another has its id. By the newer one every end has an epoch."""
    source, target = names("source"), names("target")
    fill_source(bootstrap, source, target)
    jars = peers.kafka_jars() if release == "4.3" else peers.zookeeper_kafka_jars()
    printed = java_chain(jars, source, target)
    assert printed["fenced by"] in ("ProducerFencedException", "InvalidProducerEpochException")
    assert int(printed["attempts"]) >= 2
    wanted = [f"kept-{number}-{partition}" for number in range(0, 6, 2) for partition in range(2)]
    wanted += [f"input-{number}" for number in range(INPUTS)]
    assert sorted(read_committed(bootstrap, target)) == sorted(wanted)
    with reading(bootstrap, "read_committed", target) as consumer:
        places = consumer.committed([TopicPartition(source, index) for index in range(2)])
    assert [each.offset for each in places] == [INPUTS // 2] * 2
    assert (epoch_of(bootstrap, target) > 10) is raises_epochs


def epoch_of(bootstrap: str, transactional_id: str) -> int:
    """The epoch of the producer that has an id."""

    async def ask() -> int:
        async with Admin(bootstrap) as admin:
            found = (await admin.describe_transactions([transactional_id]))[transactional_id]
            assert isinstance(found, TransactionDescription), found
            return found.producer_epoch

    return asyncio.run(ask())
