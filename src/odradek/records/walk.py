"""Walks the records of one magic-2 batch and finds out whether they are well formed.

This is the broker's one loop per produced record. It looks at every length, count and delta and at
no payload, makes no objects, and remembers only what an append needs to know: the largest and
smallest timestamp and how many keys are missing. `validate` walks a second time when this one found
an error, and says which record is wrong and why.
"""

from typing import Final

from mypy_extensions import i64

from odradek.records.errors import InvalidRecords
from odradek.records.varint import read_packed, read_varint, read_varlong

_LARGEST: Final = 0x7FFFFFFFFFFFFFFF
# -1 in zigzag: the length of a null field.
_NULL: Final = 1


class RecordsSummary:
    """The summary of one walk. Timestamps are deltas to the batch's base timestamp.

    `max_timestamp_index` is the first record that has the largest. Without records both
    deltas are 0 and the index is -1.
    """

    def __init__(self) -> None:
        # Not i64: adding them to a timestamp must not overflow silently.
        self.max_timestamp_delta: int = 0
        self.max_timestamp_index: int = -1
        self.min_timestamp_delta: int = 0
        self.null_key_count: int = 0


def walk_records(
    data: bytes, record_count: int, *, start: int = 0, dense: bool = True
) -> RecordsSummary:
    """Checks that `data` is, from `start` on, exactly `record_count` well-formed records.

    `dense` demands the offset deltas 0, 1, 2...: what producers send. Without it they must
    only rise: what compaction leaves.

    Raises:
        InvalidRecords: they are not.
    """
    summary = RecordsSummary()
    try:
        _walk(data, start, record_count, dense, summary)
    except IndexError:
        raise InvalidRecords("the records end before the last one does") from None
    return summary


def _walk(
    data: bytes, position: i64, record_count: i64, dense: bool, summary: RecordsSummary
) -> None:
    size: i64 = len(data)
    index: i64 = 0
    previous_offset_delta: i64 = -1
    largest: i64 = -_LARGEST - 1
    largest_index: i64 = -1
    smallest: i64 = _LARGEST
    null_keys: i64 = 0
    # The one long function of this floor. Every varint is read in the same lines: most are one
    # byte, and a call for each makes the walk twice as slow. `value >> 1` is what a zigzag says
    # when its lowest bit is 0.
    while index < record_count:
        value: i64 = data[position]
        position += 1
        if value >= 0x80:
            packed = read_packed(data, position - 1)
            value = packed >> 3
            position += (packed & 7) - 1
        end = position + (value >> 1)
        if value & 1 or end > size:
            raise InvalidRecords(f"record {index} does not end with the batch or before it")
        # One byte of attributes, which nobody uses yet.
        timestamp_delta: i64 = data[position + 1]
        position += 2
        if timestamp_delta >= 0x80:
            timestamp_delta, position = read_varlong(data, position - 1)
        else:
            timestamp_delta = timestamp_delta >> 1 ^ -(timestamp_delta & 1)
        value = data[position]
        position += 1
        if value >= 0x80:
            packed = read_packed(data, position - 1)
            value = packed >> 3
            position += (packed & 7) - 1
        offset_delta = value >> 1
        if value & 1 or (
            offset_delta != index and (dense or offset_delta <= previous_offset_delta)
        ):
            raise InvalidRecords(f"record {index} has a wrong offset delta")
        previous_offset_delta = offset_delta
        value = data[position]
        position += 1
        if value >= 0x80:
            packed = read_packed(data, position - 1)
            value = packed >> 3
            position += (packed & 7) - 1
        if value & 1 == 0:
            position += value >> 1
        elif value == _NULL:
            null_keys += 1
        else:
            raise InvalidRecords(f"record {index} has a key of negative length")
        value = data[position]
        position += 1
        if value >= 0x80:
            packed = read_packed(data, position - 1)
            value = packed >> 3
            position += (packed & 7) - 1
        if value & 1 == 0:
            position += value >> 1
        elif value != _NULL:
            raise InvalidRecords(f"record {index} has a value of negative length")
        value = data[position]
        position += 1
        if value != 0:
            position = _skip_headers(data, position - 1, end)
        if position != end:
            raise InvalidRecords(f"record {index} is not as long as it says")
        if timestamp_delta > largest:
            largest = timestamp_delta
            largest_index = index
        if timestamp_delta < smallest:
            smallest = timestamp_delta
        index += 1
    if position != size:
        raise InvalidRecords(f"{size - position} bytes follow the last of {index} records")
    if index > 0:
        summary.max_timestamp_delta = largest
        summary.max_timestamp_index = largest_index
        summary.min_timestamp_delta = smallest
    summary.null_key_count = null_keys


def _skip_headers(data: bytes, position: i64, end: i64) -> i64:
    """Returns the end of the headers that begin with their count. Never reads far beyond the
    record.
    """
    left, position = read_varint(data, position)
    if left < 0:
        raise InvalidRecords(f"a record has {left} headers")
    while left > 0:
        if position >= end:
            raise InvalidRecords(f"a record has {left} headers fewer than it says")
        key_length, position = read_varint(data, position)
        if key_length < 0:
            raise InvalidRecords(f"a header key has the length {key_length}")
        value_length, position = read_varint(data, position + key_length)
        if value_length < -1:
            raise InvalidRecords(f"a header value has the length {value_length}")
        if value_length > 0:
            position += value_length
        left -= 1
    return position
