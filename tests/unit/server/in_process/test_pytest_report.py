"""Pytest's report of a failed test tells of the brokers, and other plugins agree."""

import pytest

import odradek

pytest_plugins = ["pytester"]

# Loaded here: a run within this process forgets the modules that it loads first, and the next one
# would have a second registry of running brokers.
BROKER = odradek.Broker

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
    producer.close()
    assert False

def test_that_holds(odradek_broker):
    assert odradek_broker.topics() == {}
"""


def test_a_failed_tests_report_tells_of_its_broker(pytester: pytest.Pytester) -> None:
    """The reader of a failed run would know nothing of the topics, groups and errors behind it."""
    pytester.makepyfile(SUITE)
    done = pytester.runpytest_inprocess("-p", "no:asyncio", "--strict-markers")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            "*odradek: Broker *",
            "at 127.0.0.1:*",
            "topics  orders: ends of partitions 1 at 1",
            "groups  billing: Empty, 0 members, behind in orders-0 by 0, orders-1 by 1",
            "waits   nothing",
            "errors  Produce from shop: TOPIC_AUTHORIZATION_FAILED for orders-0",
            "faults  delay Fetch of topic orders by 5 ms (so far 0)",
        ]
    )


NEIGHBOURS = """
import pytest
import odradek

LEFT = []

@pytest.fixture(scope="session")
def shared():
    with odradek.Broker() as broker:
        broker.produce("of_the_session", "spool")
        yield broker.bootstrap_servers

def test_that_uses_it(shared):
    assert False

def test_that_asks_for_it_later(request):
    assert not request.getfixturevalue("shared")

def test_that_leaves_one_running():
    LEFT.append(odradek.Broker().start())
    LEFT[0].produce("left", "spool")
    for number in range(900):
        LEFT[0].create_topic(f"empty-{number:03}")
    assert False

def test_without_a_broker():
    assert False

def test_that_cleans_up():
    LEFT[0].stop()
"""


def test_a_report_tells_of_the_tests_own_brokers(pytester: pytest.Pytester) -> None:
    """The broker of other tests would fill the report of one that has nothing to do with it, and
    900 empty topics hide the one that has a record."""
    pytester.makepyfile(NEIGHBOURS)
    done = pytester.runpytest_inprocess("-p", "no:asyncio", "--strict-markers")
    done.assert_outcomes(passed=1, failed=4)
    by_test = done.stdout.str().split("\n_____")
    uses, asks, leaves, without = by_test[1:5]
    assert "of_the_session: ends of partitions 0 at 1" in uses
    assert "of_the_session: ends of partitions 0 at 1" in asks
    assert "of_the_session" not in leaves
    assert "topics  left: ends of partitions 0 at 1\n        empty: empty-000, " in leaves
    assert "empty-009 and 890 more\n" in leaves
    assert "odradek:" not in without


BLOCKS = """
import asyncio
import dataclasses
import pytest
import odradek

LEFT = []

@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    reason: str

ALWAYS = Frozen("one for all tests")

class Reportless(odradek.Broker):
    def report(self):
        raise ZeroDivisionError

def test_block():
    with odradek.Cluster(1) as cluster:
        cluster.produce("of_the_cluster", "spool")
        with odradek.Broker() as broker:
            broker.produce("of_the_broker", "spool")
            assert False

def test_on_a_loop():
    async def main():
        async with odradek.Broker() as broker:
            await broker.produce_async("of_the_loop", "spool")
            assert False
    asyncio.run(main())

def test_that_holds():
    with pytest.raises(KeyError):
        with odradek.Broker() as broker:
            broker.produce("of_the_one_before", "spool")
            raise KeyError

def test_without_a_broker():
    assert False

def test_that_fails_after_an_expected_error():
    with pytest.raises(KeyError):
        with odradek.Broker() as broker:
            broker.produce("of_an_expected_error", "spool")
            raise KeyError
    assert False

def test_that_collects_errors():
    found = []
    try:
        with odradek.Broker() as broker:
            broker.produce("of_the_group", "spool")
            raise KeyError
    except KeyError as error:
        found.append(error)
    raise ExceptionGroup("all of them", found)

def test_that_raises_another_error():
    try:
        with odradek.Broker() as broker:
            broker.produce("of_the_cause", "spool")
            raise Frozen("this")
    except Frozen:
        pytest.fail("that")

def test_of_an_unsteady_error_that_is_expected():
    with pytest.raises(Frozen):
        with odradek.Broker() as broker:
            broker.produce("of_the_one_before", "spool")
            raise ALWAYS

def test_of_an_unsteady_error():
    raise ALWAYS

def test_without_a_report():
    LEFT.append(Reportless().start())
    with Reportless():
        assert False

def test_that_has_stopped_it():
    with odradek.Broker() as broker:
        broker.stop()
        assert False

def test_that_cleans_up():
    LEFT[0].stop()
"""


def test_a_report_tells_of_a_block_that_the_error_has_left(pytester: pytest.Pytester) -> None:
    """A test that starts its broker with `with` would never show what it held, a report that fails
    would end the run, and a report would tell of another test's, or of an error that the test
    expected."""
    pytester.makepyfile(BLOCKS)
    done = pytester.runpytest_inprocess("-p", "no:asyncio", "--strict-markers")
    done.assert_outcomes(passed=3, failed=9)
    failures = done.stdout.str().split("\n_____")[1:10]
    block, loop, without, expected, group, cause, unsteady, reportless, stopped = failures
    assert "odradek: Broker 1 -" in block
    assert "topics  of_the_broker: ends of partitions 0 at 1" in block
    assert "odradek: Cluster 2 -" in block
    assert "topics  of_the_cluster: ends of partitions 0 at 1" in block
    assert "topics  of_the_loop: ends of partitions 0 at 1" in loop
    assert "odradek:" not in without + expected + unsteady
    assert "topics  of_the_group: ends of partitions 0 at 1" in group
    assert "topics  of_the_cause: ends of partitions 0 at 1" in cause
    assert reportless.count("no report can be made: ZeroDivisionError()") == 2
    assert "odradek:" not in stopped


WRONG_MARKS = """
import pytest

@pytest.mark.odradek(conf={})
def test_mistyped(odradek_broker):
    pass

@pytest.mark.odradek({"num.partitions": 2})
def test_without_its_name(odradek_cluster):
    pass

@pytest.mark.odradek(security="plain", users=[("alice", "secret")])
def test_pairs(odradek_broker):
    pass

@pytest.mark.odradek(config=["num.partitions"])
def test_names(odradek_broker):
    pass

@pytest.mark.odradek(acls=[7])
def test_numbers(odradek_cluster):
    pass
"""


def test_a_wrong_mark_is_told(pytester: pytest.Pytester) -> None:
    """A typing error in it would end in a KeyError inside of the plugin."""
    pytester.makepyfile(WRONG_MARKS)
    done = pytester.runpytest_inprocess("-p", "no:asyncio", "--strict-markers")
    done.assert_outcomes(errors=5)
    done.stdout.fnmatch_lines(
        [
            "*the mark is @pytest.mark.odradek(config={...},*not (conf=...)",
            "*the mark is @pytest.mark.odradek(config={...},*not (dict)",
            "*users is a mapping of names to passwords, not a value of type list",
            "*config is a mapping of settings to their values, and not of type list",
            "*an ACL is a text or an AclBinding, and not of type int",
        ]
    )


CLUSTER = """
import pytest

@pytest.mark.odradek(config={"num.partitions": 2})
def test_three_brokers(odradek_cluster, odradek_clock):
    odradek_cluster.produce("orders", "spool")
    assert odradek_cluster.topics() == {"orders": 2}
    assert len(odradek_cluster.brokers) == 3
    odradek_clock.advance(3_600_000)
    odradek_cluster.produce("orders", "thread")
    times = [record.timestamp for record in odradek_cluster.records("orders")]
    assert max(times) - min(times) == 3_600_000

def test_one(odradek_module_broker):
    odradek_module_broker.produce("shared", "spool")

def test_two(odradek_module_broker):
    assert odradek_module_broker.topics() == {"shared": 1}
"""


def test_a_cluster_and_a_broker_of_a_file(pytester: pytest.Pytester) -> None:
    """Every suite with replicas or a slow set-up would write these fixtures anew."""
    pytester.makepyfile(CLUSTER)
    done = pytester.runpytest_inprocess("-p", "no:asyncio", "--strict-markers")
    done.assert_outcomes(passed=3)


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
    done.stdout.fnmatch_lines(["*odradek: Broker*", "topics  orders: ends of partitions 0 at 1"])


SECRETIVE = """
import os
import pytest
import odradek
from odradek.client.sync import Producer

PASSWORD = os.environ["THE_PASSWORD"]

def users():
    return {"alice": PASSWORD}

@pytest.fixture(params=["plain", "scram+tls", "oauth"])
def broker(request):
    with odradek.Broker(security=request.param, users=users()) as broker:
        yield broker

def test_settings(broker):
    login = broker.login("alice")
    confluent, java, client, spark = login.confluent(), login.java(), login.client(), login.spark()
    token = login.token()
    assert {**confluent, "acks": "1"} == {}

def test_refused(broker):
    with Producer(config=broker.login("alice", PASSWORD + "x").client()) as producer:
        producer.send("t", b"1").result()
    assert False

def test_mistakes():
    odradek.Broker(security="scram", users=users(), num_partitions=3)

def test_pairs():
    odradek.Broker(security="scram", users=list(users().items()))

def test_cluster():
    odradek.Cluster(security="scam", users=users())
"""


def test_a_report_shows_no_secrets(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a password, a token or a key stands among the variables of a failed test, or a
    broker that was refused cannot be shown."""
    pytest.importorskip("cryptography", reason="PEER MISSING, NOT TESTED: the extra `security`")
    monkeypatch.setenv("THE_PASSWORD", "gregor-and-grete")
    pytester.makepyfile(SECRETIVE)
    done = pytester.runpytest_inprocess(
        "-p", "no:asyncio", "--strict-markers", "--showlocals", "--log-level=DEBUG", "-vv"
    )
    done.assert_outcomes(failed=9)
    for unwanted in ("gregor-and-grete", "PRIVATE KEY", "eyJ", "raised in repr"):
        done.stdout.no_fnmatch_line(f"*{unwanted}*")
