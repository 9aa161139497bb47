"""Producers whose records were deleted, and whose partition another broker has then: they go on."""

import asyncio

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

import odradek
from odradek import model
from odradek.client import Admin

FOREVER_S = 60
A = model.TopicPartition("a", 0)


async def delete_all_and_move(cluster: odradek.Cluster, end: int) -> None:
    """No record of the producer is left where it writes from now on."""
    target = 3 - cluster.partition_state("a", 0).leader
    async with Admin(cluster.bootstrap_servers) as admin:
        async with asyncio.timeout(FOREVER_S):
            # A commit is answered before its marker is in the partition.
            while await admin.delete_records({A: end}) != {A: end}:
                await asyncio.sleep(0.01)
        assert await admin.alter_partition_reassignments({A: [target]}) == {A: None}
        async with asyncio.timeout(FOREVER_S):
            while await admin.list_partition_reassignments([A]):
                await asyncio.sleep(0.01)
    assert cluster.partition_state("a", 0).leader == target


def send(producer: Producer, *values: str) -> list[int]:
    """The offsets at which values were acknowledged."""
    offsets: list[int] = []

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        offsets.append(message.offset())  # type: ignore[attr-defined]

    for value in values:
        producer.produce("a", value, partition=0, on_delivery=delivered)
    assert producer.flush(FOREVER_S) == 0
    return offsets


def committed(cluster: odradek.Cluster, count: int) -> list[str]:
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    consumer = Consumer({**servers, "group.id": "readers", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition("a", 0, OFFSET_BEGINNING)])
        return [each.value().decode() for each in consumer.consume(count, FOREVER_S)]
    finally:
        consumer.close()


def test_an_idempotent_producer_goes_on_where_nothing_is_left_of_it() -> None:
    """It would get a fatal error, and have to be made anew."""
    with odradek.Cluster(2) as cluster:
        cluster.create_topic("a", replication_factor=1)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True}
        )
        assert send(producer, "0", "1", "2") == [0, 1, 2]
        asyncio.run(delete_all_and_move(cluster, 3))
        assert send(producer, "3", "4") == [3, 4]


@pytest.mark.parametrize("is_open", [True, False])
def test_a_transactional_producer_goes_on_where_nothing_is_left_of_it(is_open: bool) -> None:
    """It would get a fatal error; or what it commits would never be shown."""
    with odradek.Cluster(2) as cluster:
        cluster.create_topic("a", replication_factor=1)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "t"}
        )
        producer.init_transactions(FOREVER_S)
        producer.begin_transaction()
        assert send(producer, "0", "1", "2") == [0, 1, 2]
        end = 3
        if not is_open:
            producer.commit_transaction(FOREVER_S)
            producer.begin_transaction()
            end = 4
        asyncio.run(delete_all_and_move(cluster, end))
        assert send(producer, "3") == [end]
        producer.commit_transaction(FOREVER_S)
        producer.begin_transaction()
        send(producer, "4")
        producer.commit_transaction(FOREVER_S)
        assert committed(cluster, 2) == ["3", "4"]
