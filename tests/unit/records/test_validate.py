"""The refusals of a leader: if these fail, clients are told something else than Kafka tells
them."""

import lz4.frame
import pytest

from odradek.config.topic import LogConfig
from odradek.errors import BrokerError, ErrorCode
from odradek.model import AppendOrigin
from odradek.records.batch import parse_header, split_batches
from odradek.records.builder import RecordBatchBuilder, assemble_batch, build_end_marker
from odradek.records.compression import Compression, compress
from odradek.records.errors import CorruptRecords, InvalidRecords
from odradek.records.legacy import build_message
from odradek.records.reader import iter_records, read_batch, records_bytes
from odradek.records.validate import BatchRules, magic_of_format_version, validate_produced

NOW_MS = 1_700_000_000_000
RULES = BatchRules()
RECORDS = [(NOW_MS + 5, b"a", b"1"), (NOW_MS + 9, None, b"2"), (NOW_MS + 9, b"c", None)]


def build(codec: int = 0, records=RECORDS, **fields) -> bytes:
    builder = RecordBatchBuilder(codec, **fields)
    for timestamp, key, value in records:
        builder.append(timestamp, key, value, [("h", b"x"), ("none", None)])
    return builder.build()


def rebuild(batch: bytes, **changes: int) -> bytes:
    """`batch` with other header fields and a right checksum."""
    header = parse_header(batch)
    fields = {
        "base_offset": header.base_offset,
        "partition_leader_epoch": header.partition_leader_epoch,
        "attributes": header.attributes,
        "last_offset_delta": header.last_offset_delta,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "record_count": header.record_count,
    }
    return assemble_batch(batch[61:], **{**fields, **changes})


def refused(batch: bytes, rules: BatchRules = RULES, **options: bool) -> BrokerError:
    with pytest.raises(BrokerError) as raised:
        validate_produced(bytearray(batch), rules, NOW_MS, **options)
    return raised.value


def read(data) -> list[tuple]:
    return [
        (r.offset, r.timestamp, r.key, r.value, r.headers)
        for r in iter_records(data, check_crc=True)
    ]


@pytest.mark.parametrize("codec", Compression)
def test_a_good_batch_is_left_as_it_is(codec: Compression) -> None:
    batch = build(codec, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    buffer = memoryview(bytearray(batch))
    valid = validate_produced(buffer, RULES, NOW_MS)
    assert valid.data is buffer
    assert bytes(buffer) == batch
    assert (valid.record_count, valid.size_bytes) == (3, len(batch))
    assert (valid.max_timestamp, valid.max_timestamp_index) == (NOW_MS + 9, 1)
    assert valid.log_append_time_ms == -1
    valid.assign(70, 3)
    header = parse_header(buffer)
    assert (header.base_offset, header.partition_leader_epoch) == (70, 3)
    assert [r.offset for r in iter_records(valid.data, check_crc=True)] == [70, 71, 72]


def test_read_only_bytes_are_copied() -> None:
    batch = build()
    for buffer in (batch, memoryview(batch)):
        valid = validate_produced(buffer, RULES, NOW_MS)
        valid.assign(8, 1)
        assert parse_header(valid.data).base_offset == 8
    assert parse_header(batch).base_offset == 0


@pytest.mark.parametrize("codec", Compression)
def test_log_append_time(codec: Compression) -> None:
    valid = validate_produced(build(codec), BatchRules(timestamp_type=1), NOW_MS)
    assert (valid.max_timestamp, valid.max_timestamp_index) == (NOW_MS, 0)
    assert valid.log_append_time_ms == NOW_MS
    assert [r.timestamp for r in iter_records(valid.data, check_crc=True)] == [NOW_MS] * 3
    assert records_bytes(valid.data, valid.batches[0]) == records_bytes(
        build(codec), parse_header(build(codec))
    )


@pytest.mark.parametrize("source", Compression)
@pytest.mark.parametrize("target", Compression)
def test_another_codec_keeps_everything_else(source: Compression, target: Compression) -> None:
    batch = build(source, producer_id=5, producer_epoch=1, base_sequence=9)
    valid = validate_produced(batch, BatchRules(codec=target), NOW_MS)
    valid.assign(0, -1)
    header, before = valid.batches[0], parse_header(batch)
    assert header.codec == target
    assert read(valid.data) == read(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 9)
    assert header.max_timestamp == before.max_timestamp


def test_a_wrong_largest_timestamp_is_put_right() -> None:
    """Kafka corrects it: look-ups by time read it from the header."""
    valid = validate_produced(rebuild(build(), max_timestamp=1), RULES, NOW_MS)
    assert valid.batches[0].max_timestamp == NOW_MS + 9
    assert len(read(valid.data)) == 3


def test_records_without_timestamps() -> None:
    valid = validate_produced(build(records=[(-1, b"k", b"v")] * 2), RULES, NOW_MS)
    assert (valid.max_timestamp, valid.max_timestamp_index) == (-1, -1)


HEADER_FAULTS = {
    "a base offset": {"base_offset": 1},
    "more records than offsets": {"last_offset_delta": 1},
    "fewer records than offsets": {"last_offset_delta": 3},
    "a negative last offset delta": {"last_offset_delta": -1},
    "a count too small": {"record_count": 2, "last_offset_delta": 1},
    "a count too large": {"record_count": 4, "last_offset_delta": 3},
    "no records": {"record_count": 0, "last_offset_delta": -1},
    "a negative count": {"record_count": -1},
    "two billion records": {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
    "a control batch": {"attributes": 0x20},
    "a delete horizon": {"attributes": 0x40},
    "a producer without a sequence": {"producer_id": 7},
    "a timestamp of more than 64 bits": {"base_timestamp": 2**63 - 2},
}


@pytest.mark.parametrize("codec", [0, 3])
@pytest.mark.parametrize("name", HEADER_FAULTS)
def test_headers_that_a_client_may_not_send(name: str, codec: int) -> None:
    changes = dict(HEADER_FAULTS[name])
    if "attributes" in changes:
        changes["attributes"] |= codec
    assert refused(rebuild(build(codec), **changes)).code is ErrorCode.INVALID_RECORD


def test_what_only_the_broker_may_write() -> None:
    marker = build_end_marker(
        commit=False,
        base_offset=33,
        timestamp_ms=NOW_MS,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
    )
    assert refused(marker).code is ErrorCode.INVALID_RECORD
    rules = BatchRules(codec=Compression.GZIP, requires_keys=True)
    valid = validate_produced(marker, rules, NOW_MS, AppendOrigin.COORDINATOR)
    assert valid.batches[0].codec == Compression.NONE


def test_damage_is_a_corrupt_message() -> None:
    batch = bytearray(build())
    batch[70] ^= 1
    assert isinstance(refused(batch), CorruptRecords)
    assert refused(batch[:-1]).code is ErrorCode.CORRUPT_MESSAGE
    assert refused(build() + b"\0").code is ErrorCode.CORRUPT_MESSAGE


def test_one_batch_in_a_request_no_more_and_no_less() -> None:
    assert refused(build() + build()).code is ErrorCode.INVALID_RECORD
    assert refused(b"").code is ErrorCode.INVALID_RECORD


def test_unknown_codecs() -> None:
    for codec in (5, 6, 7):
        error = refused(rebuild(build(), attributes=codec))
        assert error.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_reserved_attributes_are_ignored_as_in_kafka() -> None:
    validate_produced(rebuild(build(), attributes=0x7F80), RULES, NOW_MS)


def test_sizes() -> None:
    batch = build()
    validate_produced(batch, BatchRules(max_message_bytes=len(batch)), NOW_MS)
    error = refused(batch, BatchRules(max_message_bytes=len(batch) - 1))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    small = build(Compression.GZIP, [(NOW_MS, None, b"x" * 1000)])
    rules = BatchRules(max_message_bytes=1000, codec=Compression.NONE)
    assert refused(small, rules).code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_bomb_meets_the_limit() -> None:
    bomb = build(Compression.ZSTD, [(NOW_MS, None, b"\0" * 1_000_000)])
    assert refused(bomb, BatchRules(limit_bytes=10_000)).code is ErrorCode.MESSAGE_TOO_LARGE


def test_compacted_topics_name_the_records_without_a_key() -> None:
    error = refused(build(), BatchRules(requires_keys=True))
    assert isinstance(error, InvalidRecords)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [1]
    keyed = [(NOW_MS, b"k", None)]
    validate_produced(build(records=keyed), BatchRules(requires_keys=True), NOW_MS)


def test_timestamps_out_of_range_are_named() -> None:
    rules = BatchRules(timestamp_before_max_ms=100, timestamp_after_max_ms=50)
    times = [NOW_MS - 100, NOW_MS - 101, NOW_MS + 50, NOW_MS + 51, -1]
    error = refused(build(records=[(t, b"k", b"v") for t in times]), rules)
    assert isinstance(error, InvalidRecords)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [1, 3]
    inside = build(records=[(t, b"k", b"v") for t in (times[0], times[2], -1)])
    validate_produced(inside, rules, NOW_MS)
    by_broker = BatchRules(timestamp_type=1, timestamp_before_max_ms=0, timestamp_after_max_ms=0)
    validate_produced(build(records=[(5, b"k", b"v")]), by_broker, NOW_MS)


@pytest.mark.parametrize("timestamp_type", [0, 1])
def test_producers_do_not_set_log_append_time(timestamp_type: int) -> None:
    error = refused(build(log_append_time_ms=NOW_MS), BatchRules(timestamp_type=timestamp_type))
    assert error.code is ErrorCode.INVALID_TIMESTAMP


def test_compressed_records_are_looked_into() -> None:
    batch = build(Compression.LZ4)
    header = parse_header(batch)
    inside = records_bytes(batch, header)
    for bad in (inside[:-1], inside + b"\0", b"", inside[:4] + b"\x7f" + inside[5:]):
        packed = batch[:61] + compress(Compression.LZ4, bad)
        assert refused(rebuild(packed_with_length(packed))).code is ErrorCode.INVALID_RECORD
    broken = packed_with_length(batch[:-4])
    assert refused(rebuild(broken)).code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (lz4.frame.compress(b"x" * 200_000, block_linked=True), ErrorCode.UNKNOWN_SERVER_ERROR),
        (compress(Compression.LZ4, b"x" * 99) * 2, ErrorCode.INVALID_RECORD),
        (b"no frame", ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_lz4_that_java_cannot_read_is_refused(frame, code):
    """It would be stored, and every Java consumer of the topic stop at it."""
    packed = packed_with_length(build(Compression.LZ4)[:61] + frame)
    assert refused(rebuild(packed)).code is code


def packed_with_length(batch: bytes) -> bytes:
    return batch[:8] + (len(batch) - 12).to_bytes(4, "big") + batch[12:]


def test_the_rules_of_a_topic() -> None:
    rules = BatchRules.from_config(
        LogConfig(
            {
                "max.message.bytes": 77,
                "message.timestamp.type": "LogAppendTime",
                "cleanup.policy": ("compact", "delete"),
                "compression.type": "zstd",
                "compression.zstd.level": 7,
                "message.format.version": "0.10.2-IV0",
            }
        )
    )
    assert (rules.max_message_bytes, rules.timestamp_type, rules.requires_keys) == (77, 1, True)
    assert (rules.codec, rules.level, rules.magic) == (Compression.ZSTD, 7, 1)
    plain = BatchRules.from_config(LogConfig())
    assert (plain.codec, plain.magic, plain.requires_keys) == (None, 2, False)


def test_message_format_versions() -> None:
    versions = {"0.8.2": 0, "0.9.0.1": 0, "0.10.0-IV1": 1, "0.10.2": 1, "0.11.0": 2, "3.0-IV1": 2}
    for version, magic in versions.items():
        assert magic_of_format_version(version) == magic
    assert magic_of_format_version(None) == 2


def message_set(magic: int, codec: int = 0) -> bytes:
    plain = [
        build_message(magic, index, timestamp, key, value)
        for index, (timestamp, key, value) in enumerate(RECORDS)
    ]
    if not codec:
        return b"".join(plain)
    packed = compress(codec, b"".join(plain), broken_lz4_header=magic == 0)
    # Wrapped as old clients did: at offset 0 and without a time of its own.
    return build_message(magic, 0, 0, None, packed, codec)


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("target", [0, 1, 2])
@pytest.mark.parametrize("timestamp_type", [0, 1])
def test_sets_of_old_producers_are_fitted_to_the_topic(
    codec: int, magic: int, target: int, timestamp_type: int
) -> None:
    rules = BatchRules(magic=target, timestamp_type=timestamp_type)
    valid = validate_produced(message_set(magic, codec), rules, NOW_MS)
    valid.assign(500, 4)
    records = list(iter_records(valid.data, check_crc=True))
    assert [r.offset for r in records] == [500, 501, 502]
    assert [(r.key, r.value) for r in records] == [(k, v) for _, k, v in RECORDS]
    times = [t for t, _, _ in RECORDS] if magic == 1 else [-1, -1, -1]
    if timestamp_type == 1:
        times = [NOW_MS] * 3
    assert [r.timestamp for r in records] == (times if target > 0 else [-1, -1, -1])
    assert valid.max_timestamp == max(r.timestamp for r in records)
    headers = split_batches(valid.data)
    assert {h.magic for h in headers} == {target}
    assert {h.codec for h in headers} == {codec}
    assert len(headers) == (1 if codec or target == 2 else 3)


def test_old_sets_are_checked_too() -> None:
    for magic in (0, 1):
        damaged = bytearray(message_set(magic))
        damaged[-1] ^= 1
        assert refused(damaged).code is ErrorCode.CORRUPT_MESSAGE
        keyless = refused(message_set(magic), BatchRules(requires_keys=True))
        assert keyless.code is ErrorCode.INVALID_RECORD
        assert refused(message_set(magic, 1) * 2).code is ErrorCode.INVALID_RECORD
    mixed = message_set(0) + message_set(1)
    assert refused(mixed).code is ErrorCode.INVALID_RECORD
    late = refused(message_set(1), BatchRules(timestamp_after_max_ms=1))
    assert late.code is ErrorCode.INVALID_TIMESTAMP


def test_damage_inside_a_compressed_set_is_found() -> None:
    inside = bytearray(message_set(1))
    inside[-1] ^= 1
    wrapped = build_message(1, 0, 0, None, compress(1, inside), 1)
    assert refused(wrapped).code is ErrorCode.CORRUPT_MESSAGE


def test_new_batches_for_an_old_topic() -> None:
    valid = validate_produced(build(Compression.GZIP), BatchRules(magic=1), NOW_MS)
    valid.assign(9, 0)
    records = list(iter_records(valid.data, check_crc=True))
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records] == [
        (9 + index, *record, []) for index, record in enumerate(RECORDS)
    ]
    idempotent = build(producer_id=1, producer_epoch=0, base_sequence=0)
    error = refused(idempotent, BatchRules(magic=1))
    assert error.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    error = refused(build(Compression.ZSTD), BatchRules(magic=1))
    assert error.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_headers_survive() -> None:
    valid = validate_produced(build(), RULES, NOW_MS)
    record = read_batch(valid.data, valid.batches[0])[0]
    assert record.headers == [("h", b"x"), ("none", None)]
