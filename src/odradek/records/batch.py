"""The header of a record batch: parsed, and stamped in place by a leader.

    position  0 base offset (8)              23 last offset delta (4)
              8 length of what follows (4)   27 base timestamp (8)
             12 partition leader epoch (4)   35 max timestamp (8)
             16 magic (1)                    43 producer id (8)
             17 CRC-32C of 21... (4)         51 producer epoch (2)
             21 attributes (2)               53 base sequence (4)
                                             57 record count (4)   61 records

The base offset and the leader epoch are before the checksum, so a leader writes them without
touching it; timestamps are behind it, so `stamp_timestamps` computes it again. Messages of magic 0
and 1 share the first 17 bytes up to the meaning of two fields: for them `base_offset` is the offset
written in the entry (of a compressed one: its *last* offset, `legacy.first_offset` knows the
first), and `crc` is a CRC-32.

Headers only: `validate`, `reader` and `columnar` read the records.
"""

import struct
from collections.abc import Callable
from typing import Final

from fastcrc import crc32
from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from odradek.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from odradek.records.errors import CorruptRecords

Buffer = bytes | bytearray | memoryview

LOG_OVERHEAD_BYTES: Final = 12
HEADER_BYTES: Final = 61
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
MAX_TIMESTAMP_POSITION: Final = 35

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

# The smallest message that is no batch: crc, magic, attributes, two lengths; 8 more for the
# timestamp of magic 1.
LEGACY_OVERHEAD_BYTES: Final = (14, 22)

_LEGACY_HEADER: Final = struct.Struct(">qiIBb")
_TIMESTAMP: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
# Base offset and leader epoch, with the length between them: one write gives a batch its place.
_PLACE: Final = struct.Struct(">qii")
_ATTRIBUTES: Final = struct.Struct(">h")
_CRC: Final = struct.Struct(">I")

_crc32c: Final[Callable[[Buffer], int]] = crc32.iscsi


class BatchHeader:
    """The header of one batch. `position` is where in its buffer the batch begins.

    `size_bytes` is the whole batch, with the 12 bytes of offset and length. For magic 0 and 1
    the fields that did not exist yet have Kafka's "none" values and `record_count` is -1.
    """

    def __init__(
        self,
        position: int,
        base_offset: int,
        size_bytes: int,
        partition_leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.position = position
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.partition_leader_epoch = partition_leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    @property
    def end_position(self) -> int:
        """Where in the buffer the next batch begins."""
        return self.position + self.size_bytes

    @property
    def last_offset(self) -> int:
        """The offset of the last record, even if compaction has removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """The id of the codec, 0 to 7; 5 to 7 are not defined."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """`CREATE_TIME` (0) or `LOG_APPEND_TIME` (1)."""
        return (self.attributes & TIMESTAMP_TYPE_BIT) >> 3

    @property
    def is_transactional(self) -> bool:
        """The records belong to a transaction of `producer_id`."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """The batch holds a transaction's end marker; consumers never see it."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """The cleaner wrote into `base_timestamp` when tombstones may go."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def has_producer_id(self) -> bool:
        """An idempotent producer wrote it."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap at 2^31. `NO_SEQUENCE` if none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position` of `buffer`. Lengths and magic are checked, no checksum.

    Raises:
        CorruptRecords: the buffer ends before the batch does, the length is too small, or the
            magic is none of 0, 1, 2.
    """
    available = len(buffer) - position
    if available <= MAGIC_POSITION:
        raise CorruptRecords(f"{available} bytes at position {position} are no record batch")
    magic = buffer[position + MAGIC_POSITION]
    if magic != 2:
        return _parse_legacy_header(buffer, position, available, magic)
    if available < HEADER_BYTES:
        raise CorruptRecords(f"{available} bytes at position {position} are no record batch")
    if isinstance(buffer, bytes):
        header = _read_header(buffer, position, position)
    else:
        header = _read_header(bytes(buffer[position : position + HEADER_BYTES]), 0, position)
    _check_size(header.size_bytes, HEADER_BYTES, available, position)
    return header


def _read_header(data: bytes, at: i64, position: int) -> BatchHeader:
    """The header that begins at `at`. Compiled code reads numbers from `bytes` without a call."""
    return BatchHeader(
        position,
        read_i64_be(data, at),
        LOG_OVERHEAD_BYTES + int(read_i32_be(data, at + 8)),
        read_i32_be(data, at + LOG_OVERHEAD_BYTES),
        2,
        int(read_i32_be(data, at + CRC_POSITION)) & 0xFFFFFFFF,
        read_i16_be(data, at + ATTRIBUTES_POSITION),
        read_i32_be(data, at + 23),
        read_i64_be(data, at + 27),
        read_i64_be(data, at + MAX_TIMESTAMP_POSITION),
        read_i64_be(data, at + 43),
        read_i16_be(data, at + 51),
        read_i32_be(data, at + 53),
        read_i32_be(data, at + 57),
    )


def _parse_legacy_header(buffer: Buffer, position: int, available: int, magic: int) -> BatchHeader:
    if magic > 2:
        raise CorruptRecords(f"the batch at position {position} has magic {magic}")
    overhead = LOG_OVERHEAD_BYTES + LEGACY_OVERHEAD_BYTES[magic]
    if available < overhead:
        raise CorruptRecords(f"{available} bytes at position {position} are no message")
    offset, length, crc, magic, attributes = _LEGACY_HEADER.unpack_from(buffer, position)
    size_bytes = LOG_OVERHEAD_BYTES + length
    _check_size(size_bytes, overhead, available, position)
    timestamp = NO_TIMESTAMP
    if magic == 1:
        timestamp = _TIMESTAMP.unpack_from(buffer, position + 18)[0]
    return BatchHeader(
        position,
        offset,
        size_bytes,
        -1,
        magic,
        crc,
        # Magic 0 has no timestamps; the bits above the codec's are not anybody's there.
        attributes & (CODEC_MASK | TIMESTAMP_TYPE_BIT if magic == 1 else CODEC_MASK),
        0,
        timestamp,
        timestamp,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        -1,
    )


def _check_size(size_bytes: int, overhead_bytes: int, available: int, position: int) -> None:
    if size_bytes < overhead_bytes:
        raise CorruptRecords(
            f"the batch at position {position} says it has {size_bytes} bytes, "
            f"fewer than the {overhead_bytes} of its own header"
        )
    if size_bytes > available:
        raise CorruptRecords(
            f"the batch at position {position} says it has {size_bytes} bytes, "
            f"the buffer has {available} left"
        )


def split_batches(buffer: Buffer, *, drop_partial_tail: bool = False) -> list[BatchHeader]:
    """The headers of all batches of `buffer`, in order.

    With `drop_partial_tail` an incomplete last batch is ignored: Fetch responses and torn writes
    may end with one. A batch that contradicts itself always raises.

    Raises:
        CorruptRecords: as for `parse_header`.
    """
    headers: list[BatchHeader] = []
    position = 0
    end = len(buffer)
    while position < end:
        if drop_partial_tail and is_partial(buffer, position):
            break
        header = parse_header(buffer, position)
        headers.append(header)
        position += header.size_bytes
    return headers


def is_partial(buffer: Buffer, position: int) -> bool:
    """Whether `buffer` ends before the batch at `position` does, by the batch's own length."""
    available = len(buffer) - position
    if available < LOG_OVERHEAD_BYTES:
        return True
    length: int = _LENGTH.unpack_from(buffer, position + 8)[0]
    return available < LOG_OVERHEAD_BYTES + length


def stamp(
    buffer: bytearray | memoryview, header: BatchHeader, base_offset: int, leader_epoch: int
) -> None:
    """Writes base offset and leader epoch into the magic-2 batch of `header`. The checksum stays
    right.
    """
    length = header.size_bytes - LOG_OVERHEAD_BYTES
    _PLACE.pack_into(buffer, header.position, base_offset, length, leader_epoch)
    header.base_offset = base_offset
    header.partition_leader_epoch = leader_epoch


def stamp_timestamps(
    buffer: bytearray | memoryview, header: BatchHeader, timestamp_type: int, max_timestamp: int
) -> None:
    """Writes timestamp type and largest timestamp of a magic-2 batch, and its checksum.

    The records are not touched, whatever their codec: readers take a log append time from here.
    """
    if header.timestamp_type == timestamp_type and header.max_timestamp == max_timestamp:
        return
    header.attributes = header.attributes & ~TIMESTAMP_TYPE_BIT | timestamp_type << 3
    header.max_timestamp = max_timestamp
    position = header.position
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, header.attributes)
    _TIMESTAMP.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, max_timestamp)
    header.crc = checksum(buffer, header)
    _CRC.pack_into(buffer, position + CRC_POSITION, header.crc)


def checksum(buffer: Buffer, header: BatchHeader) -> int:
    """The CRC-32C that the magic-2 batch of `header` should have."""
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    return _crc32c(view[header.position + ATTRIBUTES_POSITION : header.end_position])


def check_checksum(buffer: Buffer, header: BatchHeader) -> None:
    """Compares the magic-2 batch with its checksum.

    Raises:
        CorruptRecords: they differ.
    """
    computed = checksum(buffer, header)
    if computed != header.crc:
        raise CorruptRecords(
            f"the batch of {header.record_count} records at position {header.position} is "
            f"corrupt: its CRC-32C is {computed}, it says {header.crc}"
        )
