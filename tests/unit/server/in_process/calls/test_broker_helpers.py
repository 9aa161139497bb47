"""The questions that a test may ask `odradek.Broker`: records, topics, groups, lag, a restart."""

import asyncio
import os
import threading
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Consumer
from tests.deadlines import deadline_s

import odradek
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.tables.topic import Topic


def test_records_go_in_and_come_out() -> None:
    """A test that wants one record in a topic would have to bring a client."""
    with odradek.Broker() as broker:
        broker.create_topic("orders", partitions=2)
        headers = {"trace": "7", "empty": None}
        assert broker.produce("orders", "spool", key=b"k", headers=headers, partition=1) == (1, 0)
        assert broker.produce(
            "orders", None, key="k", timestamp=1_700_000_000_000, partition=1
        ) == (
            1,
            1,
        )
        assert [broker.produce("orders", b"x") for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]
        by_key, _ = broker.produce("orders", b"y", key=b"some key")
        assert broker.produce("orders", b"z", key=b"some key")[0] == by_key
        first, second = broker.records("orders", partition=1)[:2]
        assert (first.key, first.value, first.offset) == (b"k", b"spool", 0)
        assert first.headers == [("trace", b"7"), ("empty", None)]
        assert (second.value, second.timestamp) == (None, 1_700_000_000_000)
        assert len(broker.records("orders")) == 7


def test_more_records_than_one_read_brings() -> None:
    """A long topic would come back cut off."""
    with odradek.Broker() as broker:
        big = b"x" * 300_000
        for _ in range(9):
            broker.produce("big", big)
        assert [record.offset for record in broker.records("big")] == list(range(9))


def test_a_mistyped_name_is_answered_with_the_one_that_was_meant() -> None:
    """After a mistyped topic, group or setting one would read of an error code."""
    with odradek.Broker() as broker:
        broker.produce("orders", b"x")
        broker.reset("billing", "earliest", ["orders"])
        for ask in (
            lambda: broker.records("oders"),
            lambda: broker.delete_topic("oders"),
            lambda: broker.configure("oders", {"retention.ms": 1}),
            lambda: broker.to_arrow("oders"),
        ):
            with pytest.raises(BrokerError, match=r"called 'oders' .did you mean orders"):
                ask()
        setting = r"INVALID_CONFIG: .* setting called '{}' .did you mean retention\.ms"
        with pytest.raises(BrokerError, match=setting.format("retention.mss")):
            broker.create_topic("x", config={"retention.mss": 1})
        with pytest.raises(BrokerError, match=setting.format("retention_ms")):
            broker.configure("orders", {"retention_ms": 1})
        with pytest.raises(BrokerError, match=r"has no offsets .did you mean billing"):
            broker.reset("biling", "earliest")
        with pytest.raises(TimeoutError, match=r"called 'biling' .did you mean billing.* 0 s"):
            broker.wait_for_group("biling", timeout=0)
        with pytest.raises(TimeoutError, match=r"called 'oders' .did you mean orders.* 0 s$"):
            broker.wait_for("oders", 1, timeout=0)
    mistyped = pytest.raises(BrokerError, match=setting.format("retention_ms"))
    with odradek.Cluster(brokers=1) as cluster, mistyped:
        cluster.create_topic("x", config={"retention_ms": 1})


def test_a_mistyped_partition_of_a_cluster_is_answered_in_a_sentence() -> None:
    """A test that asks for its leader would fail with `KeyError: 'oders-0'`."""
    with odradek.Cluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        for ask in (cluster.leader, cluster.partition_state, cluster.move_leader):
            with pytest.raises(BrokerError, match=r"called 'oders' .did you mean orders"):
                ask("oders", 0)
            with pytest.raises(BrokerError, match=r"there is no partition orders-1$"):
                ask("orders", 1)


def test_a_group_is_reset_in_a_topic_that_is_named_alone() -> None:
    """The topic's letters would be taken for topics."""
    with odradek.Broker() as broker:
        broker.produce("orders", b"x")
        assert broker.reset("billing", "latest", "orders") == {("orders", 0): 1}


def test_waiting_for_records_of_a_topic_that_is_recreated_meanwhile() -> None:
    """Five of the deleted topic's and one of its successor's would be the six that a test is to
    see."""

    async def main() -> None:
        async with odradek.Broker() as broker:
            await broker.produce_many_async("orders", ["old"] * 5)
            waiting = asyncio.create_task(broker.wait_for_async("orders", 6, deadline_s(60)))
            while not broker.waiting():
                await asyncio.sleep(0)
            await broker.delete_topic_async("orders")
            await broker.create_topic_async("orders")
            await broker.produce_many_async("orders", ["new"] * 6)
            assert [record.value for record in await waiting] == [b"new"] * 6

    asyncio.run(main())


def test_no_time_is_enough_for_what_is_there() -> None:
    """The answer would be that there is 1 of 1 record."""
    with odradek.Broker() as broker:
        broker.produce("orders", "spool")
        for timeout in (0, -1):
            assert len(broker.wait_for("orders", 1, timeout)) == 1
        with pytest.raises(TimeoutError, match=r"^orders has 1 of 2 records after 0 s$"):
            broker.wait_for("orders", 2, 0)


def test_who_waits_in_vain_is_told_what_grew_meanwhile() -> None:
    """A record that went to another topic would be looked for in the wrong place."""

    async def main() -> None:
        async with odradek.Broker() as broker:
            await broker.create_topic_async("orders")
            await broker.produce_async("before", "spool")
            waiting = asyncio.create_task(broker.wait_for_async("orders", 2, timeout=0.05))
            await asyncio.sleep(0)  # it has begun to wait
            await broker.produce_many_async("order", ["a", "b"])
            await broker.produce_async("orders", "spool")
            text = r"^orders has 1 of 2 records after 0.05 s; meanwhile order has grown by 2$"
            with pytest.raises(TimeoutError, match=text):
                await waiting

    asyncio.run(main())


def test_what_a_client_would_be_refused_is_refused() -> None:
    """A mistake of the test would pass, or end in something else than Kafka's error."""
    with odradek.Broker(config={"auto.create.topics.enable": False}) as broker:
        for ask in (
            lambda: broker.produce("none", b"x"),
            lambda: broker.records("none"),
            lambda: broker.delete_topic("none"),
            lambda: broker.configure("none", {"retention.ms": 1}),
        ):
            with pytest.raises(BrokerError) as refused:
                ask()
            assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.create_topic("orders", config={"max.message.bytes": 1000})
        with pytest.raises(BrokerError) as refused:
            broker.produce("orders", b"x" * 2000)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        for index in (-1, 1):
            with pytest.raises(BrokerError) as refused:
                broker.produce("orders", b"x", partition=index)
            assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            with pytest.raises(BrokerError) as refused:
                broker.records("orders", partition=index)
            assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(TypeError, match="not int"):
            broker.produce("orders", 7)  # type: ignore[arg-type]
        with pytest.raises(BrokerError) as refused:
            broker.lag("nobody")
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert broker.groups() == {}


def test_waiting_for_records_of_a_topic_that_comes_later() -> None:
    """A waiting test would have to poll, or miss what comes while it looks."""
    with odradek.Broker(clock=odradek.ManualClock()) as broker:
        found: list[int] = []
        waiter = threading.Thread(target=lambda: found.append(len(broker.wait_for("late", 3, 60))))
        waiter.start()
        for _ in range(3):
            broker.produce("late", b"x")
        waiter.join()
        assert found == [3]
        with pytest.raises(TimeoutError, match="late has 3 of 4 records after 0 s"):
            broker.wait_for("late", 4, timeout=0)
        assert broker.waiting() == []


@pytest.mark.parametrize("end", ["stop", "restart"])
def test_who_waits_is_told_that_the_broker_was_stopped(end: str) -> None:
    """A thread that waits for records would hang for good when another stops the broker."""
    with odradek.Broker() as broker:
        broker.create_topic("orders")
        told: list[str] = []

        def wait() -> None:
            try:
                broker.wait_for("orders", 1, 600)
            except RuntimeError as error:
                told.append(str(error))

        waiter = threading.Thread(target=wait)
        waiter.start()
        while not broker.waiting():
            pass
        getattr(broker, end)()
        waiter.join()
        assert told == ["the broker was stopped meanwhile"]


def test_topics_are_listed_configured_and_deleted() -> None:
    """The everyday administration of a test would need an admin client."""
    with odradek.Broker() as broker:
        broker.create_topic("orders", partitions=3)
        broker.create_topic("returns")
        assert broker.topics() == {"orders": 3, "returns": 1}
        assert repr(broker) == (
            f"<odradek.Broker {broker.bootstrap_servers}, topics: orders, returns>"
        )
        broker.configure("orders", {"max.message.bytes": 100})
        with pytest.raises(BrokerError):
            broker.produce("orders", b"x" * 200)
        broker.configure("orders", {"max.message.bytes": None})
        broker.produce("orders", b"x" * 200)
        broker.delete_topic("returns")
        assert broker.topics() == {"orders": 3}
    assert repr(broker) == "<odradek.Broker, not running>"


@pytest.mark.parametrize("kept", [False, True])
def test_a_restart_keeps_port_topics_and_records(kept: bool, tmp_path: object) -> None:
    """A client could not find the broker again, or a test would lose what it has prepared."""
    with odradek.Broker(data_dir=str(tmp_path) if kept else None) as broker:
        broker.produce("orders", b"spool")
        before = (broker.bootstrap_servers, broker.cluster_id, broker.records("orders"))
        broker.restart()
        assert (broker.bootstrap_servers, broker.cluster_id) == before[:2]
        assert [record.value for record in broker.records("orders")] == [b"spool"]
        assert broker.produce("orders", b"more") == (0, 1)


def test_an_outage_keeps_port_and_records_until_the_block_ends() -> None:
    """A test of an outage would have its clients look for another broker, on another port."""
    with odradek.Broker() as broker:
        broker.produce("orders", b"spool")
        address = broker.bootstrap_servers
        broker.stop()
        with pytest.raises(RuntimeError, match="not running"):
            broker.records("orders")
        broker.start()
        assert broker.bootstrap_servers == address
        assert [record.value for record in broker.records("orders")] == [b"spool"]
        directory = broker._scratch.path  # type: ignore[union-attr]
        broker.stop()
        assert os.path.exists(directory)
    assert not os.path.exists(directory)
    broker.start()
    assert (broker.topics(), broker.bootstrap_servers) == ({}, address)
    broker.produce("orders", b"spool")
    directory = broker._scratch.path  # type: ignore[union-attr]
    broker.stop()
    del broker
    assert not os.path.exists(directory), "the records outlive the object that they belong to"


def test_many_records_at_once() -> None:
    """A test that needs a thousand records would wait for a thousand appends."""
    with odradek.Broker() as broker:
        broker.create_topic("orders", partitions=2)
        places = broker.produce_many("orders", [f"value {n}" for n in range(5)])
        assert sorted(places) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
        assert broker.produce_many("orders", [(b"k", None), ("k", "v")], partition=1) == [
            (1, 2),
            (1, 3),
        ]
        assert broker.end_offsets() == {("orders", 0): 3, ("orders", 1): 4}
        assert [r.value for r in broker.records("orders", partition=1)][2:] == [None, b"v"]
        assert broker.produce_many("orders", []) == []


def test_a_topic_as_a_table() -> None:
    """A notebook would have to make its data frame record by record."""
    pytest.importorskip("pandas", reason="PEER MISSING, NOT TESTED: pandas")
    with odradek.Broker() as broker:
        broker.create_topic("orders", partitions=2)
        broker.produce("orders", "a", key="k", headers={"trace": "7"}, partition=1)
        broker.produce_many("orders", ["b", "c"], partition=0)
        table = broker.to_arrow("orders")
        assert table.column("value").to_pylist() == [b"b", b"c", b"a"]
        assert table.column("headers").to_pylist()[2] == [{"key": "trace", "value": b"7"}]
        assert broker.to_arrow("orders", partition=1).num_rows == 1
        assert list(broker.to_pandas("orders").offset) == [0, 1, 0]
        broker.create_topic("empty")
        assert broker.to_arrow("empty").num_rows == 0


def test_offsets_of_a_group_are_set_back() -> None:
    """A test could not have its consumer read again."""
    with odradek.Broker(config={"num.partitions": 2}) as broker:
        broker.produce_many("orders", ["a", "b", "c"], partition=0)
        with pytest.raises(BrokerError) as refused:
            broker.reset("billing", "earliest")
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert broker.reset("billing", "latest", topics=["orders"]) == {
            ("orders", 0): 3,
            ("orders", 1): 0,
        }
        assert broker.lag("billing") == {("orders", 0): 0, ("orders", 1): 0}
        assert broker.reset("billing", "earliest")[TopicPartition("orders", 0)] == 0
        assert broker.reset("billing", 99)[TopicPartition("orders", 0)] == 3
        assert broker.reset("billing", {("orders", 0): 1}) == {("orders", 0): 1}
        assert broker.lag("billing")[TopicPartition("orders", 0)] == 2
        [first, *_] = broker.records("orders", partition=0)
        moment = datetime.fromtimestamp(first.timestamp / 1000, UTC)
        assert broker.reset("billing", moment)[TopicPartition("orders", 0)] == 0
        later = moment + timedelta(days=1)
        assert broker.reset("billing", later)[TopicPartition("orders", 0)] == 3
        with pytest.raises(ValueError, match="'first'"):
            broker.reset("billing", "first")
        assert broker.group("billing") == ("billing", "Empty", ())


def test_waiting_for_a_group() -> None:
    """A state that is over before one looks would be awaited for ever."""
    with odradek.Broker() as broker:
        assert broker.wait_for_group("billing", "Dead") == ("billing", "Dead", ())
        with pytest.raises(ValueError, match="PreparingRebalance"):
            broker.wait_for_group("billing", "PreparingRebalance")
        with pytest.raises(TimeoutError, match="there is no group called 'billing' after 0 s"):
            broker.wait_for_group("billing", members=2, timeout=0)
        broker.create_topic("orders")
        broker.reset("billing", "earliest", topics=["orders"])
        assert broker.wait_for_group("billing", "Empty", timeout=deadline_s(60)).state == "Empty"


def test_a_cluster_is_asked_as_a_broker_is() -> None:
    """A test that outgrows one broker would lose all its helpers."""
    with odradek.Cluster(brokers=2) as cluster:
        cluster.create_topic("orders", partitions=4)
        cluster.produce_many("orders", [str(n) for n in range(8)])
        assert set(cluster.end_offsets().values()) == {2}
        assert len(cluster.wait_for("orders", 8, timeout=deadline_s(60))) == 8
        cluster.reset("billing", "earliest", topics=["orders"])
        assert sum(cluster.lag("billing").values()) == 8
        cluster.configure("orders", {"max.message.bytes": 1000})
        assert "2 brokers, topics: orders" in repr(cluster)
        cluster.delete_topic("orders")
        assert cluster.topics() == {}


def test_all_of_it_on_the_running_loop() -> None:
    """`async with` would offer less than `with`."""

    async def main() -> None:
        async with odradek.Broker() as broker:
            waiting = asyncio.create_task(broker.wait_for_async("orders", 1))
            assert await broker.produce_async("orders", "spool") == (0, 0)
            assert [record.value for record in await waiting] == [b"spool"]
            await broker.configure_async("orders", {"retention.ms": 1000})
            assert await broker.topics_async() == {"orders": 1}
            assert await broker.groups_async() == {}
            await broker.restart_async()
            assert len(await broker.records_async("orders")) == 1
            await broker.delete_topic_async("orders")
            with pytest.raises(RuntimeError, match="produce_async"):
                broker.produce("orders", b"x")

    asyncio.run(main())


def _consumer(broker: odradek.Broker, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_lag_of_a_group_that_has_read_and_not_committed(protocol: str) -> None:
    """`all(lag == 0 for lag in broker.lag(...).values())` would hold of a consumer that has
    committed nothing, and a suite believe that everything was worked off."""
    with odradek.Broker(config={"num.partitions": 2}) as broker:
        broker.produce_many("orders", ["a", "b", "c"], partition=0)
        broker.produce("others", "not read by this group")
        consumer = _consumer(broker, **{"group.protocol": protocol})
        consumer.subscribe(["orders"])
        message = consumer.poll(60)
        assert message is not None
        lag = broker.lag("billing")
        assert lag == {("orders", 0): 3, ("orders", 1): 0}
        assert not any(each.is_committed for each in lag.values())
        assert str(lag[TopicPartition("orders", 0)]) == "3 (nothing committed)"
        with pytest.raises(TimeoutError, match=r"billing is behind in orders-0 by 3 \(nothing co"):
            broker.wait_for_lag("billing", timeout=0)
        consumer.commit(message, asynchronous=False)
        lag = broker.lag("billing")
        assert lag == {("orders", 0): 2, ("orders", 1): 0}
        assert [each.is_committed for each in lag.values()] == [True, False]
        consumer.close()
        assert broker.lag("billing") == {("orders", 0): 2}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_lag_of_a_group_of_which_nothing_is_known(protocol: str) -> None:
    """`all(lag == 0 for lag in broker.lag(...).values())` would hold of `{}`: of a consumer whose
    topic is not there, and of one that has committed nothing and is gone."""
    with odradek.Broker() as broker:
        broker.produce("orders", "one spool of thread")
        broker.create_topic("ordres")  # librdkafka does not join before its topic is there
        consumer = _consumer(broker, **{"group.protocol": protocol})
        consumer.subscribe(["ordres"])
        consumer.poll(0.1)
        broker.wait_for_group("billing", members=1)
        broker.delete_topic("ordres")
        with pytest.raises(BrokerError, match=r"to missing topics: .*'ordres' .*mean orders"):
            broker.lag("billing")
        with pytest.raises(TimeoutError, match=r"'ordres' .did you mean orders.*after 0 s"):
            broker.wait_for_lag("billing", timeout=0)
        assert "1 member, group billing subscribes to missing topics" in broker.report()
        consumer.close()
        broker.wait_for_group("billing", "Empty")
        with pytest.raises(BrokerError, match="billing has committed nothing and subscribes to no"):
            broker.lag("billing")


def test_waiting_until_a_group_has_caught_up() -> None:
    """Every suite would write this loop, and sleep in it."""

    async def main() -> None:
        async with odradek.Broker() as broker:
            with pytest.raises(TimeoutError, match="there is no "):
                await broker.wait_for_lag_async("billing", timeout=0)
            await broker.produce_many_async("orders", ["a", "b", "c"])
            caught_up = asyncio.create_task(
                broker.wait_for_lag_async("billing", timeout=deadline_s(60))
            )
            almost = asyncio.create_task(
                broker.wait_for_lag_async("billing", 1, timeout=deadline_s(60))
            )
            await broker.reset_async("billing", 1, ["orders"])
            assert not almost.done()
            await broker.reset_async("billing", 2)
            assert await almost == {("orders", 0): 1}
            assert not caught_up.done()
            await broker.reset_async("billing", "latest")
            assert await caught_up == {("orders", 0): 0}
            with pytest.raises(BrokerError, match=r"'biling' .did you mean billing"):
                await broker.lag_async("biling")

    asyncio.run(main())


def test_json_goes_in_and_comes_out() -> None:
    """Every suite whose records are JSON would encode and decode it by hand."""
    order = {"item": "Spule", "size": {"mm": 9}, "tags": ["ä"]}
    with odradek.Broker() as broker:
        broker.produce("orders", order, key=["a", 1])
        broker.produce_many("orders", [("k", {"item": "thread", "offset": 7}), None, [1]])
        first, second, tombstone, last = broker.records("orders")
        expected = '{"item":"Spule","size":{"mm":9},"tags":["ä"]}'
        assert (first.key, first.value) == (b'["a",1]', expected.encode())
        assert (first.json(), second.json()) == (order, {"item": "thread", "offset": 7})
        assert (tombstone.json(), last.json()) == (None, [1])
        with pytest.raises(TypeError, match="a value is bytes, str, None, or a dict or list"):
            broker.produce("orders", 7)  # type: ignore[arg-type]


def test_columns_out_of_json() -> None:
    """A notebook would begin with a loop over bytes."""
    pytest.importorskip("pandas", reason="PEER MISSING, NOT TESTED: pandas")
    with odradek.Broker() as broker:
        broker.produce("orders", {"item": "spool", "size": 9})
        broker.produce("orders", {"item": "thread", "offset": 7})
        broker.produce("orders", None)
        frame = broker.to_pandas("orders", json=True, columns=["offset", "value"])
        assert list(frame.columns) == ["offset", "item", "size", "value.offset"]
        assert list(frame["item"])[:2] == ["spool", "thread"]
        assert list(frame["size"].isna()) == [False, True, True]
        assert list(frame["offset"]) == [0, 1, 2]
        topic = Topic("orders", bootstrap_servers=broker.bootstrap_servers)
        assert list(topic.to_pandas(json=True).columns)[-3:] == ["item", "size", "value.offset"]
        with pytest.raises(ValueError, match="let columns name it"):
            broker.to_pandas("orders", json=True, columns=["offset"])
        broker.produce("orders", "no JSON")
        with pytest.raises(ValueError, match="row 3 is no JSON object: b'no JSON'"):
            broker.to_pandas("orders", json=True)
