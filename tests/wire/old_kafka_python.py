"""A program for a process whose `kafka` is one of 2019: message sets, a producer and a consumer.

    sets                                       "magic codec set-in-hex", a line for each
    produce BOOTSTRAP VERSION [CODEC TOPIC]... "topic offset" for each that is acknowledged
    consume BOOTSTRAP VERSION COUNT TOPIC...   "topic offset key value" for each record

The records to send are on standard input as "key value", and are printed, in base64 after a "+"
and "-" for null: as the Java programs beside do it.
"""

import base64
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.record.memory_records import MemoryRecordsBuilder

BATCH_BYTES = 1 << 20
SILENCE_MS = 20_000
SETS = [(magic, codec) for magic in (0, 1) for codec in range(4)]

Pairs = list[tuple[bytes | None, bytes | None]]


def read_records() -> Pairs:
    return [tuple(map(decode, line.split())) for line in sys.stdin]


def decode(field: str) -> bytes | None:
    return None if field == "-" else base64.b64decode(field[1:])


def encode(field: bytes | None) -> str:
    return "-" if field is None else "+" + base64.b64encode(field).decode()


def sets(records: Pairs) -> None:
    for magic, codec in SETS:
        builder = MemoryRecordsBuilder(magic, codec, BATCH_BYTES)
        for number, (key, value) in enumerate(records):
            assert builder.append(1_700_000_000_000 + number, key, value) is not None
        builder.close()
        print(magic, codec, builder.buffer().hex())


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
            print(topic, future.get(timeout=20).offset)
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
        {"sets": sets, "produce": produce}[command](read_records(), *arguments)
