"""A program for a process whose `kafka` is one of 2019: a producer and a consumer.

    produce BOOTSTRAP VERSION [CODEC TOPIC]... "topic offset" for each that is acknowledged
    consume BOOTSTRAP VERSION COUNT TOPIC...   "topic offset key value" for each record

The records to send are on standard input, as `record_lines.py` has them.
"""

import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from record_lines import Pairs, encode, read_records

SILENCE_MS = 60_000


def produce(records: Pairs, bootstrap: str, version: str, *codecs_and_topics: str) -> None:
    for codec, topic in zip(codecs_and_topics[::2], codecs_and_topics[1::2], strict=True):
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            api_version=parse_version(version),
            compression_type=None if codec == "none" else codec,
            acks=-1,
            linger_ms=50,
        )
        sent = [producer.send(topic, value, key, partition=0) for key, value in records]
        producer.flush()
        for future in sent:
            print(topic, future.get(timeout=60).offset)
        producer.close()


def consume(bootstrap: str, version: str, count: str, *topics: str) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        api_version=parse_version(version),
        group_id=None,
        consumer_timeout_ms=SILENCE_MS,
    )
    consumer.assign([TopicPartition(topic, 0) for topic in topics])
    consumer.seek_to_beginning()
    for _, record in zip(range(int(count)), consumer, strict=False):
        print(record.topic, record.offset, encode(record.key), encode(record.value))
    consumer.close()


def parse_version(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "consume":
        consume(*arguments)
    else:
        produce(read_records(), *arguments)
