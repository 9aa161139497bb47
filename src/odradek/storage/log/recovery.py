"""Reads segments from end to end: to check them after a crash, and to rebuild their indexes.

A batch counts if it is complete, its lengths and its checksum agree, and its offsets follow those
before it. The first that does not ends the log: the batches behind it were never acknowledged as
durable, or the disk lost them. The file is read in large slices, and each byte once.
"""

from collections.abc import Callable
from typing import Final

from odradek.errors import BrokerError
from odradek.records.batch import BatchHeader, Buffer, check_checksum, is_partial, parse_header
from odradek.records.errors import CorruptRecords
from odradek.records.legacy import check_message
from odradek.storage.errors import OffsetWentBack
from odradek.storage.log.segment import MAX_RELATIVE_OFFSET, LogSegment

_SLICE_BYTES: Final = 4 * 1024 * 1024
# No batch of any format begins with so many zeros.
_MIN_BATCH_BYTES: Final = 26

OnBatch = Callable[[BatchHeader, Buffer], None]


class SegmentEnd:
    """The end of the valid part of a segment. `reason` is None if all of it is valid."""

    def __init__(self, position: int, next_offset: int, reason: str | None) -> None:
        self.position = position
        self.next_offset = next_offset
        self.reason = reason


def walk_segment(
    segment: LogSegment,
    on_batch: OnBatch,
    *,
    next_offset: int | None = None,
    end_offset: int | None = None,
    from_position: int = 0,
    check: bool = True,
) -> SegmentEnd:
    """Calls `on_batch` with every valid batch: its header and its bytes.

    The header's position is the one in the segment. Stops at the first batch that is not
    valid. The first batch must not begin below `next_offset`, and no batch reach `end_offset`; with
    `check` checksums are compared.

    Raises:
        OSError: the disk failed; that says nothing about the records.
    """
    expected = segment.base_offset if next_offset is None else next_offset
    end = segment.base_offset + MAX_RELATIVE_OFFSET + 1 if end_offset is None else end_offset
    position = from_position
    # The last batch that did not follow the one before it, and its expected offset.
    jumped_position = -1
    jumped_expected = expected
    wanted = _SLICE_BYTES
    while position < segment.size_bytes:
        window = segment.read(position, wanted)
        at = 0
        while at < len(window) and not is_partial(window, at):
            try:
                header = _checked_header(window, at, expected, end, check)
            except OffsetWentBack as error:
                if jumped_position >= 0 and error.offset >= jumped_expected:
                    # The batch with the gap is wrong, not this one: a checksum does not cover the
                    # batch's offset, but its successors show the damage.
                    return SegmentEnd(jumped_position, jumped_expected, str(error))
                return SegmentEnd(position + at, expected, str(error))
            except BrokerError as error:
                why = str(error) if any(window[at : at + _MIN_BATCH_BYTES]) else "zeros follow"
                return SegmentEnd(position + at, expected, f"at {position + at}: {why}")
            if header.base_offset > expected:
                jumped_position = position + at
                jumped_expected = expected
            size_bytes = header.size_bytes
            header.position = position + at
            on_batch(header, memoryview(window)[at : at + size_bytes])
            expected = header.last_offset + 1
            at += size_bytes
        if at == 0 and position + len(window) >= segment.size_bytes:
            return SegmentEnd(position, expected, f"at {position}: the file ends within a batch")
        # A batch larger than the slice is read again, whole.
        wanted = _SLICE_BYTES if at > 0 else wanted * 4
        position += at
    return SegmentEnd(position, expected, None)


def recover_segment(
    segment: LogSegment, next_offset: int, end_offset: int | None, on_batch: OnBatch
) -> SegmentEnd:
    """Checks a segment, rebuilds its indexes, cuts it where it stops being valid.

    `end_offset` is where the segment behind it begins.

    Raises:
        OSError: the disk failed.
    """
    segment.begin_rebuild()

    def note(header: BatchHeader, batch: Buffer) -> None:
        segment.index_batch(
            header.position, header.size_bytes, header.last_offset, header.max_timestamp
        )
        on_batch(header, batch)

    end = walk_segment(segment, note, next_offset=next_offset, end_offset=end_offset)
    if end.position < segment.size_bytes:
        segment.cut(end.position, end.next_offset)
    return end


def check_batch(buffer: Buffer, header: BatchHeader) -> None:
    """Compares a batch of any magic with its checksum.

    Raises:
        CorruptRecords: they differ.
    """
    if header.magic == 2:
        check_checksum(buffer, header)
    else:
        check_message(buffer, header)


def _checked_header(
    window: bytes, at: int, expected: int, end_offset: int, check: bool
) -> BatchHeader:
    header = parse_header(window, at)
    if check:
        check_batch(window, header)
    if header.base_offset < expected and header.last_offset < expected:
        raise OffsetWentBack(header.base_offset, expected)
    if header.last_offset >= end_offset:
        raise CorruptRecords(f"offset {header.last_offset} is behind the segment's end")
    return header
