"""`InFlightBatches`: the state of every record between a share partition's start and its end.

Neighbours of the same state are one `InFlightBatch`. A batch is split where something happens to a
part of it, and joined with its neighbours when they are alike again, so memory follows how mixed
the states are, not how many records there are. The batches are in the order of their offsets
without gaps between them:

    start                                              end
      │ 10-14 acknowledged │ 15-15 acquired by b, 2nd │ 16-40 acquired by a, 1st │
"""

from bisect import bisect_right
from collections.abc import Iterator

from odradek.replication.share.lock import AcquisitionLock
from odradek.replication.share.states import RecordState


class InFlightBatch:
    """Consecutive records in the same state.

    `lock` is set while they are acquired, or available but held back; `write` while their next
    state is being stored: until then they stay acquired, and no request may change them.
    """

    __slots__ = ("delivery_count", "first", "last", "lock", "state", "write")

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState = RecordState.AVAILABLE,
        delivery_count: int = 0,
        lock: AcquisitionLock | None = None,
        write: object | None = None,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.lock = lock
        self.write = write

    @property
    def is_available(self) -> bool:
        """Whether the records may be handed out now."""
        return self.state is RecordState.AVAILABLE and self.lock is None

    @property
    def size(self) -> int:
        """How many offsets it covers."""
        return self.last - self.first + 1

    def is_like(self, other: "InFlightBatch") -> bool:
        """Whether the two may be one batch."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.lock is other.lock
            and self.write is other.write
        )


class InFlightBatches:
    """The batches, found by offset; without gaps."""

    def __init__(self) -> None:
        self._batches: list[InFlightBatch] = []
        self._firsts: list[int] = []

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter(self._batches)

    @property
    def head(self) -> InFlightBatch | None:
        """The batch with the lowest offsets."""
        return self._batches[0] if self._batches else None

    @property
    def tail(self) -> InFlightBatch | None:
        """The batch with the highest offsets."""
        return self._batches[-1] if self._batches else None

    def append(self, batch: InFlightBatch) -> None:
        """Adds records behind the last ones."""
        tail = self.tail
        assert tail is None or tail.last + 1 == batch.first, (
            f"records from {batch.first} follow what ends with {tail.last if tail else -1}"
        )
        self._batches.append(batch)
        self._firsts.append(batch.first)

    def overlapping(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches with an offset from `first` to `last`, whole."""
        if not self._batches or first > last:
            return []
        index = max(bisect_right(self._firsts, first) - 1, 0)
        if self._batches[index].last < first:
            index += 1
        return self._batches[index : bisect_right(self._firsts, last)]

    def cut(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches from `first` to `last`, split so that none reaches beyond."""
        self._split(first)
        self._split(last + 1)
        return self.overlapping(first, last)

    def _split(self, offset: int) -> None:
        """Makes a batch begin at `offset`, if that is inside of one."""
        index = bisect_right(self._firsts, offset) - 1
        if index < 0:
            return
        batch = self._batches[index]
        if batch.first == offset or batch.last < offset:
            return
        rest = InFlightBatch(
            offset, batch.last, batch.state, batch.delivery_count, batch.lock, batch.write
        )
        batch.last = offset - 1
        self._batches.insert(index + 1, rest)
        self._firsts.insert(index + 1, offset)

    def join(self, first: int, last: int) -> None:
        """Joins the batches around and between two offsets that have become alike."""
        index = max(bisect_right(self._firsts, first) - 2, 0)
        end = min(bisect_right(self._firsts, last) + 1, len(self._batches))
        joined: list[InFlightBatch] = []
        for batch in self._batches[index:end]:
            if joined and joined[-1].is_like(batch):
                joined[-1].last = batch.last
            else:
                joined.append(batch)
        if len(joined) != end - index:
            self._batches[index:end] = joined
            self._firsts[index:end] = [batch.first for batch in joined]

    def drop_before(self, offset: int) -> list[InFlightBatch]:
        """Forgets the records before an offset; returns them."""
        self._split(offset)
        count = bisect_right(self._firsts, offset - 1)
        dropped = self._batches[:count]
        del self._batches[:count]
        del self._firsts[:count]
        return dropped

    def clear(self) -> list[InFlightBatch]:
        """Forgets everything; returns it."""
        dropped, self._batches, self._firsts = self._batches, [], []
        return dropped
