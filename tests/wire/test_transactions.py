"""Transactions of other people's clients: atomic, fenced, and exactly once through a chain."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import ProducerFenced
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from tests.wire.differential import Peer

from odradek import Broker, Cluster

TIMEOUT_S = 60
ROUNDS = 6


def create(bootstrap: str, *topics: str, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics(
        [NewTopic(topic, num_partitions=partitions, replication_factor=1) for topic in topics]
    )
    for future in made.values():
        future.result(TIMEOUT_S)


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
    wanted = {f"{number}-{index}" for number in range(0, ROUNDS, 2) for index in range(4)}
    committed = read_all(bootstrap, topic, "read_committed")
    assert sorted(committed) == sorted(wanted)
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
    assert read_all(bootstrap, topic, "read_committed") == ["successor"]


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
    out = read_all(bootstrap, target, "read_committed")
    assert sorted(out, key=int) == [str(number) for number in range(12)]


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
    wanted = {f"{number}-{index}" for number in range(0, ROUNDS, 2) for index in range(4)}
    assert sorted(read_all(bootstrap, topic, "read_committed")) == sorted(wanted)
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
    wanted = {f"{number}-{index}" for number in range(0, ROUNDS, 2) for index in range(4)}
    assert sorted(read_all(bootstrap, topic, "read_committed")) == sorted(wanted)


@pytest.mark.slow
def test_transactions_go_on_when_a_broker_dies() -> None:
    """Fails when markers do not reach other brokers, or those of a dead coordinator are lost."""
    with Cluster(3) as cluster:
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
        values = read_all(cluster.bootstrap_servers, "t", "read_committed", partitions=6)
        wanted = {f"{number}-{index}" for number in range(0, ROUNDS, 2) for index in range(6)}
        assert sorted(values) == sorted(wanted)


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
    assert len(read_all(bootstrap, topic, "read_committed")) == 200
    command = "org.apache.kafka.tools.TransactionsCommand"
    described = tool(command, "describe", *transactional_id).splitlines()[-1].split()
    assert described[1] == topic
    assert int(described[3]) > 1, "the epoch was not raised"
    assert described[4] == "CompleteCommit"
    assert topic in tool(command, "list")


UPGRADE, SAFE_DOWNGRADE = 1, 2


def finalize(bootstrap: str, level: int, kind: int) -> None:
    """Changes transaction.version, which decides by which protocol producers have transactions."""
    wish = {"feature": "transaction.version", "max_version_level": level, "upgrade_type": kind}
    peer = Peer(bootstrap)
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
        values = read_all(bootstrap, "t", "read_committed")
        assert sorted(values) == sorted(str(number) for number in range(len(changes)) for _ in "ab")


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
        assert len(read_all(bootstrap, "t", "read_committed")) == 200
        peer = Peer(bootstrap)
        answer = peer.ask("describe_transactions", 0, transactional_ids=["java"])
        peer.close()
        (state,) = answer.transaction_states
        assert (state.transaction_state, state.producer_epoch) == ("CompleteCommit", 0)
