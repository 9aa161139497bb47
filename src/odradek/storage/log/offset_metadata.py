"""Offsets, appends and reads of a log: small values, no behaviour."""

from typing import Final, NamedTuple

from odradek.model import NO_TIMESTAMP, UNKNOWN_OFFSET

UNKNOWN_POSITION: Final = -1


class LogOffsetMetadata:
    """An offset and its place: the base offset of its segment and the position in it, both -1 if
    only the offset is known.
    """

    def __init__(
        self,
        message_offset: int,
        segment_base_offset: int = UNKNOWN_OFFSET,
        position: int = UNKNOWN_POSITION,
    ) -> None:
        self.message_offset = message_offset
        self.segment_base_offset = segment_base_offset
        self.position = position

    @property
    def message_offset_only(self) -> bool:
        """Whether only the offset is known."""
        return self.segment_base_offset < 0

    def on_older_segment(self, that: "LogOffsetMetadata") -> bool:
        """Whether this offset lies on a segment before that one's; both places are known."""
        return self.segment_base_offset < that.segment_base_offset

    def on_same_segment(self, that: "LogOffsetMetadata") -> bool:
        """Whether both offsets lie on one segment; both places are known."""
        return self.segment_base_offset == that.segment_base_offset

    def position_diff(self, that: "LogOffsetMetadata") -> int:
        """Bytes from `that` offset to this one; both lie on the same segment."""
        assert self.on_same_segment(that), (
            f"{self.message_offset} lies on segment {self.segment_base_offset}, "
            f"{that.message_offset} on {that.segment_base_offset}"
        )
        return self.position - that.position

    def __repr__(self) -> str:
        return (
            f"LogOffsetMetadata({self.message_offset}, segment_base_offset="
            f"{self.segment_base_offset}, position={self.position})"
        )


class LogAppendInfo:
    """The result of an append.

    `duplicate` says that the batch was in the log already and nothing was written; the
    offsets and the timestamp are then those of the first time. `log_append_time_ms` is -1
    unless the topic's timestamps are the broker's (or it is a duplicate).
    """

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        log_start_offset: int,
        record_count: int = 0,
        size_bytes: int = 0,
        log_append_time_ms: int = NO_TIMESTAMP,
        max_timestamp: int = NO_TIMESTAMP,
        offset_of_max_timestamp: int = UNKNOWN_OFFSET,
        duplicate: bool = False,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_start_offset = log_start_offset
        self.record_count = record_count
        self.size_bytes = size_bytes
        self.log_append_time_ms = log_append_time_ms
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.duplicate = duplicate


class AbortedTransaction(NamedTuple):
    """A transaction whose records a reader of committed data has to skip."""

    producer_id: int
    first_offset: int


class TimestampOffset(NamedTuple):
    """A record's timestamp and offset, with the leader epoch of its batch (-1: unknown)."""

    timestamp: int
    offset: int
    leader_epoch: int = -1


class LogReadInfo:
    """The result of a read.

    `records` are slices of the log as it lies on disk, from the batch that holds the fetch
    offset on; the last batch may be cut short, as in Kafka's own answers. `aborted` is None
    unless it was asked for.
    """

    def __init__(
        self,
        fetch_offset_metadata: LogOffsetMetadata,
        records: list[bytes | memoryview],
        size_bytes: int,
        aborted: list[AbortedTransaction] | None = None,
    ) -> None:
        self.fetch_offset_metadata = fetch_offset_metadata
        self.records = records
        self.size_bytes = size_bytes
        self.aborted = aborted
