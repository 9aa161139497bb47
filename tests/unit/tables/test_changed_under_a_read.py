"""If these fail, a read gives rows of another topic, leaves some out, or waits in vain."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import odradek
from odradek.client.errors import RequestTimedOut
from odradek.client.sync import Cluster, Fetched, PartitionReader
from odradek.model import TopicPartition
from odradek.tables.arrow import arrow_schema
from odradek.tables.errors import DataLoss, WrongPath
from odradek.tables.plan.bounds import open_bounds
from odradek.tables.plan.identity import Identity
from odradek.tables.plan.options import ClientOptions, ReadOptions, TopicSelection
from odradek.tables.plan.ranges import OffsetRange
from odradek.tables.scan.reading import read_ranges

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as running:
        yield running


def options(broker: odradek.Broker, *, fail_on_data_loss: bool = True) -> ReadOptions:
    # A record a fetch: what happens between two of them is what matters here.
    client = ClientOptions(broker.bootstrap_servers, partition_fetch_max_bytes=1)
    selection = TopicSelection(names=("orders",))
    return ReadOptions(selection, client, fail_on_data_loss=fail_on_data_loss)


def values(asked: ReadOptions, identity: Identity, end: int) -> Iterator[list[bytes]]:
    pieces = [OffsetRange(ORDERS, 0, end)]
    for batch in read_ranges(asked, identity, arrow_schema(("value",)), pieces):
        yield batch.column(0).to_pylist()


def identity_of(asked: ReadOptions) -> Identity:
    bounds = open_bounds(asked)
    try:
        return bounds.identity(["orders"])
    finally:
        bounds.close()


def test_a_topic_made_anew_between_two_fetches_is_not_read_for_the_old_one(broker) -> None:
    """The first half of a table would be of one topic, the second of another."""
    fill(broker, "old")
    asked = options(broker)
    identity = identity_of(asked)
    with Cluster(broker.bootstrap_servers) as cluster:
        topic_id = identity.topic_ids["orders"]
        chunks = PartitionReader(
            cluster, ORDERS, topic_id=topic_id, partition_max_bytes=1
        ).read(0, 10)  # fmt: skip
        assert next(chunks).next_offset == 1
        broker.delete_topic("orders")
        fill(broker, "new")
        with pytest.raises(Exception, match="orders-0 was deleted and recreated"):
            list(chunks)
    with pytest.raises(DataLoss, match="was deleted and recreated"):
        list(values(asked, identity, 10))


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_log_that_was_truncated_ends_where_it_ends(broker, fail_on_data_loss: bool) -> None:
    """The read would wait out its time for records that nobody has, and fail in both cases."""
    fill(broker, "kept")
    asked = options(broker, fail_on_data_loss=fail_on_data_loss)
    reading = values(asked, Identity(), 12)
    if fail_on_data_loss:
        with pytest.raises(DataLoss, match="ends at offset 10, but should reach 12"):
            list(reading)
    else:
        assert [value for some in reading for value in some] == [b"kept-%d" % n for n in range(10)]


def test_a_read_is_given_up_when_a_leader_has_records_and_does_not_give_them(broker) -> None:
    """A task would never end."""
    fill(broker, "t")
    with Cluster(broker.bootstrap_servers) as cluster:
        cluster.list_offsets = lambda *_, **__: {ORDERS: 11}  # type: ignore[method-assign]
        reader = PartitionReader(cluster, ORDERS, max_wait_ms=cluster.api_timeout_ms // 2)
        empty = Fetched(10, memoryview(b""), [], 10)
        reader._take = lambda _: empty  # type: ignore[method-assign]
        with pytest.raises(RequestTimedOut, match="should reach 11"):
            list(reader.read(10, 11))


def fill(broker: odradek.Broker, word: str) -> None:
    broker.create_topic("orders")
    for number in range(10):
        broker.produce("orders", f"{word}-{number}")


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_path_without_all_partitions_is_refused(tmp_path: Path, missing: int) -> None:
    """A table would lack a third of its rows, and nobody would know."""
    with odradek.Broker(tmp_path / "data") as broker:
        broker.create_topic("orders", partitions=3)
    shutil.rmtree(tmp_path / "data" / f"orders-{missing}")
    asked = ReadOptions(
        TopicSelection(names=("orders",)), ClientOptions(), (str(tmp_path / "data"),)
    )
    with pytest.raises(WrongPath, match=f"partition {missing} of orders is not there"):
        open_bounds(asked).partitions(asked.selection)
    there = TopicPartition("orders", (missing + 1) % 3)
    named = replace(asked, selection=TopicSelection(assignment={there: None}))
    assert open_bounds(named).partitions(named.selection) == [there]


def test_a_path_of_who_knows_which_broker_is_told_to_be_one(
    log_dir, batch_of, caplog: pytest.LogCaptureFixture
) -> None:
    """The partitions of a cluster's other brokers would be missing in silence."""
    log_dir.segment([batch_of(0, 4)], 0)
    asked = ReadOptions(TopicSelection(names=("orders",)), ClientOptions(), (str(log_dir.root),))
    assert open_bounds(asked).partitions(asked.selection) == [ORDERS]
    assert "only the partitions that lie in the data directory are read" in caplog.text


def test_a_reader_with_a_rack_reads_from_a_replica_there() -> None:
    """All bytes of a scan would go between two data centres."""
    settings = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    }
    with odradek.Cluster(brokers=2, racks=("a", "b"), config=settings) as cluster:
        cluster.create_topic("orders", replication_factor=2)
        for number in range(5):
            cluster.produce("orders", f"v{number}")
        leader = cluster.leader("orders").id
        for rack, broker_id in (("a", 1), ("b", 2)):
            with Cluster(cluster.bootstrap_servers) as client:
                reader = PartitionReader(client, ORDERS, rack_id=rack)
                assert [chunk.next_offset for chunk in reader.read(0, 5)][-1] == 5
                assert reader._nearby == (None if broker_id == leader else broker_id)
