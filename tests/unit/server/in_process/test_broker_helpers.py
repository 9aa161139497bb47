"""What a test may ask of `odradek.Broker`: records, topics, groups, lag, a restart."""

import asyncio
import os
import threading
from datetime import UTC, datetime, timedelta

import pytest

import odradek
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition


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
    """Whoever waits would have to poll, or miss what comes while he looks."""
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
        with pytest.raises(TimeoutError, match="billing is Dead with 0 members, not Stable with 2"):
            broker.wait_for_group("billing", members=2, timeout=0)
        broker.create_topic("orders")
        broker.reset("billing", "earliest", topics=["orders"])
        assert broker.wait_for_group("billing", "Empty", timeout=60).state == "Empty"


def test_a_cluster_is_asked_as_a_broker_is() -> None:
    """A test that outgrows one broker would lose all its helpers."""
    with odradek.Cluster(brokers=2) as cluster:
        cluster.create_topic("orders", partitions=4)
        cluster.produce_many("orders", [str(n) for n in range(8)])
        assert set(cluster.end_offsets().values()) == {2}
        assert len(cluster.wait_for("orders", 8, timeout=60)) == 8
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
