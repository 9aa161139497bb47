"""Against the record classes of kafka-python and aiokafka, both ways.

If these fail, we agree with ourselves and with nobody else.
"""

import pytest

from odradek.records.batch import parse_header
from odradek.records.builder import RecordBatchBuilder
from odradek.records.compression import Compression
from odradek.records.legacy import build_message_set
from odradek.records.reader import iter_records
from odradek.records.validate import BatchRules, validate_produced

kafka_records = pytest.importorskip("kafka.record.memory_records", reason="no kafka-python")
kafka_default = pytest.importorskip("kafka.record.default_records", reason="no kafka-python")
kafka_legacy = pytest.importorskip("kafka.record.legacy_records", reason="no kafka-python")
kafka_codec = pytest.importorskip("kafka.codec", reason="no kafka-python")
aiokafka_records = pytest.importorskip("aiokafka.record.memory_records", reason="no aiokafka")
aiokafka_default = pytest.importorskip("aiokafka.record.default_records", reason="no aiokafka")
aiokafka_legacy = pytest.importorskip("aiokafka.record.legacy_records", reason="no aiokafka")

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


def has(codec: int) -> bool:
    checks = {1: kafka_codec.has_gzip, 2: kafka_codec.has_snappy, 3: kafka_codec.has_lz4}
    return codec == 0 or checks.get(codec, kafka_codec.has_zstd)()


def skip_unless_codec(implementation, codec: int, magic: int = 2) -> None:
    if magic == 0 and codec == Compression.LZ4:
        pytest.skip("neither library does the lz4 framing of magic 0 without xxhash")
    if named(implementation) == "kafka" and not has(codec):
        pytest.skip(f"kafka-python has no {Compression(codec).name} library here")


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
    skip_unless_codec(reader, codec)
    builder = RecordBatchBuilder(codec, 900)
    for timestamp, key, value in RECORDS:
        builder.append(timestamp, key, value, HEADERS)
    expected = [(900 + i, *record, HEADERS) for i, record in enumerate(RECORDS)]
    assert read(reader, builder.build()) == expected


@pytest.mark.parametrize("builder_class", BATCH_BUILDERS, ids=named)
@pytest.mark.parametrize("codec", Compression)
def test_we_read_their_batches(builder_class, codec: Compression) -> None:
    skip_unless_codec(builder_class, codec)
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


@pytest.mark.parametrize("reader", READERS, ids=named)
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_they_read_our_message_sets(reader, magic: int, codec: int) -> None:
    skip_unless_codec(reader, codec, magic)
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


@pytest.mark.parametrize("builder_class", SET_BUILDERS, ids=named)
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize("target", [0, 1, 2])
def test_we_take_their_message_sets(builder_class, magic: int, codec: int, target: int) -> None:
    skip_unless_codec(builder_class, codec, magic)
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
