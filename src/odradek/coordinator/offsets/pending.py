"""`PendingOffsets`: offsets that transactions have committed and whose end markers are awaited.

They are kept apart by producer. Its end marker applies or drops what the producer has: an offset is
applied unless the log has a later record of the partition, so the result does not depend on the
order of the markers. A tombstone drops them, too. A partition with a pending offset is unstable: a
consumer that takes over must not read the offset before the transaction is decided.

An offset is unstable as soon as it is handed to the log. Its value is known when it is committed
there; until then the entry has none.
"""

from collections.abc import Iterator
from typing import final

from odradek.coordinator.records.offset_records import OffsetAndMetadata, OffsetCommitKey
from odradek.model import TransactionResult

TopicIndex = tuple[str, int]
"""The name of a topic and the index of a partition."""


@final
class _Pending:
    """One producer's offset of one partition. `position` orders such records by the log."""

    def __init__(self) -> None:
        self.value: OffsetAndMetadata | None = None
        self.position = 0
        self.is_outdated = False
        self.appends_under_way = 0


_Producers = dict[int, _Pending]


class PendingOffsets:
    """The pending offsets of one partition of the internal topic."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicIndex, _Producers]] = {}
        self._places: dict[int, set[tuple[str, TopicIndex]]] = {}
        self._position = 0

    # Questions

    def group_ids(self) -> list[str]:
        """The groups that have pending offsets."""
        return list(self._groups)

    def has_group(self, group_id: str) -> bool:
        """Whether an open transaction has offsets of the group."""
        return group_id in self._groups

    def has(self, key: OffsetCommitKey) -> bool:
        """Whether an open transaction has an offset of the partition."""
        partitions = self._groups.get(key.group_id)
        return partitions is not None and (key.topic, key.partition) in partitions

    def partitions(self, group_id: str) -> frozenset[TopicIndex]:
        """The partitions with offsets of open transactions."""
        return frozenset(self._groups.get(group_id, ()))

    def values(self, key: OffsetCommitKey) -> Iterator[OffsetAndMetadata]:
        """The pending offsets of a partition that are in the log."""
        partitions = self._groups.get(key.group_id, {})
        for pending in partitions.get((key.topic, key.partition), {}).values():
            if pending.value is not None:
                yield pending.value

    # Events

    def on_append(self, producer_id: int, key: OffsetCommitKey) -> None:
        """Adds an offset that is on its way to the log."""
        self._entry(producer_id, key).appends_under_way += 1

    def on_append_failed(self, producer_id: int, key: OffsetCommitKey) -> None:
        """Removes an offset that did not get into the log."""
        pending = self._entry(producer_id, key)
        pending.appends_under_way -= 1
        self._drop_if_done(producer_id, key, pending)

    def put(self, producer_id: int, key: OffsetCommitKey, value: OffsetAndMetadata) -> None:
        """Adds an offset of the log, which waits for its end marker."""
        pending = self._entry(producer_id, key)
        self._position += 1
        pending.position = self._position
        pending.value = value
        pending.is_outdated = False
        pending.appends_under_way = max(pending.appends_under_way - 1, 0)

    def outdate(self, key: OffsetCommitKey) -> None:
        """Outdates the pending offsets of a partition: the log has a later one outside of
        transactions."""
        partitions = self._groups.get(key.group_id)
        if partitions is None:
            return
        for pending in partitions.get((key.topic, key.partition), {}).values():
            pending.is_outdated = True

    def remove(self, key: OffsetCommitKey) -> None:
        """Drops the pending offsets of a partition: the log has a tombstone."""
        partitions = self._groups.get(key.group_id)
        if partitions is None:
            return
        for producer_id, pending in list(partitions.get((key.topic, key.partition), {}).items()):
            pending.value = None
            self._drop_if_done(producer_id, key, pending)

    def complete(
        self, producer_id: int, result: TransactionResult
    ) -> list[tuple[OffsetCommitKey, OffsetAndMetadata]]:
        """Ends the transaction of a producer; returns its offsets that are valid from now on."""
        applied: list[tuple[OffsetCommitKey, OffsetAndMetadata]] = []
        for group_id, (topic, partition) in sorted(self._places.get(producer_id, ())):
            key = OffsetCommitKey(group_id, topic, partition)
            producers = self._groups[group_id][topic, partition]
            pending = producers[producer_id]
            value, pending.value = pending.value, None
            if value is not None and result is TransactionResult.COMMIT:
                if not pending.is_outdated:
                    applied.append((key, value))
                _outdate_earlier(producers, pending.position)
            self._drop_if_done(producer_id, key, pending)
        return applied

    def _entry(self, producer_id: int, key: OffsetCommitKey) -> _Pending:
        place = (key.topic, key.partition)
        producers = self._groups.setdefault(key.group_id, {}).setdefault(place, {})
        self._places.setdefault(producer_id, set()).add((key.group_id, place))
        return producers.setdefault(producer_id, _Pending())

    def _drop_if_done(self, producer_id: int, key: OffsetCommitKey, pending: _Pending) -> None:
        if pending.value is not None or pending.appends_under_way > 0:
            return
        place = (key.topic, key.partition)
        partitions = self._groups[key.group_id]
        del partitions[place][producer_id]
        if not partitions[place]:
            del partitions[place]
        if not partitions:
            del self._groups[key.group_id]
        places = self._places[producer_id]
        places.discard((key.group_id, place))
        if not places:
            del self._places[producer_id]


def _outdate_earlier(producers: _Producers, position: int) -> None:
    for pending in producers.values():
        if pending.position < position:
            pending.is_outdated = True
