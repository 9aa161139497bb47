"""`Acquisition`: the records that one member acquires at a time, and where they end.

By default a member gets whole record batches: a client decompresses a fetched batch as a whole
anyway. Records that were delivered often come in ever smaller parts, at last one by one, so that a
record that cannot be processed takes ever fewer others to the delivery limit.
"""

from collections.abc import Sequence
from typing import NamedTuple

from odradek.replication.share.limits import ShareLimits


class OffsetRange(NamedTuple):
    """Offsets from first to last, such as a record batch's."""

    first: int
    last: int


class AcquiredRecords(NamedTuple):
    """Records that were handed out together, for the `delivery_count`th time."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Wanted(NamedTuple):
    """The request of a member. It gets whole record batches, with `max_records` reached or passed,
    or exactly `max_records` at most if it `limits_records`; `batch_size` is the number of records
    that it would like in one piece of the response."""

    max_records: int
    batch_size: int
    limits_records: bool = False


class Acquisition:
    """An acquisition for one member that is under way."""

    def __init__(
        self,
        limits: ShareLimits,
        member_id: str,
        wanted: Wanted,
        read: Sequence[OffsetRange],
    ) -> None:
        self.member_id = member_id
        self.taken: list[AcquiredRecords] = []
        self.is_full = False
        self._limits = limits
        self._wanted = wanted
        self._read = read
        self._count = 0

    def take(self, first: int, last: int, delivery_count: int) -> None:
        """Takes as many of the available records as are still wanted. Records that were delivered
        often are acquired apart from others."""
        size = last - first + 1
        part = self._limits.part_size(size, delivery_count)
        if part < size or delivery_count >= self._limits.isolates_from():
            self.is_full = True
            if self._count:
                return
            last = first + min(part, self._wanted.max_records) - 1
        else:
            last = self.end_of(first, last, size)
        self.taken.append(AcquiredRecords(first, last, delivery_count + 1))
        self._count += last - first + 1
        if self._count >= self._wanted.max_records:
            self.is_full = True

    def end_of(self, first: int, last: int, room: int) -> int:
        """The last offset of an acquisition from `first` on: the last record that is still wanted,
        or the end of its record batch."""
        end = first + min(self._wanted.max_records - self._count, room) - 1
        if end >= last:
            return last
        if self._wanted.limits_records:
            return end
        return min(last, next((each.last for each in self._read if each.last >= end), end))

    def pieces(self) -> list[AcquiredRecords]:
        """The acquired records as sent to the member: in pieces of about `batch_size` records that
        end with record batches."""
        size = max(1, self._wanted.batch_size)
        found: list[AcquiredRecords] = []
        for first, last, delivery_count in self.taken:
            for each in self._read:
                if each.last >= last:
                    break
                if each.last >= first and each.last - first + 1 >= size:
                    found.append(AcquiredRecords(first, each.last, delivery_count))
                    first = each.last + 1
            found.append(AcquiredRecords(first, last, delivery_count))
        return found
