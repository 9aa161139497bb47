"""`OffsetStore`: the committed offsets of one partition of the internal topic, as replayed."""

from collections.abc import Collection, Iterator
from typing import Final

from odradek.coordinator.offsets.pending import PendingOffsets
from odradek.coordinator.offsets.requests import FetchedOffsets
from odradek.coordinator.records.offset_records import OffsetAndMetadata, OffsetCommitKey
from odradek.model import NO_PRODUCER_ID, TransactionResult

SLICE_OFFSETS: Final = 500
"""How many offsets are looked at, and maybe removed, before others get their turn."""

TopicOffsets = dict[int, OffsetAndMetadata]


class OffsetStore:
    """The committed offsets by group, topic and partition; `pending` has those of open
    transactions."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, TopicOffsets]] = {}
        self.pending = PendingOffsets()

    def replay(
        self, key: OffsetCommitKey, value: OffsetAndMetadata | None, producer_id: int
    ) -> None:
        """Applies a committed record."""
        if value is None:
            self._forget(key.group_id, key.topic, key.partition)
            self.pending.remove(key)
        elif producer_id == NO_PRODUCER_ID:
            self._put(key, value)
            self.pending.outdate(key)
        else:
            self.pending.put(producer_id, key, value)

    def complete_transaction(self, producer_id: int, result: TransactionResult) -> None:
        """Applies the offsets of a producer's committed transaction, or drops those of an aborted
        one."""
        for key, value in self.pending.complete(producer_id, result):
            self._put(key, value)

    def _put(self, key: OffsetCommitKey, value: OffsetAndMetadata) -> None:
        topics = self._groups.get(key.group_id)
        if topics is None:
            self._groups[key.group_id] = topics = {}
        partitions = topics.get(key.topic)
        if partitions is None:
            topics[key.topic] = partitions = {}
        partitions[key.partition] = value

    def _forget(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._groups.get(group_id, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            topics.pop(topic, None)
        if not topics:
            self._groups.pop(group_id, None)

    @property
    def count(self) -> int:
        """How many offsets are committed; a look at the topics of all groups."""
        return sum(len(each) for topics in self._groups.values() for each in topics.values())

    def get(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        """The offset, if one is committed."""
        return self._groups.get(group_id, {}).get(topic, {}).get(partition)

    def find(self, key: OffsetCommitKey) -> OffsetAndMetadata | None:
        """The offset of a key, if one is committed."""
        return self.get(key.group_id, key.topic, key.partition)

    def of_group(self, group_id: str) -> dict[str, TopicOffsets]:
        """All offsets of a group, by topic; not to be changed."""
        return self._groups.get(group_id, {})

    def fetch(self, group_id: str, require_stable: bool) -> FetchedOffsets:
        """All offsets of a group, with the unstable ones named if that is asked for."""
        unstable = self.pending.partitions(group_id) if require_stable else frozenset()
        return FetchedOffsets(self.of_group(group_id), unstable)

    def has(self, key: OffsetCommitKey) -> bool:
        """Whether there is an offset of the partition, committed or pending."""
        return self.find(key) is not None or self.pending.has(key)

    def has_group(self, group_id: str) -> bool:
        """Whether the group has offsets, committed or pending."""
        return group_id in self._groups or self.pending.has_group(group_id)

    def group_ids(self) -> list[str]:
        """The groups that have offsets, committed or pending."""
        return list(dict.fromkeys([*self._groups, *self.pending.group_ids()]))

    def keys(self, group_id: str) -> Iterator[OffsetCommitKey]:
        """The keys of a group's offsets, committed or pending."""
        for topic, partitions in self.of_group(group_id).items():
            for partition in partitions:
                yield OffsetCommitKey(group_id, topic, partition)
        yield from self._only_pending(group_id)

    def _only_pending(self, group_id: str) -> Iterator[OffsetCommitKey]:
        for topic, partition in sorted(self.pending.partitions(group_id)):
            if self.get(group_id, topic, partition) is None:
                yield OffsetCommitKey(group_id, topic, partition)

    def key_slices(
        self, group_id: str, topics: Collection[str] | None = None
    ) -> Iterator[list[OffsetCommitKey]]:
        """The keys of a group's offsets, of some topics or of all, `SLICE_OFFSETS` at a time at
        most; the last slice is empty. Offsets may come and go between two slices.
        """
        for topic in [name for name in self.of_group(group_id) if topics is None or name in topics]:
            partitions = list(self.of_group(group_id).get(topic, ()))
            for first in range(0, len(partitions), SLICE_OFFSETS):
                some = partitions[first : first + SLICE_OFFSETS]
                yield [OffsetCommitKey(group_id, topic, partition) for partition in some]
        if self.pending.has_group(group_id):
            keys = [
                key for key in self._only_pending(group_id) if topics is None or key.topic in topics
            ]
            for first in range(0, len(keys), SLICE_OFFSETS):
                yield keys[first : first + SLICE_OFFSETS]
        yield []
