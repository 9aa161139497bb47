"""Topics with all that a log can hold, one case a partition, written as files before the start.

What only old producers, compaction or a coordinator leave behind cannot be produced at will; a
broker that starts finds it and takes it for its own.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Producer
from tests.deadlines import deadline_s

import odradek
from odradek.records.builder import RecordBatchBuilder
from odradek.records.compression import Compression
from odradek.records.legacy import build_message_set
from odradek.records.reader import iter_records

FIRST_TIME_MS = 1_700_000_000_000
# Records of a batch, and batches of a partition.
COUNT = 20
BATCHES = 3
HEADERS = [
    [],
    [("n", b"x")],
    [("ä", None), ("", b"")],
    [("twice", b"1"), ("twice", b"2")],
]


def batch(base_offset: int, codec: int = 0, *, step: int = 1, last: int = -1, **fields) -> bytes:
    """Records with and without key, value and headers; offsets `step` apart; `last` is its end."""
    builder = RecordBatchBuilder(codec, base_offset, **fields)
    for number in range(COUNT):
        offset = base_offset + number * step
        builder.append_at(
            offset,
            FIRST_TIME_MS + 1000 * offset,
            None if number % 7 == 3 else b"key-%d" % number,
            None if number % 11 == 5 else b"value-%d " % offset * (number % 9),
            HEADERS[number % len(HEADERS)],
        )
    return builder.build(last)


def old(magic: int, codec: int) -> bytes:
    """The same as message sets, whose messages have no headers."""
    return b"".join(
        build_message_set(list(iter_records(batch(base))), magic, codec)
        for base in range(0, BATCHES * COUNT, COUNT)
    )


def plain(codec: int = 0, **fields) -> bytes:
    """Batch after batch."""
    return b"".join(batch(base, codec, **fields) for base in range(0, BATCHES * COUNT, COUNT))


def odd_times() -> bytes:
    """No time, the first one, a late one before an early one."""
    builder = RecordBatchBuilder(0, 0)
    for time_ms in (-1, 0, 1, FIRST_TIME_MS * 2, FIRST_TIME_MS):
        builder.append(time_ms, b"key", b"value")
    return builder.build()


def large() -> bytes:
    """Large records and empty ones, in one batch."""
    builder = RecordBatchBuilder(Compression.ZSTD, 0)
    for size in (0, 100_000, 0, 2_000_000, 1):
        builder.append(FIRST_TIME_MS, b"", bytes(size))
    return builder.build()


CASES: dict[str, Callable[[], bytes]] = {
    **{
        f"magic 2, {codec.name.lower()}": lambda codec=codec: plain(codec)  # type: ignore[misc]
        for codec in Compression
    },
    **{
        f"magic {magic}, {codec.name.lower()}": lambda magic=magic, codec=codec: old(magic, codec)  # type: ignore[misc]
        for magic, codec in itertools.product((0, 1), Compression)
        if codec is not Compression.ZSTD
    },
    "all magics in turn": lambda: (
        build_message_set(list(iter_records(batch(0))), 0, Compression.NONE)
        + build_message_set(list(iter_records(batch(COUNT))), 1, Compression.GZIP)
        + batch(2 * COUNT, Compression.LZ4)
    ),
    "log append time": lambda: plain(Compression.SNAPPY, log_append_time_ms=FIRST_TIME_MS),
    "offsets missing in batches": lambda: batch(0, step=2, last=99) + batch(100, 1, step=3),
    "offsets missing between batches": lambda: batch(0) + batch(500) + batch(1000),
    "odd times": odd_times,
    "large and empty records": large,
    "nothing": lambda: b"",
}
FORMATS = "formats"
TRANSACTIONS = "transactions"


def write_topics(data_dir: Path) -> None:
    """Leaves a directory behind in which a broker finds the topic `FORMATS`."""
    with odradek.Broker(data_dir=str(data_dir)) as broker:
        broker.create_topic(FORMATS, partitions=len(CASES), config={"retention.ms": "-1"})
    # The files are not those that were left: all of them are looked through.
    (data_dir / ".kafka_cleanshutdown").unlink()
    for number, case in enumerate(CASES.values()):
        directory = data_dir / f"{FORMATS}-{number}"
        for file in directory.glob("0*"):
            file.unlink()
        (directory / f"{0:020}.log").write_bytes(case())


def produce_transactions(broker: odradek.Broker) -> Iterator[None]:
    """Makes `TRANSACTIONS`: committed, aborted and, while this waits, an open one, interleaved."""
    broker.create_topic(TRANSACTIONS, partitions=2, config={"retention.ms": "-1"})
    servers = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1}
    # One stays open, however long the tests take.
    settings = {**servers, "transaction.timeout.ms": 900_000}
    producers = [Producer({**settings, "transactional.id": f"t-{number}"}) for number in range(3)]
    for producer in producers:
        producer.init_transactions(deadline_s(60))
    outside = Producer(servers)
    for round_number in range(6):
        for number, producer in enumerate(producers[:2]):
            producer.begin_transaction()
            write_some(producer, f"{round_number}-{number}")
            write_some(outside, f"{round_number}-outside")
            # Now the one, now the other is undone.
            if (round_number + number) % 2:
                producer.commit_transaction(deadline_s(60))
            else:
                producer.abort_transaction(deadline_s(60))
    producers[2].begin_transaction()
    write_some(producers[2], "open")
    write_some(outside, "behind the open one")
    yield
    producers[2].abort_transaction(deadline_s(60))


def write_some(producer: Producer, text: str) -> None:
    """Five records in each partition, acknowledged."""
    for number in range(10):
        producer.produce(
            TRANSACTIONS, text, b"%d" % number, number % 2, timestamp=FIRST_TIME_MS + number
        )
    assert producer.flush(deadline_s(60)) == 0
