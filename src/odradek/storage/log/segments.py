"""The segments of one log, in the order of their base offsets.

Look-up is a binary search over the base offsets, which are kept in a separate list. The last
segment is the active one. There is always at least one while the log is open.
"""

from bisect import bisect_right

from odradek.storage.log.segment import LogSegment


class LogSegments:
    """A sorted collection of segments. It changes no files."""

    def __init__(self, segments: list[LogSegment]) -> None:
        self._segments = segments
        self._base_offsets = [segment.base_offset for segment in segments]
        assert self._base_offsets == sorted(set(self._base_offsets)), (
            f"base offsets {self._base_offsets} do not rise"
        )

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first(self) -> LogSegment:
        """The oldest segment."""
        return self._segments[0]

    @property
    def active(self) -> LogSegment:
        """The segment that is appended to."""
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments, indexes not counted."""
        return sum([segment.size_bytes for segment in self._segments])

    def all(self) -> list[LogSegment]:
        """A copy of the list, oldest first."""
        return list(self._segments)

    def at(self, index: int) -> LogSegment:
        """The segment with this index, the oldest has 0."""
        return self._segments[index]

    def index_of(self, offset: int) -> int:
        """The index of the segment that holds `offset`, or would; -1 before the first."""
        if offset >= self._base_offsets[-1]:
            return len(self._base_offsets) - 1
        return bisect_right(self._base_offsets, offset) - 1

    def floor(self, offset: int) -> LogSegment | None:
        """The segment that holds `offset`, or would; None before the first."""
        index = self.index_of(offset)
        return self._segments[index] if index >= 0 else None

    def between(self, start_offset: int, end_offset: int) -> list[LogSegment]:
        """The segments that may hold offsets from `start_offset` up to `end_offset`."""
        first = max(self.index_of(start_offset), 0)
        return [s for s in self._segments[first:] if s.base_offset < end_offset]

    def add(self, segment: LogSegment) -> None:
        """Adds the new active segment."""
        assert not self._segments or segment.base_offset > self._base_offsets[-1], (
            f"segment {segment.base_offset} after {self._base_offsets[-1]}"
        )
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)

    def holds(self, segment: LogSegment) -> bool:
        """Whether the collection has this very segment."""
        return self.floor(segment.base_offset) is segment

    def following(self, segment: LogSegment) -> LogSegment | None:
        """The segment behind one of them, None for the active one."""
        index = self.index_of(segment.base_offset) + 1
        return self._segments[index] if index < len(self._segments) else None

    def replace(self, old: list[LogSegment], new: LogSegment) -> None:
        """Puts one segment in the place of neighbours, the first of which has its base offset."""
        index = self._segments.index(old[0])
        assert self._segments[index : index + len(old)] == old, "neighbours are replaced"
        assert old[0].base_offset == new.base_offset, (
            f"segment {new.base_offset} in the place of {old[0].base_offset}"
        )
        self._segments[index : index + len(old)] = [new]
        self._base_offsets[index : index + len(old)] = [new.base_offset]

    def remove(self, segment: LogSegment) -> None:
        """Takes a segment out."""
        index = self._segments.index(segment)
        del self._segments[index]
        del self._base_offsets[index]
