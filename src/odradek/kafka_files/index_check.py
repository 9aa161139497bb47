"""Compares the indexes of a segment with its batches, which come by one after another.

Both indexes rise with the log, so one walk and a place in each index are enough, whatever the
size of the segment.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.kafka_files.inspection import FoundBatch
from odradek.model import NO_TIMESTAMP
from odradek.storage.index import offset_index, time_index


class IndexProblem(NamedTuple):
    """A wrong index entry; `position` is the entry's own, in the index."""

    text: str
    position: int
    offset: int


class OffsetIndexCheck:
    """Offsets and positions rise, and each entry leads to the batch that holds its offset."""

    def __init__(self, entries: Sequence[tuple[int, int]]) -> None:
        self._entries: Final = entries
        self._next = 0
        self.problems: list[IndexProblem] = []

    def see(self, batch: FoundBatch) -> None:
        """The next batch of the segment."""
        while self._next < len(self._entries) and self._position() <= batch.position:
            offset, position = self._entries[self._next]
            header = batch.header
            if position < batch.position:
                self._add(f"position {position} is not the beginning of a batch")
            # Brokers of old name the first offset of a batch, later ones the last.
            elif not header.base_offset <= offset <= header.last_offset:
                self._add(
                    f"offset {offset} leads to position {position}, where "
                    f"{header.base_offset} to {header.last_offset} lie"
                )
            elif self._next > 0 and offset <= self._entries[self._next - 1][0]:
                self._add(f"offset {offset} does not rise")
            self._next += 1

    def end(self, size_bytes: int) -> None:
        """The segment has ended, after `size_bytes`."""
        while self._next < len(self._entries):
            position = self._position()
            where = "behind the log's end" if position >= size_bytes else "inside a batch"
            self._add(f"position {position} is {where}")
            self._next += 1

    def _position(self) -> int:
        return self._entries[self._next][1]

    def _add(self, text: str) -> None:
        offset = self._entries[self._next][0]
        self.problems.append(IndexProblem(text, self._next * offset_index.ENTRY_BYTES, offset))


class TimeIndexCheck:
    """Timestamps rise, and each is the largest of the log up to the offset beside it."""

    def __init__(self, entries: Sequence[tuple[int, int]]) -> None:
        self._entries: Final = entries
        self._next = 0
        self._largest = NO_TIMESTAMP
        self.problems: list[IndexProblem] = []

    def see(self, batch: FoundBatch) -> None:
        """The next batch of the segment."""
        header = batch.header
        self._largest = max(self._largest, header.max_timestamp)
        while self._next < len(self._entries) and self._entries[self._next][1] <= (
            header.last_offset
        ):
            timestamp, offset = self._entries[self._next]
            if timestamp != self._largest:
                self._add(
                    f"timestamp {timestamp} at offset {offset}, "
                    f"the log's largest up to there is {self._largest}"
                )
            elif self._next > 0 and timestamp <= self._entries[self._next - 1][0]:
                self._add(f"timestamp {timestamp} does not rise")
            self._next += 1

    def end(self) -> None:
        """The segment has ended."""
        while self._next < len(self._entries):
            self._add(f"offset {self._entries[self._next][1]} is behind the log's end")
            self._next += 1

    def _add(self, text: str) -> None:
        position = self._next * time_index.ENTRY_BYTES
        self.problems.append(IndexProblem(text, position, self._entries[self._next][1]))
