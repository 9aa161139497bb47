"""Clients that know nothing of schedules, with a broker that does, on a clock that the test moves.

They write text headers and browse what is pending; the marks between their records (control
batches of a kind that Kafka does not have) must not show, nor stop them.
"""

import asyncio
import subprocess

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, TopicPartition
from tests.deadlines import deadline_s

import odradek
from odradek.clock import ManualClock

DAY_MS = 86_400_000


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def broker(clock):
    with odradek.Broker(clock=clock) as made:
        made.create_topic("orders")
        made.create_topic("later", config={"schedule.target.topic": "orders"})
        yield made


def delivered(broker):
    return sorted(record.value for record in broker.records("orders"))


def produce(broker, value, key=None, **headers):
    """Waits for the delivery by confluent's producer; raises what it is told."""
    told = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    pairs = [(name.replace("_", "-"), text.encode()) for name, text in headers.items()]
    producer.produce(
        "later", value, key, headers=pairs, on_delivery=lambda *each: told.append(each)
    )
    producer.flush()
    error, message = told[0]
    if error is not None:
        raise KafkaException(error)
    return message


def test_a_schedule_of_confluent(broker, clock):
    """Fails when librdkafka cannot schedule, replace, cancel, or is not told what is wrong."""
    produce(broker, b"week", b"a", deliver_after="7d")
    produce(broker, b"old", b"b", deliver_after="1d")
    produce(broker, b"new", b"b", deliver_after="2d")
    produce(broker, b"gone", b"c", deliver_after="1d")
    produce(broker, None, b"c")
    with pytest.raises(KafkaException, match="INVALID_RECORD"):
        produce(broker, b"bad", deliver_after="soon")
    for _ in range(6):
        clock.advance(DAY_MS)
    assert delivered(broker) == [b"new"]
    clock.advance(DAY_MS)
    assert delivered(broker) == [b"new", b"week"]


def test_transactions(broker, clock):
    """Fails when something is delivered that was aborted, or before it was committed."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"}
    producer = Producer(settings)
    producer.init_transactions()
    now = [("deliver-after", b"0")]
    producer.begin_transaction()
    producer.produce("later", b"aborted", headers=now)
    producer.flush()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.produce("later", b"committed", headers=now)
    producer.produce("later", b"replaced", b"k", headers=[("deliver-after", b"1s")])
    producer.flush()
    produce(broker, b"meanwhile", deliver_after="0")
    produce(broker, b"newer", b"k", deliver_after="2s")
    clock.advance(100)
    assert delivered(broker) == [b"meanwhile"]
    producer.commit_transaction()
    clock.advance(5000)
    assert delivered(broker) == [b"committed", b"meanwhile", b"newer"]


def browse_by_confluent(address):
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["later"])
    found = []
    while len(found) < 3:
        message = consumer.poll(deadline_s(10))
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return found


def browse_by_kafka_python(address):
    consumer = KafkaConsumer(bootstrap_servers=address, consumer_timeout_ms=20_000)
    consumer.assign([TopicPartition("later", 0)])
    consumer.seek_to_beginning()
    found = [next(consumer).value for _ in range(3)]
    consumer.close()
    return found


def browse_by_aiokafka(address):
    async def browse():
        consumer = AIOKafkaConsumer(
            "later",
            bootstrap_servers=address,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        async with consumer:
            return [(await consumer.getone()).value for _ in range(3)]

    return asyncio.run(browse())


BROWSERS = [browse_by_confluent, browse_by_kafka_python, browse_by_aiokafka]


@pytest.mark.parametrize("browse", BROWSERS)
def test_clients_pass_over_marks(broker, clock, browse):
    """Fails when a client stumbles over a mark, or is shown one."""
    for number in range(3):
        produce(broker, b"%d" % number, deliver_after="1s")
        clock.advance(1000)
    assert delivered(broker) == [b"0", b"1", b"2"]
    assert browse(broker.bootstrap_servers) == [b"0", b"1", b"2"]


def test_a_schedule_of_kcat(broker, clock, kcat):
    """Fails when a shell is not enough to schedule something."""
    command = [kcat, "-b", broker.bootstrap_servers, "-t", "later"]
    subprocess.run([*command, "-P", "-H", "deliver-after=1h"], input=b"tea\n", check=True)
    clock.advance(DAY_MS)
    assert delivered(broker) == [b"tea"]
    out = subprocess.run(
        [*command, "-C", "-o", "beginning", "-c", "1", "-q"], capture_output=True, check=True
    )
    assert out.stdout == b"tea\n"


def test_permissions(clock):
    """Fails when somebody delivers into a topic that he may not write to, or learns of it."""
    acls = ["User:ANONYMOUS write topic:later", "User:ANONYMOUS write topic:orders"]
    with odradek.Broker(clock=clock, acls=acls) as broker:
        for name in ("orders", "secret"):
            broker.create_topic(name)
        broker.create_topic("later", config={"schedule.enable": "true"})
        produce(broker, b"v", deliver_after="1s", deliver_to="orders")
        for name in ("secret", "missing"):
            with pytest.raises(KafkaException, match="INVALID_RECORD"):
                produce(broker, b"w", deliver_after="1s", deliver_to=name)
        clock.advance(1000)
        assert delivered(broker) == [b"v"]
        assert broker.records("secret") == []
