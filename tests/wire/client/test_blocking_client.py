"""The blocking client against a broker: what Spark's workers and the tools rely on.

If these fail, a Spark task reads other records than its range, or hangs where it should fail.
"""

import socket
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadlines import deadline_s
from tests.wire.replicas import REPLICAS, await_known

from odradek.client.addresses import Address
from odradek.client.sync import BlockingConnection, Cluster, PartitionReader
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.records.reader import iter_records

TIMEOUT_S = deadline_s(60)
RECORDS = 500
FIRST_TIME_MS = 1_700_000_000_000


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(bootstrap, request_timeout_ms=1000 * TIMEOUT_S) as cluster:
        yield cluster


@pytest.fixture
def partition(bootstrap: str, topic: str) -> TopicPartition:
    """A partition with records whose values are their offsets, one a second, in small batches."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, 2, REPLICAS, config={"retention.ms": "-1"})
    admin.create_topics([new])[topic].result(TIMEOUT_S)
    await_known(bootstrap, topic, 2)
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 7, "linger.ms": 50})
    for number in range(RECORDS):
        time_ms = FIRST_TIME_MS + 1000 * number
        producer.produce(topic, value=b"%d" % number, partition=1, timestamp=time_ms)
    assert producer.flush(TIMEOUT_S) == 0
    return TopicPartition(topic, 1)


def test_a_topic_is_known_by_its_partitions(cluster: Cluster, partition: TopicPartition) -> None:
    topic = cluster.topics([partition.topic])[partition.topic]
    assert topic.partitions == [TopicPartition(topic.name, 0), TopicPartition(topic.name, 1)]
    assert not topic.is_internal
    assert partition.topic in cluster.topics()


def test_offsets_are_found_by_end_and_by_time(cluster: Cluster, partition: TopicPartition) -> None:
    empty = TopicPartition(partition.topic, 0)
    assert cluster.list_offsets({partition: -1, empty: -1}) == {partition: RECORDS, empty: 0}
    assert cluster.list_offsets({partition: -2}) == {partition: 0}
    assert cluster.list_offsets({partition: FIRST_TIME_MS + 41_001}) == {partition: 42}
    assert cluster.list_offsets({partition: FIRST_TIME_MS * 2}) == {partition: None}
    assert cluster.list_offsets({}) == {}


@pytest.mark.parametrize("partition_max_bytes", [1, 1_000, 1 << 20])
def test_a_range_is_read_completely_in_any_chunks(
    cluster: Cluster, partition: TopicPartition, partition_max_bytes: int
) -> None:
    reader = PartitionReader(cluster, partition, partition_max_bytes=partition_max_bytes)
    values = []
    for chunk in reader.read(13, RECORDS):
        records = iter_records(bytes(chunk.records), drop_partial_tail=True)
        fresh = [record for record in records if chunk.fetch_offset <= record.offset]
        values += [record.value for record in fresh]
        assert fresh[-1].offset + 1 == chunk.next_offset
    assert values == [b"%d" % number for number in range(13, RECORDS)]


def test_a_read_that_is_given_up_leaves_the_cluster_usable(
    bootstrap: str, partition: TopicPartition
) -> None:
    with Cluster(bootstrap) as cluster:
        next(PartitionReader(cluster, partition, partition_max_bytes=1).read(0, RECORDS))
        cluster.forget(disconnect=True)
        assert cluster.list_offsets({partition: -1}) == {partition: RECORDS}


def test_offsets_outside_the_log_are_out_of_range(
    cluster: Cluster, partition: TopicPartition
) -> None:
    with pytest.raises(BrokerError) as caught:
        list(PartitionReader(cluster, partition).read(RECORDS + 1, RECORDS + 2))
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_beyond_the_end_ends_there(cluster: Cluster, partition: TopicPartition) -> None:
    reader = PartitionReader(cluster, partition, max_wait_ms=20)
    with pytest.raises(BrokerError, match="should reach") as caught:
        list(reader.read(RECORDS, RECORDS + 1))
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_what_does_not_exist_is_said_so(cluster: Cluster, topic: str) -> None:
    with pytest.raises(BrokerError, match=topic) as caught:
        cluster.topics([topic])
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_asking_for_a_topic_does_not_create_it(cluster: Cluster, topic: str) -> None:
    with pytest.raises(BrokerError):
        cluster.topics([topic])
    assert topic not in cluster.topics()


def test_a_broker_that_is_gone_is_a_network_exception() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(BrokerError) as caught:
        BlockingConnection(Address("127.0.0.1", port), client_id="t", timeout_s=TIMEOUT_S)
    assert caught.value.code == ErrorCode.NETWORK_EXCEPTION


@pytest.mark.parametrize(
    "answer",
    [b"", b"\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\4\0\0\0\x2a", b"\0\0\0\1\0"],
)
def test_an_answer_that_is_none_is_a_network_exception(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_once() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=answer_once)
        thread.start()
        with pytest.raises(BrokerError) as caught:
            BlockingConnection(Address(*server.getsockname()), client_id="t", timeout_s=TIMEOUT_S)
        thread.join()
    assert caught.value.code == ErrorCode.NETWORK_EXCEPTION
