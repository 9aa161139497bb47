"""The records that a share consumer has given out and that have no final acknowledgement."""

from typing import NamedTuple

from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.core.sharing.acknowledgements import AcknowledgeType, SharePartition
from odradek.model import TopicPartition


class Source(NamedTuple):
    """The source of a record, to which its acknowledgement goes."""

    node_id: int
    partition: SharePartition


class GivenRecords:
    """Holds each record with its source: an offset alone may also be one of a recreated topic."""

    def __init__(self) -> None:
        self._given: dict[tuple[TopicPartition, int], tuple[ConsumerRecord, Source]] = {}
        self._renewed: set[tuple[TopicPartition, int]] = set()

    @property
    def are_unanswered(self) -> bool:
        """Whether some have no acknowledgement, not even a renewal."""
        return bool(self._given.keys() - self._renewed)

    def records(self) -> list[ConsumerRecord]:
        """Lists them, in the order in which they were given out."""
        return [record for record, _ in self._given.values()]

    def add(self, record: ConsumerRecord, source: Source) -> None:
        """Adds a record that is given out; an earlier one of its offset is nobody's any more."""
        key = _key(record)
        self._renewed.discard(key)
        self._given[key] = record, source

    def has(self, record: ConsumerRecord) -> bool:
        """Whether a record, or one that it is a copy of, may be acknowledged."""
        known = self._given.get(_key(record))
        return known is not None and (known[0] is record or _marks(known[0]) == _marks(record))

    def acknowledged(self, record: ConsumerRecord, type: AcknowledgeType) -> Source:
        """Takes the acknowledgement of one of them, and returns where it goes."""
        key = _key(record)
        if type is AcknowledgeType.RENEW:
            self._renewed.add(key)
            return self._given[key][1]
        return self._remove(key)

    def take_back(self, record: ConsumerRecord) -> Source | None:
        """Takes back a record that no caller got; None if that is not possible any more."""
        return self._remove(_key(record)) if self.has(record) else None

    def _remove(self, key: tuple[TopicPartition, int]) -> Source:
        self._renewed.discard(key)
        return self._given.pop(key)[1]


def _key(record: ConsumerRecord) -> tuple[TopicPartition, int]:
    return TopicPartition(record.topic, record.partition), record.offset


def _marks(record: ConsumerRecord) -> tuple[int, int, int | None]:
    return record.timestamp, record.leader_epoch, record.delivery_count
