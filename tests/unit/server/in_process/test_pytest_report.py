"""What pytest's report of a failed test tells of the brokers, and that other plugins agree."""

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import pytest

@pytest.mark.odradek(config={"num.partitions": 2})
def test_that_fails(odradek_broker):
    odradek_broker.produce("orders", "spool", partition=1)
    odradek_broker.reset("billing", "earliest", topics=["orders"])
    odradek_broker.delay(5, "Fetch", topic="orders")
    from confluent_kafka import Producer
    with odradek_broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED"):
        producer = Producer({
            "bootstrap.servers": odradek_broker.bootstrap_servers, "client.id": "shop"
        })
        producer.produce("orders", "spool", partition=0)
        assert producer.flush(60) == 0
    assert False

def test_that_holds(odradek_broker):
    assert odradek_broker.topics() == {}
"""


def test_a_failed_tests_report_tells_of_its_broker(pytester: pytest.Pytester) -> None:
    """Whoever reads a failed run would know nothing of the topics, groups and errors behind it."""
    pytester.makepyfile(SUITE)
    done = pytester.runpytest_inprocess("-p", "no:asyncio", "--strict-markers")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            "*odradek: Broker *",
            "at 127.0.0.1:*",
            "topics  orders-0 ends at 0",
            "        orders-1 ends at 1",
            "groups  billing: Empty, 0 members, behind in orders-0 by 0, orders-1 by 1",
            "waits   nothing",
            "errors  Produce from shop: TOPIC_AUTHORIZATION_FAILED for orders-0",
            "faults  delay Fetch of topic orders by 5 ms (so far 0)",
        ]
    )


ASYNCHRONOUS = """
import asyncio
import pytest
from aiokafka import AIOKafkaProducer

async def round_trip(broker, topic):
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    await producer.start()
    try:
        await producer.send_and_wait(topic, b"spool")
    finally:
        await producer.stop()
    [record] = await broker.wait_for_async(topic, 1, timeout=60)
    assert record.value == b"spool"
    assert await broker.topics_async() != {}
    with broker.pause():
        pass

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.asyncio
@pytest.mark.parametrize("number", range(3))
async def test_with_pytest_asyncio(odradek_broker, number):
    await odradek_broker.create_topic_async("orders")
    await round_trip(odradek_broker, "orders")

@pytest.mark.anyio
@pytest.mark.parametrize("number", range(3))
async def test_with_anyio(odradek_session_broker, odradek_topic, number):
    await round_trip(odradek_session_broker, odradek_topic)

@pytest.mark.asyncio
async def test_that_fails(odradek_broker):
    await odradek_broker.produce_async("orders", "spool")
    raise AssertionError
"""


@pytest.mark.slow
def test_asynchronous_tests_in_several_processes(pytester: pytest.Pytester) -> None:
    """A team with pytest-asyncio, anyio or xdist could not use the fixtures as they are."""
    pytest.importorskip("pytest_asyncio", reason="PEER MISSING, NOT TESTED: pytest-asyncio")
    pytester.makepyfile(ASYNCHRONOUS)
    settings = ("-o", "asyncio_default_fixture_loop_scope=function")
    done = pytester.runpytest_subprocess("-n", "2", "-W", "error", *settings)
    done.assert_outcomes(passed=6, failed=1)
    done.stdout.fnmatch_lines(["*odradek: Broker*", "topics  orders-0 ends at 1"])
