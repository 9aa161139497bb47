"""Damage: every byte flipped, every length of what is left, for every codec and format.

If these fail, a bad disk or a bad client makes the broker crash, or serves a wrong record.
"""

from collections.abc import Callable

import pytest

from odradek.errors import BrokerError
from odradek.records.batch import split_batches
from odradek.records.builder import RecordBatchBuilder
from odradek.records.columnar import ColumnDecoder
from odradek.records.convert import down_convert
from odradek.records.legacy import build_message_set
from odradek.records.reader import iter_records
from odradek.records.validate import BatchRules, validate_produced

NOW_MS = 1_700_000_000_000


def batch(codec: int) -> bytes:
    builder = RecordBatchBuilder(codec)
    builder.append(NOW_MS, b"key", b"value", [("h", b"x"), ("n", None)])
    builder.append(NOW_MS + 1, None, b"v" * 40)
    return builder.build()


SOURCES: dict[str, bytes] = {f"magic 2 codec {codec}": batch(codec) for codec in range(5)}
for _magic in (0, 1):
    for _codec in range(4):
        SOURCES[f"magic {_magic} codec {_codec}"] = build_message_set(
            list(iter_records(batch(0))), _magic, _codec
        )


def contents(data: bytes) -> list[tuple]:
    records = iter_records(data, check_crc=True, limit_bytes=1 << 20)
    return [(r.timestamp, r.key, r.value, r.headers) for r in records]


def columns(data: bytes) -> object:
    decoder = ColumnDecoder(headers=True, check_crc=True, limit_bytes=1 << 20)
    decoder.append(data)
    return decoder.finish()


CONSUMERS: dict[str, Callable[[bytes], object]] = {
    "read": contents,
    "columns": columns,
    "validate": lambda data: validate_produced(data, BatchRules(limit_bytes=1 << 20), NOW_MS),
    "fit to magic 0": lambda data: validate_produced(
        data, BatchRules(magic=0, limit_bytes=1 << 20), NOW_MS
    ),
    "unchecked": lambda data: list(iter_records(data, limit_bytes=1 << 20)),
    "convert": lambda data: down_convert(data, 0, limit_bytes=1 << 20),
}


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("source", SOURCES)
def test_nothing_but_our_errors_comes_out(source: str, consumer: str) -> None:
    data, consume = SOURCES[source], CONSUMERS[consumer]
    for position in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= flip
            attempt(consume, bytes(damaged))
    for cut in range(len(data)):
        attempt(consume, data[:cut])
        attempt(consume, data[:cut] + bytes(len(data) - cut))


def attempt(consume: Callable[[bytes], object], data: bytes) -> None:
    try:
        consume(data)
    except BrokerError:
        return


@pytest.mark.parametrize("source", SOURCES)
def test_no_flipped_byte_yields_another_record(source: str) -> None:
    """Offsets and leader epoch aside: no checksum covers those, and the log knows them."""
    data = SOURCES[source]
    good = contents(data)
    uncovered = set[int]()
    for header in split_batches(data):
        uncovered.update(range(header.position, header.position + 8))
        if header.magic == 2:
            uncovered.update(range(header.position + 12, header.position + 16))
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            try:
                found = contents(bytes(damaged))
            except BrokerError:
                continue
            assert position in uncovered
            assert found == good


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_cut_off_yields_whole_batches_or_nothing(source: str) -> None:
    data = SOURCES[source]
    boundaries = {header.end_position for header in split_batches(data)}
    for cut in range(1, len(data)):
        if cut in boundaries:
            assert contents(data[:cut]) == contents(data)[: len(contents(data[:cut]))]
        else:
            with pytest.raises(BrokerError):
                contents(data[:cut])
