"""Reads the records that a share fetch acquired.

A broker sends whole batches and names the acquired offsets; the other records are not this
consumer's. Acquired offsets that cannot be returned are acknowledged at once: an offset without a
record is a gap, records of a damaged batch are rejected, those that follow it and those that cannot
be deserialized are released, for another consumer.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.client.core.consuming.consumer_record import ConsumerRecord, Deserializing
from odradek.client.core.consuming.fetched import FetchedChunk, deserialize
from odradek.client.core.sharing.acknowledgements import GAP, Acknowledgements, AcknowledgeType
from odradek.client.errors import BadRecord
from odradek.errors import BrokerError
from odradek.model import TopicPartition
from odradek.records.batch import split_batches

_ALL: Final = 1 << 30


class AcquiredRange(NamedTuple):
    """Offsets that were acquired together, with their delivery count."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def offsets(self) -> range:
        """The offsets."""
        return range(self.first_offset, self.last_offset + 1)


class Acquired(NamedTuple):
    """The records of one partition, and the acknowledgements of those that cannot be returned."""

    records: list[ConsumerRecord]
    answers: Acknowledgements
    error: BadRecord | None = None


def read_acquired(
    partition: TopicPartition,
    data: memoryview,
    ranges: Iterable[AcquiredRange],
    key: Deserializing | None,
    value: Deserializing | None,
    *,
    check_crcs: bool,
) -> Acquired:
    """Reads the records of the ranges, in order."""
    counts = {offset: each.delivery_count for each in ranges for offset in each.offsets}
    if not counts:
        return Acquired([], {})
    found, error = _read(partition, min(counts), data, check_crcs)
    answers: Acknowledgements = {}
    if error is not None:
        damaged = _end_of_batch(data, error.offset)
        answers = {
            each: AcknowledgeType.REJECT if each <= damaged else AcknowledgeType.RELEASE
            for each in counts
            if each >= error.offset
        }
    records: list[ConsumerRecord] = []
    for record in found:
        count = counts.get(record.offset)
        if count is None or record.offset in answers:
            continue
        record.delivery_count = count
        failure = deserialize(partition, record, key, value)
        if failure is None:
            records.append(record)
        else:
            answers[record.offset] = AcknowledgeType.RELEASE
            error = error or failure
    given = {each.offset for each in records}
    gaps = {each: GAP for each in counts if each not in given and each not in answers}
    return Acquired(records, answers | gaps, error)


def _read(
    partition: TopicPartition, first_offset: int, data: memoryview, check_crcs: bool
) -> tuple[list[ConsumerRecord], BadRecord | None]:
    records: list[ConsumerRecord] = []
    try:
        chunk = FetchedChunk(partition, first_offset, data, None, check_crcs=check_crcs)
        while not chunk.is_used_up:
            records += chunk.take(_ALL, None, None)
    except BadRecord as error:
        return records, error
    return records, None


def _end_of_batch(data: memoryview, offset: int) -> int:
    """The last offset of the batch that an offset is in, as far as that can be read."""
    try:
        batches = split_batches(data, drop_partial_tail=True)
    except BrokerError:
        return offset
    within = (each for each in batches if each.base_offset <= offset <= each.last_offset)
    return next((each.last_offset for each in within), offset)
