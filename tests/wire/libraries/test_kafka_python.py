"""kafka-python against the broker."""

import gc
import warnings
from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from tests.deadlines import deadline_s
from tests.wire.replicas import REPLICAS, await_known

TIMEOUT_S = deadline_s(60)


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """kafka-python leaves its wake-up sockets to the collector, which warns of each of them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def created(bootstrap: str, topic: str) -> str:
    """A topic of two partitions, made by kafka-python's own admin client."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=REPLICAS)])
    admin.close()
    await_known(bootstrap, topic, 2)
    return topic


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        consumer_timeout_ms=TIMEOUT_S * 1000,
    )
    yield consumer
    consumer.close()


def produce(bootstrap: str, topic: str, samples: list, **settings: object) -> list[int]:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, **{"linger_ms": 5, "acks": "all", **settings}
    )
    futures = [
        producer.send(
            topic,
            key=sample.key,
            value=sample.value,
            headers=sample.headers,
            timestamp_ms=sample.timestamp_ms,
            partition=0,
        )
        for sample in samples
    ]
    offsets = [future.get(TIMEOUT_S).offset for future in futures]
    producer.close()
    return offsets


def read(consumer: KafkaConsumer, count: int) -> list:
    return [next(consumer) for _ in range(count)]


def as_sent(record) -> tuple:
    return record.key, record.value, record.timestamp, list(record.headers)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_comes_back_as_sent(bootstrap, created, consumer, samples, codec):
    """A codec whose batches are refused or changed on the way."""
    offsets = produce(bootstrap, created, samples, compression_type=codec)
    assert offsets == list(range(len(samples)))
    partition = TopicPartition(created, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    received = [as_sent(record) for record in read(consumer, len(samples))]
    assert received == [(s.key, s.value, s.timestamp_ms, s.headers) for s in samples]


def test_consuming_by_time_and_from_the_end(bootstrap, created, consumer, samples):
    """ListOffsets answers a wrong offset, or a parked fetch is not woken."""
    produce(bootstrap, created, samples)
    partition = TopicPartition(created, 0)
    consumer.assign([partition])
    found = consumer.offsets_for_times({partition: samples[25].timestamp_ms - 1})[partition]
    assert (found.offset, found.timestamp) == (25, samples[25].timestamp_ms)
    consumer.seek(partition, found.offset)
    assert as_sent(read(consumer, 1)[0])[2] == samples[25].timestamp_ms
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: len(samples)}
    consumer.seek_to_end(partition)
    assert consumer.position(partition) == len(samples)
    produce(bootstrap, created, samples[:1])
    assert read(consumer, 1)[0].offset == len(samples)
