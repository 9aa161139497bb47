"""Against the record classes of kafka-python and aiokafka, both ways.

If these fail, we agree with ourselves and with nobody else.
"""

import pytest
from aiokafka.record import default_records as aiokafka_default
from aiokafka.record import legacy_records as aiokafka_legacy
from aiokafka.record import memory_records as aiokafka_records
from kafka.record import default_records as kafka_default
from kafka.record import legacy_records as kafka_legacy
from kafka.record import memory_records as kafka_records

from odradek.records.batch import parse_header
from odradek.records.builder import RecordBatchBuilder
from odradek.records.compression import Compression
from odradek.records.legacy import build_message_set
from odradek.records.reader import iter_records
from odradek.records.validate import BatchRules, validate_produced

READERS = [kafka_records.MemoryRecords, aiokafka_records.MemoryRecords]
BATCH_BUILDERS = [
    kafka_default.DefaultRecordBatchBuilder,
    aiokafka_default.DefaultRecordBatchBuilder,
]
SET_BUILDERS = [
    kafka_legacy.LegacyRecordBatchBuilder,
    aiokafka_legacy.LegacyRecordBatchBuilder,
]
RECORDS = [
    (1_700_000_000_000 + index * 7, b"key%d" % index if index % 3 else None, b"value " * index)
    for index in range(40)
]
HEADERS = [("h", b"x"), ("none", None)]


def named(module) -> str:
    return module.__module__.split(".")[0]


# aiokafka never learnt the lz4 framing of magic 0, whose header checksum is wrong (KAFKA-3160).
OLD_SETS = [
    (library, magic, codec)
    for library in ("kafka", "aiokafka")
    for magic in (0, 1)
    for codec in (0, 1, 2, 3)
    if (library, magic, codec) != ("aiokafka", 0, Compression.LZ4)
]


def of(library: str, implementations: list):
    return next(each for each in implementations if named(each) == library)


def read(reader, data: bytes) -> list[tuple]:
    records = reader(data)
    found = []
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value, list(r.headers or [])) for r in batch]
    return found


@pytest.mark.parametrize("reader", READERS, ids=named)
@pytest.mark.parametrize("codec", Compression)
def test_they_read_our_batches(reader, codec: Compression) -> None:
    builder = RecordBatchBuilder(codec, 900)
    for timestamp, key, value in RECORDS:
        builder.append(timestamp, key, value, HEADERS)
    expected = [(900 + i, *record, HEADERS) for i, record in enumerate(RECORDS)]
    assert read(reader, builder.build()) == expected


@pytest.mark.parametrize("builder_class", BATCH_BUILDERS, ids=named)
@pytest.mark.parametrize("codec", Compression)
def test_we_read_their_batches(builder_class, codec: Compression) -> None:
    builder = builder_class(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for index, (timestamp, key, value) in enumerate(RECORDS):
        builder.append(index, timestamp, key, value, HEADERS)
    valid = validate_produced(bytes(builder.build()), BatchRules(), 1_700_000_000_000)
    valid.assign(0, 0)
    assert valid.batches[0].codec == codec
    found = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in iter_records(valid.data)]
    assert found == [(i, *record, HEADERS) for i, record in enumerate(RECORDS)]


@pytest.mark.parametrize(("library", "magic", "codec"), OLD_SETS)
def test_they_read_our_message_sets(library: str, magic: int, codec: int) -> None:
    reader = of(library, READERS)
    builder = RecordBatchBuilder(0, 300)
    for record in RECORDS:
        builder.append(*record)
    data = build_message_set(list(iter_records(builder.build())), magic, codec)
    found = [(offset, t, k, v) for offset, t, k, v, _ in read(reader, data)]
    no_time = found[0][1]
    assert magic == 1 or no_time in (None, -1)
    assert found == [
        (300 + index, timestamp if magic else no_time, key, value)
        for index, (timestamp, key, value) in enumerate(RECORDS)
    ]


@pytest.mark.parametrize(("library", "magic", "codec"), OLD_SETS)
@pytest.mark.parametrize("target", [0, 1, 2])
def test_we_take_their_message_sets(library: str, magic: int, codec: int, target: int) -> None:
    builder_class = of(library, SET_BUILDERS)
    builder = builder_class(magic=magic, compression_type=codec, batch_size=1 << 20)
    for index, (timestamp, key, value) in enumerate(RECORDS):
        builder.append(index, timestamp, key, value)
    data = bytes(builder.build())
    assert parse_header(data).codec == codec
    valid = validate_produced(data, BatchRules(magic=target), 1_700_000_000_000)
    valid.assign(50, 0)
    found = [(r.offset, r.timestamp, r.key, r.value) for r in iter_records(valid.data)]
    assert found == [
        (50 + index, timestamp if magic and target else -1, key, value)
        for index, (timestamp, key, value) in enumerate(RECORDS)
    ]
