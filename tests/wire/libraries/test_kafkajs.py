"""kafkajs, which speaks Produce up to 7 and Fetch up to 11 only: admin and produce.

Its consumer always joins a group, so what it produced is read back by confluent-kafka.
"""

from functools import partial

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.deadlines import deadline_s

TIMEOUT_S = deadline_s(60)

SCRIPT = """
const { Kafka, CompressionTypes, logLevel } = require('kafkajs');
const [bootstrap, topic, codec] = process.argv.slice(2);
const kafka = new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.ERROR });
(async () => {
  const admin = kafka.admin();
  await admin.connect();
  const created = await admin.createTopics({ topics: [{ topic, numPartitions: 2 }] });
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  const messages = Array.from({ length: 30 }, (_, n) =>
    ({ key: `key-${n}`, value: `value ${n}`, partition: 0, headers: { n: `${n}` } }));
  const compression = CompressionTypes[codec];
  const sent = await producer.send({ topic, messages, acks: -1, compression });
  const offsets = await admin.fetchTopicOffsets(topic);
  const metadata = await admin.fetchTopicMetadata({ topics: [topic] });
  await producer.disconnect();
  await admin.disconnect();
  console.log(JSON.stringify({ created, sent, offsets, metadata }));
})().catch((error) => { console.error(error); process.exit(1); });
"""


@pytest.fixture
def run(kafkajs):
    return partial(kafkajs, SCRIPT)


@pytest.mark.parametrize("codec", ["None", "GZIP"])
def test_admin_and_producer(run, bootstrap, topic, codec):
    """Old versions of Produce, CreateTopics, Metadata or ListOffsets are answered wrongly."""
    told = run(topic, codec)
    assert told["created"] is True
    assert [(s["partition"], s["errorCode"], s["baseOffset"]) for s in told["sent"]] == [
        (0, 0, "0")
    ]
    by_partition = {entry["partition"]: entry for entry in told["offsets"]}
    assert (by_partition[0]["low"], by_partition[0]["high"]) == ("0", "30")
    assert [p["partitionErrorCode"] for p in told["metadata"]["topics"][0]["partitions"]] == [0, 0]
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    received = []
    while len(received) < 30:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        received.append((message.key(), message.value(), message.headers()))
    consumer.close()
    assert received == [(b"key-%d" % n, b"value %d" % n, [("n", b"%d" % n)]) for n in range(30)]
