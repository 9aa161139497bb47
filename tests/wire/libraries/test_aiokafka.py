"""aiokafka against the broker."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError, for_code
from tests.deadlines import deadline_s
from tests.wire.replicas import REPLICAS, await_known

TIMEOUT_S = deadline_s(60)


def run(story: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), TIMEOUT_S * 2))


async def create(bootstrap: str, topic: str) -> None:
    """Makes a topic of two partitions; returns when every broker knows it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    new = NewTopic(topic, num_partitions=2, replication_factor=REPLICAS)
    try:
        answer = await admin.create_topics([new])
    finally:
        await admin.close()
    for _, code, *_ in answer.topic_errors:
        if code:
            raise for_code(code)(answer)
    await_known(bootstrap, topic, 2)


async def create_anew(bootstrap: str, topic: str) -> None:
    """Makes a topic as soon as it can be: a cluster on ZooKeeper, as Kafka's, may have the one
    before to delete."""
    while True:
        try:
            return await create(bootstrap, topic)
        except TopicAlreadyExistsError:
            await asyncio.sleep(0.05)


async def produce(bootstrap: str, topic: str, samples: list, **settings: object) -> list[int]:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **{"acks": "all", **settings})
    await producer.start()
    futures = [
        await producer.send(
            topic,
            key=sample.key,
            value=sample.value,
            headers=sample.headers,
            timestamp_ms=sample.timestamp_ms,
            partition=0,
        )
        for sample in samples
    ]
    offsets = [(await future).offset for future in futures]
    await producer.stop()
    return offsets


async def consuming(bootstrap: str, partition: TopicPartition) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False
    )
    await consumer.start()
    consumer.assign([partition])
    return consumer


def as_sent(record) -> tuple:
    return record.key, record.value, record.timestamp, list(record.headers)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_comes_back_as_sent(bootstrap, topic, samples, codec):
    """A codec whose batches are refused or changed on the way."""

    async def story() -> None:
        await create(bootstrap, topic)
        offsets = await produce(bootstrap, topic, samples, compression_type=codec)
        assert offsets == list(range(len(samples)))
        consumer = await consuming(bootstrap, TopicPartition(topic, 0))
        consumer.seek(TopicPartition(topic, 0), 0)
        received = [as_sent(await consumer.getone()) for _ in samples]
        await consumer.stop()
        assert received == [(s.key, s.value, s.timestamp_ms, s.headers) for s in samples]

    run(story)


def test_an_idempotent_producer_is_served(bootstrap, topic, samples):
    """InitProducerId or the sequence check refuses aiokafka's batches."""

    async def story() -> None:
        await create(bootstrap, topic)
        offsets = await produce(bootstrap, topic, samples, enable_idempotence=True)
        assert offsets == list(range(len(samples)))

    run(story)


def test_an_idempotent_producer_outlives_its_topic(bootstrap, topic):
    """A producer of a whole session would repeat its batch for ever when its topic is made anew."""

    async def story() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        await admin.start()
        await producer.start()
        try:
            for _ in range(2):
                await create_anew(bootstrap, topic)
                for offset in range(3):
                    assert (await producer.send_and_wait(topic, b"v", partition=0)).offset == offset
                await admin.delete_topics([topic])
                while topic in await admin.list_topics():
                    await asyncio.sleep(0.05)
        finally:
            await producer.stop()
            await admin.close()

    run(story)


def test_consuming_by_time_and_from_the_end(bootstrap, topic, samples):
    """ListOffsets answers a wrong offset, or a parked fetch is not woken."""

    async def story() -> None:
        await create(bootstrap, topic)
        await produce(bootstrap, topic, samples)
        partition = TopicPartition(topic, 0)
        consumer = await consuming(bootstrap, partition)
        found = await consumer.offsets_for_times({partition: samples[25].timestamp_ms - 1})
        assert found[partition].offset == 25
        consumer.seek(partition, 25)
        assert (await consumer.getone()).timestamp == samples[25].timestamp_ms
        assert await consumer.end_offsets([partition]) == {partition: len(samples)}
        await consumer.seek_to_end(partition)
        waiting = asyncio.ensure_future(consumer.getone())
        await produce(bootstrap, topic, samples[:1])
        assert (await waiting).offset == len(samples)
        await consumer.stop()

    run(story)
