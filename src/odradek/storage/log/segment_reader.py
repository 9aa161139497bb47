"""Reads the segments of a log: by offset, by time, and with the aborted transactions.

A look-up uses an index and a short walk over batches; the positions of the latest batches are
remembered, so that readers at the log's end need no index. It changes nothing.
"""

from typing import Final

from odradek.errors import BrokerError
from odradek.model import NO_TIMESTAMP
from odradek.records.batch import (
    BatchHeader,
    Buffer,
    is_partial,
    parse_header,
    split_batches,
)
from odradek.records.errors import CorruptRecords
from odradek.records.reader import read_batch
from odradek.storage.files import File
from odradek.storage.index.offset_index import OffsetIndex
from odradek.storage.log.batch_scanner import BatchPlace
from odradek.storage.log.offset_metadata import (
    AbortedTransaction,
    LogOffsetMetadata,
    LogReadInfo,
    TimestampOffset,
)
from odradek.storage.log.segment import LogSegment
from odradek.storage.log.segments import LogSegments
from odradek.storage.log_directory import LogDirectory

# How many batches the log remembers the positions of, for readers at its end.
_RECENT_BATCHES: Final = 256


class SegmentReader:
    """Reads `segments`, which change under it. A disk that fails takes `directory` offline."""

    def __init__(self, segments: LogSegments, directory: LogDirectory) -> None:
        self._segments = segments
        self._directory = directory
        # Base offset to position, of the latest batches of the active segment.
        self._recent: dict[int, int] = {}

    def remember_positions(self, headers: list[BatchHeader], position: int) -> None:
        """Notes batches that were appended to the active segment, from `position` on."""
        recent = self._recent
        if len(recent) > _RECENT_BATCHES:
            recent.clear()
        for header in headers:
            recent[header.base_offset] = position
            position += header.size_bytes

    def forget_positions(self) -> None:
        """Forgets the positions: the active segment was replaced or cut."""
        self._recent.clear()

    def read(
        self,
        fetch_offset: int,
        max_bytes: int,
        upper_offset: int,
        log_end_offset: int,
        min_one_message: bool,
    ) -> LogReadInfo:
        """The records from `fetch_offset` on, below `upper_offset`, from one segment.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        self._directory.check()
        try:
            return self._read_below(
                fetch_offset, max_bytes, upper_offset, log_end_offset, min_one_message
            )
        except OSError as error:
            raise self._read_failed(error) from error

    def aborted_transactions(
        self, fetch_offset: int, upper_offset: int
    ) -> list[AbortedTransaction]:
        """The aborted transactions with records in [fetch offset, upper offset).

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        found: list[AbortedTransaction] = []
        try:
            for segment in self._segments.all()[max(self._segments.index_of(fetch_offset), 0) :]:
                if segment.transactions.collect(fetch_offset, upper_offset, found):
                    break
        except OSError as error:
            raise self._read_failed(error) from error
        return found

    def end_of(self, info: LogReadInfo) -> int:
        """The end offset of the last whole batch of a read.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        place = info.fetch_offset_metadata
        segment = self._segments.floor(place.segment_base_offset)
        if segment is None or not info.records:
            return place.message_offset
        data = info.records[0]
        try:
            start = _last_indexed(segment.offset_index, data, place.position)
        except OSError as error:
            raise self._read_failed(error) from error
        headers = split_batches(memoryview(data)[start:], drop_partial_tail=True)
        return headers[-1].last_offset + 1 if headers else place.message_offset

    def place_of(self, offset: int) -> LogOffsetMetadata | None:
        """The place of the batch that holds `offset`, or of the next one; None at the end.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        try:
            index, position = self._find(offset)
        except OSError as error:
            raise self._read_failed(error) from error
        if index < 0:
            return None
        return LogOffsetMetadata(offset, self._segments.at(index).base_offset, position)

    def batch_start(self, offset: int) -> int:
        """The base offset of the batch that holds `offset` or is the next; `offset` at the end.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        try:
            for segment in self._segments.all()[max(self._segments.index_of(offset), 0) :]:
                place = segment.locate(offset)
                if place is not None:
                    return place.base_offset
        except OSError as error:
            raise self._read_failed(error) from error
        return offset

    def find_timestamp(self, timestamp: int, from_offset: int) -> TimestampOffset | None:
        """The first record from `from_offset` on that is not older than `timestamp`.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        try:
            for segment in self._segments.all()[max(self._segments.index_of(from_offset), 0) :]:
                place = segment.locate_timestamp(timestamp, from_offset)
                if place is not None:
                    found = _first_not_older(segment, place, timestamp, from_offset)
                    if found is not None:
                        return found
        except OSError as error:
            raise self._read_failed(error) from error
        return None

    def find_max_timestamp(self) -> TimestampOffset | None:
        """The first of the records with the largest timestamp, None without timestamps.

        Among all records of the segments: as in Kafka it may be below the log's start.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        try:
            return self._find_max_timestamp()
        except OSError as error:
            raise self._read_failed(error) from error

    def _read_failed(self, error: OSError) -> BrokerError:
        return self._directory.storage_error(error, f"reading {self._segments.active.directory}")

    def _find(self, offset: int) -> tuple[int, int]:
        """The index of the segment, and the position in it, as `place_of`; (-1, -1) at the end."""
        index = max(self._segments.index_of(offset), 0)
        while index < len(self._segments):
            position = self._position_in(self._segments.at(index), offset)
            if position >= 0:
                return index, position
            # Compaction may have removed the end of a segment.
            index += 1
        return -1, -1

    def _find_max_timestamp(self) -> TimestampOffset | None:
        best: LogSegment | None = None
        for segment in self._segments.all():
            if best is None or segment.max_timestamp > best.max_timestamp:
                best = segment
        if best is None or best.max_timestamp == NO_TIMESTAMP:
            return None
        place = best.locate(best.offset_of_max_timestamp)
        if place is None:
            return None
        return _first_not_older(best, place, place.max_timestamp, best.base_offset)

    def _read_below(
        self,
        fetch_offset: int,
        max_bytes: int,
        upper_offset: int,
        log_end_offset: int,
        min_one_message: bool,
    ) -> LogReadInfo:
        index, position = self._find(fetch_offset)
        if index < 0:
            return LogReadInfo(LogOffsetMetadata(fetch_offset), [], 0)
        segment = self._segments.at(index)
        place = LogOffsetMetadata(fetch_offset, segment.base_offset, position)
        end = segment.size_bytes
        if upper_offset < log_end_offset:
            end = self._end_position(segment, index, upper_offset)
        data = _slice(segment.file, position, end, max_bytes, min_one_message)
        return LogReadInfo(place, [data] if data else [], len(data))

    def _position_in(self, segment: LogSegment, offset: int) -> int:
        """Where the batch that holds `offset`, or the next one, begins; -1 for beyond the end."""
        if segment is self._segments.active:
            recent = self._recent.get(offset)
            if recent is not None:
                return recent
        place = segment.locate(offset)
        if place is None:
            return -1
        following = self._segments.following(segment)
        if following is not None and place.last_offset >= following.base_offset:
            raise CorruptRecords(
                f"{segment.file.path}: offset {place.last_offset} at position {place.position} "
                f"is behind the segment's end"
            )
        return place.position

    def _end_position(self, segment: LogSegment, index: int, upper_offset: int) -> int:
        is_active = segment is self._segments.active
        if not is_active and upper_offset >= self._segments.at(index + 1).base_offset:
            return segment.size_bytes
        position = self._position_in(segment, upper_offset)
        return position if position >= 0 else segment.size_bytes


def _last_indexed(index: OffsetIndex, data: Buffer, position: int) -> int:
    """Where in `data`, which was read at `position`, the last whole batch begins that the index
    names; 0 if it names none. An entry that does not fit its batch is passed over."""
    number = index.index_before(position + len(data))
    while number >= 0:
        offset, start = index.entry(number)
        if start <= position:
            break
        if _is_batch_up_to(offset, data, start - position):
            return start - position
        number -= 1
    return 0


def _is_batch_up_to(offset: int, data: Buffer, position: int) -> bool:
    """Whether a whole batch begins at `position` whose last offset is `offset`."""
    try:
        return not is_partial(data, position) and parse_header(data, position).last_offset == offset
    except CorruptRecords:
        return False


def _slice(file: File, position: int, end: int, max_bytes: int, min_one_message: bool) -> bytes:
    """Bytes of the file from a batch's beginning: at least that batch, or nothing."""
    data = file.read(position, min(max_bytes, end - position)) if max_bytes > 0 else b""
    if len(data) < 12:
        if not min_one_message:
            return b""
        data = file.read(position, 12)
    size_bytes = 12 + int.from_bytes(data[8:12])
    if len(data) >= size_bytes:
        return data
    return file.read(position, size_bytes) if min_one_message else b""


def _first_not_older(
    segment: LogSegment, place: BatchPlace, timestamp: int, from_offset: int
) -> TimestampOffset | None:
    """The first such record of the segment, from the batch at `place` on.

    Not always that batch's: compaction may have emptied it, and the log may start within it.
    """
    scanner = segment.scan(place.position)
    batch = scanner.next()
    while batch is not None:
        if batch.max_timestamp >= timestamp:
            data = segment.read(batch.position, batch.size_bytes)
            header = parse_header(data)
            for record in read_batch(data, header):
                if record.timestamp >= timestamp and record.offset >= from_offset:
                    epoch = header.partition_leader_epoch
                    return TimestampOffset(record.timestamp, record.offset, epoch)
        batch = scanner.next()
    return None
