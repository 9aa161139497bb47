"""`StateBatches`: the stored states of a share partition's records, in order, changed in place.

If two batches have the same record, the later delivery is valid, and within one delivery its final
state. So updates may be applied in any order, and repeatedly.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from odradek.replication.share.persister import StateBatch, combined


class StateBatches:
    """Batches that do not overlap. Records without a stored state have no batch."""

    def __init__(self, batches: Iterable[StateBatch] = ()) -> None:
        self._batches: list[StateBatch] = []
        self._lasts: list[int] = []
        for batch in batches:
            self.put(batch)

    def to_tuple(self) -> tuple[StateBatch, ...]:
        """The batches as they are."""
        return tuple(self._batches)

    def copy(self) -> "StateBatches":
        """An independent copy."""
        other = StateBatches()
        other._batches, other._lasts = list(self._batches), list(self._lasts)
        return other

    def put(self, batch: StateBatch) -> None:
        """Adds the state of some records."""
        if batch.first_offset > batch.last_offset:
            return
        # Includes the neighbours, to be joined if they are equal.
        index = bisect_left(self._lasts, batch.first_offset - 1)
        end = index
        while end < len(self._batches) and (
            self._batches[end].first_offset <= batch.last_offset + 1
        ):
            end += 1
        merged = combined(_overlaid(self._batches[index:end], batch))
        self._batches[index:end] = merged
        self._lasts[index:end] = [each.last_offset for each in merged]

    def drop_before(self, offset: int) -> None:
        """Forgets the records before an offset."""
        index = bisect_right(self._lasts, offset - 1)
        del self._batches[:index]
        del self._lasts[:index]
        if self._batches and self._batches[0].first_offset < offset:
            self._batches[0] = self._batches[0]._replace(first_offset=offset)


def _overlaid(known: Iterable[StateBatch], batch: StateBatch) -> list[StateBatch]:
    """The batches with another one laid over them where it outweighs them."""
    result: list[StateBatch] = []
    at = batch.first_offset
    for each in known:
        first = max(each.first_offset, batch.first_offset)
        last = min(each.last_offset, batch.last_offset)
        if first > last:
            result.append(each)
            continue
        if at < first:
            result.append(batch._replace(first_offset=at, last_offset=first - 1))
        if each.first_offset < first:
            result.append(each._replace(last_offset=first - 1))
        winner = batch if _weight(batch) >= _weight(each) else each
        result.append(winner._replace(first_offset=first, last_offset=last))
        if last < each.last_offset:
            result.append(each._replace(first_offset=last + 1))
        at = last + 1
    if at <= batch.last_offset:
        result.append(batch._replace(first_offset=at))
    return sorted(result)


def _weight(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.state
