"""The cleaner's two loops over the records of one batch, compiled.

The first takes the keys into an `OffsetMap`, the second decides which records stay. Neither
makes an object per record but its key; records that stay are copied as the byte ranges they
are: their deltas refer to the batch's base offset and base timestamp, which the cleaner keeps.

`batch_cleaner` handles transactions, producers and delete horizons. The records were checked when
they were appended; malformed ones raise.
"""

from typing import Final

from mypy_extensions import i64

from odradek.records.errors import InvalidRecords
from odradek.records.varint import append_varint, read_packed, read_varlong
from odradek.storage.cleaner.offset_map import OffsetMap

_NEGATIVE: Final = 8


def collect_keys(
    data: bytes, record_count: i64, base_offset: i64, from_offset: i64, offsets: OffsetMap
) -> bool:
    """Takes the keys from `from_offset` on into `offsets`; false when it is full before the end.

    `offsets.latest_offset` follows record by record.

    Raises:
        InvalidRecords: the records are malformed.
    """
    try:
        return _collect_keys(data, record_count, base_offset, from_offset, offsets)
    except IndexError:
        raise InvalidRecords("the records end before the last one does") from None


def _collect_keys(
    data: bytes, record_count: i64, base_offset: i64, from_offset: i64, offsets: OffsetMap
) -> bool:
    size: i64 = len(data)
    position: i64 = 0
    index: i64 = 0
    while index < record_count:
        packed = read_packed(data, position)
        position += packed & 7
        end = position + (packed >> 4)
        if packed & _NEGATIVE or end > size:
            raise InvalidRecords(f"record {index} does not end with the batch or before it")
        _, position = read_varlong(data, position + 1)
        packed = read_packed(data, position)
        position += packed & 7
        offset = base_offset + (packed >> 4)
        packed = read_packed(data, position)
        position += packed & 7
        if offset >= from_offset:
            if packed & _NEGATIVE == 0:
                key_end = position + (packed >> 4)
                if key_end > end:
                    raise InvalidRecords(f"record {index} has a key that ends behind it")
                if not offsets.put(data[position:key_end], offset):
                    return False
            offsets.latest_offset = offset
        position = end
        index += 1
    return True


class RecordFilter:
    """Selects the records of a batch that stay, by an `OffsetMap`.

    After `filter`: `kept` are the records that stay, None when all do; `kept_count` how many;
    `has_tombstone` whether there is one among them; `max_timestamp_delta` is their largest.
    """

    def __init__(self, offsets: OffsetMap) -> None:
        self._offsets = offsets
        self.kept: bytearray | None = None
        self.kept_count = 0
        self.has_tombstone = False
        self.max_timestamp_delta = 0

    def filter(
        self, data: bytes, record_count: i64, base_offset: i64, drop_tombstones: bool
    ) -> None:
        """Keeps the newest record of each key, and all that are newer than the map knows.

        Records without a key are dropped. Tombstones stay unless `drop_tombstones` is set.

        Raises:
            InvalidRecords: the records are malformed.
        """
        try:
            self._filter(data, record_count, base_offset, drop_tombstones)
        except IndexError:
            raise InvalidRecords("the records end before the last one does") from None

    def _filter(
        self, data: bytes, record_count: i64, base_offset: i64, drop_tombstones: bool
    ) -> None:
        offsets = self._offsets
        latest_offset: i64 = offsets.latest_offset
        size: i64 = len(data)
        kept = bytearray()
        kept_count: i64 = 0
        largest: i64 = 0
        has_tombstone = False
        # The start of the kept records that are not copied yet.
        run_start: i64 = 0
        position: i64 = 0
        index: i64 = 0
        while index < record_count:
            start = position
            packed = read_packed(data, position)
            position += packed & 7
            end = position + (packed >> 4)
            if packed & _NEGATIVE or end > size:
                raise InvalidRecords(f"record {index} does not end with the batch or before it")
            timestamp_delta, position = read_varlong(data, position + 1)
            packed = read_packed(data, position)
            position += packed & 7
            offset = base_offset + (packed >> 4)
            packed = read_packed(data, position)
            position += packed & 7
            key_start = position
            has_key = packed & _NEGATIVE == 0
            if has_key:
                position += packed >> 4
                if position > end:
                    raise InvalidRecords(f"record {index} has a key that ends behind it")
            is_tombstone = read_packed(data, position) & _NEGATIVE != 0
            stays = True
            if offset <= latest_offset:
                if not has_key or (is_tombstone and drop_tombstones):
                    stays = False
                else:
                    stays = offsets.is_newest(data[key_start:position], offset)
            if stays:
                if kept_count == 0 or timestamp_delta > largest:
                    largest = timestamp_delta
                kept_count += 1
                has_tombstone = has_tombstone or is_tombstone
            else:
                if run_start < start:
                    kept += data[run_start:start]
                run_start = end
            position = end
            index += 1
        if kept_count == record_count:
            self.kept = None
        else:
            kept += data[run_start:position]
            self.kept = kept
        self.kept_count = kept_count
        self.has_tombstone = has_tombstone
        self.max_timestamp_delta = largest


def shift_timestamps(data: bytes, record_count: int, shift_ms: int) -> bytes:
    """The same records for a base timestamp that lies `shift_ms` later."""
    shifted = bytearray()
    position: i64 = 0
    for _ in range(record_count):
        packed = read_packed(data, position)
        position += packed & 7
        end = position + (packed >> 4)
        timestamp_delta, after = read_varlong(data, position + 1)
        body = bytearray(data[position : position + 1])
        append_varint(body, timestamp_delta - shift_ms)
        body += data[after:end]
        append_varint(shifted, len(body))
        shifted += body
        position = end
    return bytes(shifted)
