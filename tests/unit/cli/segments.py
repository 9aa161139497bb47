"""Builds the files that the storage tools look at."""

import struct
from collections.abc import Sequence
from pathlib import Path

from odradek.records.batch import parse_header, stamp
from odradek.records.builder import RecordBatchBuilder
from odradek.records.legacy import build_message, build_message_set
from odradek.records.record import Record

BASE_TIME_MS = 1_487_165_556_824


def batch(base_offset: int, values: Sequence[bytes | None], epoch: int = 0) -> bytes:
    """A batch of magic 2, keyed `k0`, `k1`..."""
    builder = RecordBatchBuilder(0)
    for index, value in enumerate(values):
        builder.append(BASE_TIME_MS + base_offset + index, b"k%d" % index, value, [])
    data = bytearray(builder.build())
    stamp(data, parse_header(data), base_offset, epoch)
    return bytes(data)


def write_segment(directory: Path, batches: Sequence[bytes], base_offset: int = 0) -> Path:
    """A segment with an index entry for every batch but the first; returns its log."""
    directory.mkdir(parents=True, exist_ok=True)
    stem = directory / f"{base_offset:020d}"
    index, times, position = b"", b"", 0
    for data in batches:
        first = struct.unpack_from(">q", data)[0]
        last = first + struct.unpack_from(">i", data, 23)[0]
        if position:
            index += struct.pack(">ii", last - base_offset, position)
        times += struct.pack(">qi", struct.unpack_from(">q", data, 35)[0], last - base_offset)
        position += len(data)
    stem.with_suffix(".log").write_bytes(b"".join(batches))
    stem.with_suffix(".index").write_bytes(index)
    stem.with_suffix(".timeindex").write_bytes(times)
    return stem.with_suffix(".log")


def message(offset: int, value: bytes, key: bytes | None = None, magic: int = 1) -> bytes:
    """A message of magic 0 or 1."""
    return build_message(magic, offset, BASE_TIME_MS, key, value)


def message_set(records: Sequence[Record], codec: int, magic: int = 1) -> bytes:
    """A compressed message."""
    return build_message_set(records, magic, codec)
