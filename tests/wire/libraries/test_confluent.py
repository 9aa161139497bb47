"""confluent-kafka (librdkafka) against the broker."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tests.deadlines import deadline_s
from tests.system.cluster.polling import until
from tests.wire.replicas import REPLICAS, await_known

TIMEOUT_S = deadline_s(60)
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[Consumer]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "error", "enable.partition.eof": True})
    yield consumer
    consumer.close()


def create(bootstrap: str, topic: str, partitions: int = 2, **config: str) -> None:
    """Makes a topic; returns when every broker knows it."""
    dotted = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=REPLICAS, config=dotted)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([new])[topic].result(TIMEOUT_S)
    await_known(bootstrap, topic, partitions)


def is_made_anew(bootstrap: str, topic: str) -> bool:
    """Tells whether it was created: a cluster on ZooKeeper, as Kafka's, may have the one before to
    delete."""
    try:
        create(bootstrap, topic, partitions=1)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


def produce(bootstrap: str, topic: str, samples: list, **settings: object) -> list[int]:
    """Sends the samples to partition 0 and returns their acknowledged offsets in order."""
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **dotted})
    offsets: list[int] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offsets.append(message.offset())

    for sample in samples:
        producer.produce(
            topic,
            key=sample.key,
            value=sample.value,
            timestamp=sample.timestamp_ms,
            headers=sample.headers,
            partition=0,
            on_delivery=on_delivery,
        )
    assert producer.flush(TIMEOUT_S) == 0
    return offsets


def read(consumer: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"only {len(messages)} of {count} records came"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            continue
        messages.append(message)
    return messages


def as_sent(message: Message) -> tuple:
    return message.key(), message.value(), message.timestamp()[1], message.headers() or []


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_comes_back_as_sent(bootstrap, consumer, topic, samples, codec):
    """A codec whose batches are refused or changed on the way."""
    create(bootstrap, topic)
    offsets = produce(bootstrap, topic, samples, compression_type=codec)
    assert offsets == list(range(len(samples)))
    consumer.assign([TopicPartition(topic, 0, 0)])
    received = [as_sent(message) for message in read(consumer, len(samples))]
    assert received == [(s.key, s.value, s.timestamp_ms, s.headers) for s in samples]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_the_topic_may_ask_for_another_codec(bootstrap, consumer, topic, samples, codec):
    """Batches recompressed for `compression.type` lose or reorder records."""
    create(bootstrap, topic, compression_type=codec)
    produce(bootstrap, topic, samples)
    consumer.assign([TopicPartition(topic, 0, 0)])
    received = [as_sent(message) for message in read(consumer, len(samples))]
    assert received == [(s.key, s.value, s.timestamp_ms, s.headers) for s in samples]


def test_consuming_by_time_starts_at_the_first_record_not_older(
    bootstrap, consumer, topic, samples
):
    """ListOffsets by timestamp answers a wrong offset."""
    create(bootstrap, topic)
    produce(bootstrap, topic, samples)
    asked = TopicPartition(topic, 0, samples[25].timestamp_ms - 1)
    [found] = consumer.offsets_for_times([asked], timeout=TIMEOUT_S)
    assert found.offset == 25
    consumer.assign([found])
    assert as_sent(read(consumer, 1)[0])[2] == samples[25].timestamp_ms
    after_all = TopicPartition(topic, 0, samples[-1].timestamp_ms + 1)
    [found] = consumer.offsets_for_times([after_all], timeout=TIMEOUT_S)
    assert found.offset == -1


def test_consuming_from_the_end_sees_only_what_comes_later(bootstrap, consumer, topic, samples):
    """The latest offset is wrong, or a parked fetch is not woken by an append."""
    create(bootstrap, topic)
    produce(bootstrap, topic, samples)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (0, len(samples))
    consumer.assign([TopicPartition(topic, 0, len(samples))])
    end = consumer.poll(TIMEOUT_S)
    assert end.error().code() == KafkaError._PARTITION_EOF
    produce(bootstrap, topic, samples[:1])
    [message] = read(consumer, 1)
    assert message.offset() == len(samples)


@pytest.mark.parametrize(
    ("acks", "idempotent"), [("0", False), ("1", False), ("all", False), ("all", True)]
)
def test_every_level_of_acknowledgement(bootstrap, topic, samples, acks, idempotent):
    """A level of acks that is not answered as asked, or an idempotent producer refused."""
    create(bootstrap, topic)
    offsets = produce(bootstrap, topic, samples, acks=acks, enable_idempotence=idempotent)
    assert len(offsets) == len(samples)
    if acks != "0":
        assert offsets == list(range(len(samples)))


def test_an_idempotent_producer_outlives_its_topic(bootstrap, admin, topic):
    """A producer of a whole session would fail for good when a test makes its topic anew."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    ends: list[tuple[KafkaError | None, int]] = []
    for _ in range(2):
        until(lambda: is_made_anew(bootstrap, topic), "the topic is made")
        for _ in range(3):
            producer.produce(topic, b"v", on_delivery=lambda e, m: ends.append((e, m.offset())))
            assert producer.flush(TIMEOUT_S) == 0
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
        until(lambda: topic not in admin.list_topics(timeout=TIMEOUT_S).topics, "the topic is gone")
    assert ends == [(None, offset) for _ in range(2) for offset in range(3)]


def test_topics_are_created_described_grown_and_deleted(bootstrap, admin, topic):
    """An administrator's day does not work, or Metadata does not follow it."""
    create(bootstrap, topic, partitions=3, retention_ms="60000")
    described = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    assert described.error is None
    assert sorted(described.partitions) == [0, 1, 2]
    assert {p.leader for p in described.partitions.values()} == set(
        admin.list_topics(timeout=TIMEOUT_S).brokers
    )
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(TIMEOUT_S)

    def partitions() -> int:
        return len(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)

    until(lambda: partitions() == 5, "there are five partitions", partitions)
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    until(lambda: topic not in admin.list_topics(timeout=TIMEOUT_S).topics, "the topic is gone")


def test_creating_twice_and_deleting_nothing_are_kafkas_errors(bootstrap, admin, topic):
    """An error code that client code branches on is another one."""
    create(bootstrap, topic)
    with pytest.raises(Exception) as twice:
        create(bootstrap, topic)
    assert twice.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(Exception) as missing:
        admin.delete_topics([topic + "-none"])[topic + "-none"].result(TIMEOUT_S)
    assert missing.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    with pytest.raises(Exception) as illegal:
        create(bootstrap, "not/a/name")
    assert illegal.value.args[0].code() == KafkaError.TOPIC_EXCEPTION


def test_configs_are_described_and_altered_incrementally(bootstrap, admin, topic):
    """DescribeConfigs does not show what IncrementalAlterConfigs did."""
    create(bootstrap, topic, retention_ms="60000")
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def described() -> dict[str, ConfigEntry]:
        return admin.describe_configs([resource])[resource].result(TIMEOUT_S)

    before = described()
    assert (before["retention.ms"].value, before["retention.ms"].is_default) == ("60000", False)
    assert (before["segment.bytes"].value, before["segment.bytes"].is_default) == (
        "1073741824",
        True,
    )
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry(
                "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
            ),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(TIMEOUT_S)
    # Another broker of a cluster may be asked now, and hears of it a moment later.
    until(lambda: described()["retention.ms"].value != "60000", "retention.ms is the broker's")
    until(
        lambda: described()["cleanup.policy"].value == "delete,compact", "it is compacted as well"
    )


def test_records_are_deleted_up_to_an_offset(bootstrap, admin, consumer, topic, samples):
    """DeleteRecords answers, and the log start offset does not move."""
    create(bootstrap, topic)
    produce(bootstrap, topic, samples)
    asked = TopicPartition(topic, 0, 10)
    deleted = admin.delete_records([asked])[asked].result(TIMEOUT_S)
    assert deleted.low_watermark == 10
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)[0] == 10
    consumer.assign([TopicPartition(topic, 0, 10)])
    assert read(consumer, 1)[0].offset() == 10


def test_offsets_are_listed_by_every_spec(bootstrap, admin, topic, samples):
    """Earliest, latest, by time or by the largest timestamp is answered wrongly."""
    create(bootstrap, topic)
    produce(bootstrap, topic, samples)
    partition = TopicPartition(topic, 0)

    def listed(spec: OffsetSpec) -> int:
        return admin.list_offsets({partition: spec})[partition].result(TIMEOUT_S).offset

    assert listed(OffsetSpec.earliest()) == 0
    assert listed(OffsetSpec.latest()) == len(samples)
    assert listed(OffsetSpec.for_timestamp(samples[7].timestamp_ms)) == 7
    assert listed(OffsetSpec.max_timestamp()) == len(samples) - 1


def test_an_unknown_topic_is_made_when_a_producer_names_it(bootstrap, topic, samples):
    """Auto-creation lists a partition before it can be appended to."""
    assert produce(bootstrap, topic, samples) == list(range(len(samples)))


def test_a_partition_out_of_range_is_refused(bootstrap, consumer, topic):
    """Asking for what is not there waits for ever instead of answering."""
    create(bootstrap, topic, partitions=1)
    with pytest.raises(KafkaException) as unknown:
        consumer.get_watermark_offsets(TopicPartition(topic, 7), TIMEOUT_S)
    assert unknown.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


def test_a_record_over_the_topics_limit_is_refused(bootstrap, topic):
    """`max.message.bytes` is not held, or the error is not the one that producers know."""
    create(bootstrap, topic, max_message_bytes="1000")
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x" * 2000, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("version", ["0.9.0.1", "0.10.0.0"])
def test_librdkafka_in_its_oldest_mode(bootstrap, topic, samples, codec, version):
    """Clients of 2015 (magic 0 and 1, Produce and Fetch below 3) are not served."""
    create(bootstrap, topic)
    old = {"api.version.request": False, "broker.version.fallback": version}
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, **old})
    for sample in samples:
        producer.produce(topic, key=sample.key, value=sample.value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, **old}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    received = [(message.key(), message.value()) for message in read(consumer, len(samples))]
    consumer.close()
    assert received == [(s.key, s.value) for s in samples]
