"""If these fail, a query misses what came since its DataFrame was made, silently."""

import asyncio
from collections.abc import Iterator

import pytest

import odradek
from odradek.client import Admin
from odradek.model import TopicPartition
from pyspark_odradek import topic

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        yield broker


def test_every_query_sees_the_topic_as_it_is_then(spark, broker) -> None:
    """The second count gave the first one's answer, where the connector's is 15."""
    broker.create_topic("orders", partitions=1, config={})
    broker.produce_many("orders", [b"x"] * 10)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}
    orders = topic(spark, options)
    assert orders.count() == 10
    broker.produce_many("orders", [b"x"] * 5)
    assert orders.count() == 15
    late = orders.where("offset >= 12").select("value", "offset")
    orders.createOrReplaceTempView("live_orders")
    both = "SELECT count(*) AS n FROM live_orders a JOIN live_orders b USING (offset)"
    for there in (15, 16):
        assert late.count() == there - 12
        assert spark.sql(both).collect()[0].n == there
        broker.produce("orders", "x")
    # What is cached stays, as ever.
    kept = late.cache()
    assert kept.count() == 5
    broker.produce("orders", "x")
    assert kept.count() == 5
    kept.unpersist()
    assert kept.count() == 6
    asyncio.run(delete_records(broker.bootstrap_servers, {TopicPartition("orders", 0): 14}))
    assert orders.count() == 4


def test_a_table_that_is_loaded_once_stays_as_its_first_query_found_it(spark, broker) -> None:
    """Spark's fault with every source in Python; without it `topic` has no more use."""
    broker.create_topic("frozen", partitions=1, config={})
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "frozen"}
    frozen = spark.read.format("odradek").options(**options).load()
    for there in (1, 2):
        broker.produce("frozen", "x")
        assert frozen.count() == 1
        assert topic(spark, options).count() == there


async def delete_records(servers: str, before: dict[TopicPartition, int]) -> None:
    async with Admin(servers) as admin:
        await admin.delete_records(before)


def test_filters_of_one_query_are_not_those_of_the_next(spark, broker) -> None:
    """Pushed filters stayed with a DataFrame, so that the next query on it lacked rows."""
    broker.create_topic("filtered", partitions=3, config={})
    for partition in range(3):
        broker.produce("filtered", "x", partition=partition)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": "filtered",
        "filterPushdown": "true",
    }
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    try:
        filtered = topic(spark, options)
        assert filtered.where("partition = 1").count() == 1
        assert filtered.count() == 3
        both = filtered.where("partition = 0").union(filtered.where("partition = 2"))
        assert sorted(row.partition for row in both.collect()) == [0, 2]
    finally:
        spark.conf.unset(name)
