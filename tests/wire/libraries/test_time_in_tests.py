"""Real clients against brokers whose time the test moves: the stories of docs/time-in-tests.md."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaProducer
from tests.deadlines import deadline_s
from tests.wire.readers import AiokafkaReader, ConfluentReader, KafkaPythonReader, Reader

import odradek
from odradek.client import Admin
from odradek.client.core.admin_types import ConfigChange, ConfigResource
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.server.in_process.calls.group_helpers import GroupState

PATIENCE_S = deadline_s(120)
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
READERS = [
    ConfluentReader,
    pytest.param(AiokafkaReader, marks=pytest.mark.slow),
    pytest.param(KafkaPythonReader, marks=pytest.mark.slow),
]


def until(holds: Callable[[], bool]) -> None:
    """Waits for a client, which lives by the machine's time."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "the client does not come"
        time.sleep(0.01)


@contextmanager
def reading(readers: list[Reader]) -> Iterator[None]:
    for reader in readers:
        reader.start()
    try:
        yield
    finally:
        for reader in readers:
            reader.finish()


def member_ids(state: GroupState) -> set[str]:
    return {member.member_id for member in state.members}


# --- what clients send and get ------------------------------------------------------------------


def test_a_client_produces_and_consumes_on_a_clock_that_stands() -> None:
    """A manual clock that begins in the past has every record of every client refused: its
    timestamp is in the broker's future."""
    clock = odradek.ManualClock()
    assert abs(clock.wall_ms() - time.time_ns() // 1_000_000) < DAY_MS
    refused: list[object] = []
    with odradek.Broker(clock=clock) as broker:
        broker.create_topic("orders")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("orders", b"spool", on_delivery=lambda error, _: refused.append(error))
        assert producer.flush(deadline_s(30)) == 0
        assert refused == [None]
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings)
        try:
            consumer.subscribe(["orders"])
            message = consumer.poll(deadline_s(30))
            assert message is not None
            assert (message.error(), message.value()) == (None, b"spool")
        finally:
            consumer.close()


@pytest.mark.parametrize("make_reader", READERS)
def test_a_fetch_that_waits_is_over_when_its_time_is(make_reader: type[Reader]) -> None:
    """A consumer's long poll waits for the clock, and the test cannot see for what."""
    clock = odradek.ManualClock()
    with odradek.Broker(clock=clock) as broker:
        broker.produce("orders", "one")
        reader = make_reader(broker.bootstrap_servers, "orders", "billing")
        with reading([reader]):
            until(lambda: reader.read == [b"one"])
            until(lambda: broker.next_deadline("DelayedFetch") is not None)
            fetch = broker.advance_to_next_deadline("DelayedFetch")
            assert 0 < fetch.in_ms <= 500
            assert "bytes" in fetch.why
            broker.produce("orders", "two")
            until(lambda: reader.read == [b"one", b"two"])


# --- members ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_reader", READERS)
def test_members_that_live_outlive_any_move(make_reader: type[Reader]) -> None:
    """A jump over the session time-out would expire everybody: heartbeats come in real time."""
    clock = odradek.ManualClock()
    with odradek.Broker(clock=clock) as broker:
        broker.create_topic("orders", partitions=2)
        readers = [make_reader(broker.bootstrap_servers, "orders", "billing") for _ in range(2)]
        with reading(readers):
            before = broker.wait_for_group("billing", members=2, timeout=PATIENCE_S)
            for jump_ms in (59_999, 60_000, HOUR_MS, 30 * DAY_MS):
                clock.advance(jump_ms)
                assert broker.group("billing") == before
            # Timestamps of the machine are old news by now, and delivered all the same.
            broker.produce("orders", "still there")
            until(lambda: [b"still there"] in [reader.read for reader in readers])


@pytest.mark.parametrize("make_reader", READERS)
def test_a_member_expires_on_command_and_comes_back(make_reader: type[Reader]) -> None:
    """A consumer hangs for too long: its own fate, and that of the others."""
    with odradek.Broker(clock=odradek.ManualClock()) as broker:
        broker.create_topic("orders", partitions=2)
        readers = [make_reader(broker.bootstrap_servers, "orders", "billing") for _ in range(2)]
        with reading(readers):
            before = broker.wait_for_group("billing", members=2, timeout=PATIENCE_S)
            [lost, kept] = sorted(member_ids(before))
            broker.expire_member("billing", lost)
            assert member_ids(broker.group("billing")) == {kept}
            until(lambda: len(member_ids(broker.group("billing")) - {lost}) == 2)
            broker.wait_for_group("billing", members=2, timeout=PATIENCE_S)
            with pytest.raises(BrokerError) as unknown:
                broker.expire_member("billing", lost)
            assert unknown.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_of_the_newer_protocol_live_and_expire_the_same() -> None:
    """The two protocols have sessions of their own, and one of them would be forgotten."""
    clock = odradek.ManualClock()
    with odradek.Broker(clock=clock) as broker:
        broker.create_topic("orders")
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "billing",
                "group.protocol": "consumer",
                "client.id": "till",
            }
        )
        try:
            consumer.subscribe(["orders"])
            until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()))
            before = broker.group("billing")
            clock.advance(DAY_MS)
            assert broker.group("billing") == before
            broker.expire_member("billing", "till")
            assert not broker.group("billing").members
        finally:
            consumer.close()


@pytest.mark.slow
def test_a_member_whose_process_was_killed_expires_with_its_session() -> None:
    """If living members live for ever, the dead must not."""
    clock = odradek.ManualClock()
    with odradek.Broker(clock=clock) as broker:
        broker.create_topic("orders")
        program = (
            "import sys; from confluent_kafka import Consumer\n"
            "c = Consumer({'bootstrap.servers': sys.argv[1], 'group.id': 'billing',"
            " 'session.timeout.ms': 45000})\n"
            "c.subscribe(['orders'])\n"
            "while True: c.poll(1)\n"
        )
        client = subprocess.Popen([sys.executable, "-c", program, broker.bootstrap_servers])
        try:
            broker.wait_for_group("billing", members=1, timeout=PATIENCE_S)
            clock.advance(HOUR_MS)
            assert len(broker.group("billing").members) == 1
        finally:
            client.kill()
            client.wait()
        clock.advance(44_999)
        assert len(broker.group("billing").members) == 1
        clock.advance(1)
        assert not broker.group("billing").members


@pytest.mark.parametrize("make_reader", READERS)
def test_a_group_lives_on_a_clock_that_runs_away(make_reader: type[Reader]) -> None:
    """At two hundred times the pace a session of a minute is over before the first heartbeat."""
    with odradek.Broker(clock=odradek.ManualClock(speed=200)) as broker:
        broker.create_topic("orders")
        reader = make_reader(broker.bootstrap_servers, "orders", "billing")
        with reading([reader]):
            before = broker.wait_for_group("billing", members=1, timeout=PATIENCE_S)
            began_ms = broker._clock.monotonic_ms()
            until(lambda: broker._clock.monotonic_ms() > began_ms + 2 * 60_000)
            assert broker.group("billing") == before
            broker.produce("orders", "spool")
            until(lambda: reader.read == [b"spool"])


@pytest.mark.parametrize("make_reader", READERS)
def test_offsets_expire_when_nobody_has_used_them_for_long(make_reader: type[Reader]) -> None:
    """Whether an application starts from the beginning after its holidays can be tried."""
    clock = odradek.ManualClock()
    with odradek.Broker(clock=clock) as broker:
        broker.produce("orders", "spool")
        reader = make_reader(broker.bootstrap_servers, "orders", "billing")
        with reading([reader]):
            until(lambda: reader.read == [b"spool"])
        assert broker.lag("billing") == {("orders", 0): 0}
        clock.advance(6 * DAY_MS)
        assert broker.lag("billing") == {("orders", 0): 0}
        clock.advance(2 * DAY_MS)
        with pytest.raises(BrokerError):
            broker.lag("billing")


# --- records ------------------------------------------------------------------------------------


def confluent_transaction(bootstrap: str) -> object:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "till"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("orders", b"open")
    assert producer.flush(PATIENCE_S) == 0
    return producer


def kafka_python_transaction(bootstrap: str) -> object:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="till")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"open").get(PATIENCE_S)
    return producer


def aiokafka_transaction(bootstrap: str) -> object:
    async def begin() -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="till")
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"open")
        return producer

    runner = asyncio.Runner()
    return runner, runner.run(begin())


@pytest.mark.parametrize(
    "begin", [confluent_transaction, kafka_python_transaction, aiokafka_transaction]
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # they end as a client that hangs does
def test_a_transaction_that_is_left_open_is_aborted(begin: Callable[[str], object]) -> None:
    """A client that hangs holds up everybody who reads what is committed, for a minute."""
    clock = odradek.ManualClock()
    with odradek.Broker(clock=clock) as broker:
        broker.create_topic("orders")
        hanging = begin(broker.bootstrap_servers)
        broker.produce("orders", "after it")
        assert broker.records("orders", read_committed=True) == []
        clock.advance(70_000)  # transaction.timeout.ms, and the next look for such
        read = broker.records("orders", read_committed=True)
        assert [record.value for record in read] == [b"after it"]
        assert [record.value for record in broker.records("orders")] == [b"open", b"after it"]
        match hanging:
            case (asyncio.Runner() as runner, AIOKafkaProducer() as producer):
                runner.run(producer.stop())
                runner.close()


Records = list[tuple[bytes | None, bytes]]


def send_by_confluent(bootstrap: str, topic: str, records: Records) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in records:
        producer.produce(topic, value, key=key)
        assert producer.flush(PATIENCE_S) == 0


def send_by_kafka_python(bootstrap: str, topic: str, records: Records) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for key, value in records:
        producer.send(topic, value, key=key).get(PATIENCE_S)
    producer.close()


def send_by_aiokafka(bootstrap: str, topic: str, records: Records) -> None:
    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for key, value in records:
                await producer.send_and_wait(topic, value, key=key)

    asyncio.run(send())


SENDERS = [send_by_confluent, send_by_kafka_python, send_by_aiokafka]
Send = Callable[[str, str, Records], None]


@pytest.mark.parametrize("send", SENDERS)
def test_retention_takes_records_away(send: Send) -> None:
    """Whether an application reads in time what is kept for a day can be tried in a moment."""
    clock = odradek.ManualClock()
    with odradek.Broker(clock=clock) as broker:
        broker.create_topic("orders", config={"retention.ms": DAY_MS})
        send(broker.bootstrap_servers, "orders", [(None, b"old")])
        clock.advance(DAY_MS - HOUR_MS)
        broker.produce("orders", "new")
        assert len(broker.records("orders")) == 2
        clock.advance(DAY_MS + HOUR_MS)
        assert broker.records("orders") == []


@pytest.mark.parametrize("send", SENDERS)
def test_compaction_leaves_the_newest_of_each_key(send: Send) -> None:
    """A table's topic has been compacted when the call returns, in the background or not."""
    clock = odradek.ManualClock()
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": HOUR_MS,
        "min.cleanable.dirty.ratio": 0.01,
    }
    with odradek.Broker(clock=clock) as broker:
        broker.create_topic("prices", config=settings)
        prices: Records = [(b"spool", price) for price in (b"1", b"2", b"3")]
        send(broker.bootstrap_servers, "prices", prices)
        clock.advance(2 * HOUR_MS)
        broker.produce("prices", "4", key="thread")  # begins the next segment
        clock.advance(60_000)  # log.cleaner.backoff.ms
        assert [record.value for record in broker.records("prices")] == [b"3", b"4"]


@pytest.mark.parametrize("send", SENDERS)
def test_the_windows_of_a_quota_go_by_the_clock(send: Send) -> None:
    """A reassignment under a throttle takes hours; whether it ends would never be tried."""

    async def move(cluster: odradek.Cluster, replica: int) -> None:
        async with Admin(cluster.bootstrap_servers) as admin:
            throttles = {
                ConfigResource.topic("orders"): {"follower.replication.throttled.replicas": "*"},
                ConfigResource.broker(replica): {"follower.replication.throttled.rate": "1"},
            }
            for resource, settings in throttles.items():
                changes = [ConfigChange(*setting) for setting in settings.items()]
                assert await admin.alter_configs({resource: changes}) == {resource: None}
            partition = TopicPartition("orders", 0)
            target = {partition: [replica]}
            assert await admin.alter_partition_reassignments(target) == {partition: None}

    clock = odradek.ManualClock()
    config = {"replica.fetch.max.bytes": 300}  # a record a fetch
    with odradek.Cluster(2, clock=clock, config=config) as cluster:
        cluster.create_topic("orders", replication_factor=1)
        [there] = cluster.partition_state("orders", 0).replicas
        send(cluster.bootstrap_servers, "orders", [(None, b"x" * 200)] * 3)
        asyncio.run(move(cluster, 3 - there))
        # A record at a time, and then nothing until it has left the windows.
        for _ in range(2):
            clock.advance(5_000)
            assert cluster.partition_state("orders", 0).is_reassigning
            clock.advance(HOUR_MS)
        moved = cluster.partition_state("orders", 0)
        assert (moved.replicas, moved.is_reassigning) == ((3 - there,), False)
