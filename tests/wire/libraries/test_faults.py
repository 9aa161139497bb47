"""Real clients beside faults on command: confluent-kafka, kafka-python, aiokafka."""

import asyncio
import socket
from collections.abc import Iterator

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.deadlines import deadline_s

import odradek

PATIENCE_S = deadline_s(60)


@pytest.fixture
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        broker.create_topic("orders")
        broker.create_topic("returns")
        yield broker


def confluent_producer(broker: odradek.Broker, client_id: str = "shop") -> Producer:
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": client_id,
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
        }
    )


def sent(producer: Producer, topic: str = "orders", value: str = "spool") -> str | None:
    """The client's report of a delivery: None, or the name of its error."""
    told: list[str | None] = []
    producer.produce(
        topic,
        value,
        on_delivery=lambda error, _: told.append(None if error is None else error.name()),
    )
    assert producer.flush(PATIENCE_S) == 0
    return told[0]


def values(broker: odradek.Broker, topic: str = "orders") -> list[bytes]:
    return [record.value for record in broker.records(topic)]


def test_a_refused_produce_is_tried_again(broker: odradek.Broker) -> None:
    """The error would not reach the client, strike too often, or leave the record twice."""
    producer = confluent_producer(broker)
    with broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2, topic="orders") as fault:
        assert sent(producer) is None
        assert fault.struck == 2
        assert broker.faults() == ()
    assert values(broker) == [b"spool"]
    with broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", client_id="shop") as fault:
        assert sent(producer) == "TOPIC_AUTHORIZATION_FAILED"
        assert sent(confluent_producer(broker, "other")) is None
        assert fault.struck == 1
    assert values(broker) == [b"spool", b"spool"]


def test_of_one_request_only_the_topic_that_is_meant_is_refused(broker: odradek.Broker) -> None:
    """A fault of one topic would hit what its client sends along with it."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, linger_ms=200, retries=0
    )
    try:
        producer.partitions_for("orders")
        producer.partitions_for("returns")
        with broker.fail("Produce", "MESSAGE_TOO_LARGE", topic="orders") as fault:
            refused = producer.send("orders", b"one")
            taken = producer.send("returns", b"two")
            assert taken.get(PATIENCE_S).offset == 0
            with pytest.raises(kafka.errors.MessageSizeTooLargeError):
                refused.get(PATIENCE_S)
            assert fault.struck >= 1
        assert (values(broker), values(broker, "returns")) == ([], [b"two"])
    finally:
        producer.close()


@pytest.mark.parametrize("after", [False, True])
def test_a_dropped_connection_before_and_after_the_effect(
    broker: odradek.Broker, after: bool
) -> None:
    """Both would look the same in the log, or the client would wait for its time-out."""
    producer = confluent_producer(broker)
    assert sent(producer, value="first") is None
    with broker.drop("Produce", times=1, after=after) as fault:
        assert sent(producer) is None
        assert fault.struck == 1
    # Not idempotent: what was appended and not acknowledged is appended once more.
    assert values(broker) == [b"first", b"spool", b"spool"][: 3 if after else 2]


def test_half_an_answer_is_none(broker: odradek.Broker) -> None:
    """A client would take half of a response for the whole, or wait for the other half."""
    producer = confluent_producer(broker)
    with broker.cut("Produce", times=1) as fault:
        assert sent(producer) is None
        assert fault.struck == 1
    assert values(broker) == [b"spool", b"spool"]


@pytest.mark.parametrize("after", [False, True])
def test_a_delay_is_on_the_brokers_clock(after: bool) -> None:
    """A test would have to wait for what it wants to see late."""
    clock = odradek.ManualClock()
    with odradek.Broker(clock=clock) as broker:
        broker.create_topic("orders")
        producer = confluent_producer(broker)
        with broker.delay(5_000, "Produce", after=after) as fault:
            producer.produce("orders", "spool")
            producer.poll(0)
            broker.wait_for_fault(fault, timeout=PATIENCE_S)
            assert values(broker) == ([b"spool"] if after else [])
            clock.advance(4_999)
            assert producer.flush(0.2) == 1
            clock.advance(1)
            assert producer.flush(PATIENCE_S) == 0
        assert values(broker) == [b"spool"]


def test_a_consumer_meets_an_error_of_its_topic(broker: odradek.Broker) -> None:
    """A fetch would be refused whatever it asks for, or with something its client overlooks."""
    broker.produce_many("orders", ["one", "two"])
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "billing",
            "auto.offset.reset": "error",
        }
    )
    try:
        broker.reset("billing", "earliest", topics=["orders"])
        with broker.fail("Fetch", "OFFSET_OUT_OF_RANGE", topic="orders") as fault:
            consumer.subscribe(["orders"])
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.error() is not None
            assert message.error().name() == "_AUTO_OFFSET_RESET"
            assert fault.struck >= 1
    finally:
        consumer.close()


def test_an_incremental_fetch_meets_the_fault_of_a_topic(broker: odradek.Broker) -> None:
    """With a fetch session the request names no topic any more, and the fault would miss it."""
    broker.produce("orders", "one")
    consumer = kafka.KafkaConsumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
    )
    try:
        assert next(consumer).value == b"one"
        consumer.poll(200)
        assert broker._running().fetch_sessions
        with broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2, topic="orders") as fault:
            for _ in range(10 * PATIENCE_S):
                if fault.is_used_up:
                    break
                consumer.poll(100)
            assert fault.struck == 2
        broker.produce("orders", "two")
        assert next(consumer).value == b"two"
    finally:
        consumer.close()


def test_aiokafka_waits_a_slow_disk_out() -> None:
    """A fault that holds one client up would hold up the loop that all of them are on."""

    async def main() -> None:
        async with odradek.Broker() as broker:
            await broker.create_topic_async("orders")
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
            await producer.start()
            try:
                with broker.slow_disk(100) as fault:
                    await producer.send_and_wait("orders", b"spool")
                    assert fault.struck >= 1
            finally:
                await producer.stop()
            assert len(await broker.records_async("orders")) == 1

    asyncio.run(main())


def test_a_group_is_refused_by_its_name(broker: odradek.Broker) -> None:
    """A fault of one group would keep all others from joining."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.protocol": "classic"}
    consumers = [Consumer({**settings, "group.id": group}) for group in ("billing", "audit")]
    try:
        with broker.fail("JoinGroup", "GROUP_AUTHORIZATION_FAILED", group="billing") as fault:
            for consumer in consumers:
                consumer.subscribe(["orders"])
            message = consumers[0].poll(PATIENCE_S)
            assert message is not None
            assert message.error() is not None
            assert message.error().name() == "GROUP_AUTHORIZATION_FAILED"
            consumers[1].poll(0)
            broker.wait_for_group("audit", members=1, timeout=PATIENCE_S)
            assert fault.struck >= 1
    finally:
        for consumer in consumers:
            consumer.close()


def test_a_lost_leadership_is_waited_out(broker: odradek.Broker) -> None:
    """A producer would be told an error that no broker tells, or lose the record."""
    producer = confluent_producer(broker)
    with broker.lose_leadership("orders") as fault:
        producer.produce("orders", "spool")
        producer.poll(0)
        broker.wait_for_fault(fault, times=2, timeout=PATIENCE_S)
        assert sent(confluent_producer(broker, "other"), "returns") is None
    assert producer.flush(PATIENCE_S) == 0
    assert values(broker) == [b"spool"]


def test_a_client_that_connects_too_soon_has_to_wait() -> None:
    """`max.connection.creation.rate`, set for a listener while the broker runs."""
    clock = odradek.ManualClock()
    with odradek.Broker(clock=clock) as broker:
        broker.create_topic("orders")
        host, _, port = broker.bootstrap_servers.rpartition(":")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        listener = ConfigEntry(
            "listener.name.plaintext.max.connection.creation.rate",
            "1",
            incremental_operation=AlterConfigOpType.SET,
        )
        change = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[listener])
        (done,) = admin.incremental_alter_configs([change]).values()
        done.result(PATIENCE_S)
        for _ in range(20):
            socket.create_connection((host, int(port))).close()
        late = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        with pytest.raises(KafkaException):
            late.list_topics(timeout=1)
        clock.advance(60_000)
        assert "orders" in late.list_topics(timeout=PATIENCE_S).topics
