"""The acknowledgements of a member, in the form that a share partition takes.

A batch has one type for all of its offsets or one for each. Batches come in the order of their
offsets and do not overlap.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from odradek.errors import BrokerError, ErrorCode
from odradek.replication.share.states import ACKNOWLEDGEMENTS, RecordEvent


class AcknowledgementBatch(NamedTuple):
    """Offsets from first to last, with their acknowledgement."""

    first_offset: int
    last_offset: int
    types: tuple[int, ...]


class AcknowledgedRange(NamedTuple):
    """Offsets with the same acknowledgement."""

    first: int
    last: int
    event: RecordEvent


def check_acknowledgements(
    batches: Sequence[AcknowledgementBatch], *, may_renew: bool = False
) -> None:
    """Checks the form of a member's acknowledgements of one partition.

    Raises:
        BrokerError: INVALID_REQUEST or, for one record that is named twice, INVALID_RECORD_STATE.
    """
    before = -1
    for batch in batches:
        first, last, types = batch
        if first > last:
            raise _invalid(f"the range from {first} to {last} is reversed")
        if first < before:
            raise _invalid(f"the range from {first} to {last} overlaps the one that ends {before}")
        if first == before:
            # As in Kafka: the second range does not find records that the first one has ended.
            raise BrokerError(
                ErrorCode.INVALID_RECORD_STATE, f"the record {first} is acknowledged twice"
            )
        if not types:
            raise _invalid(f"nothing is said of the range from {first} to {last}")
        if len(types) > 1 and len(types) != last - first + 1:
            raise _invalid(f"{len(types)} types are given for {last - first + 1} offsets")
        for each in set(types):
            if each not in ACKNOWLEDGEMENTS or (each == RecordEvent.RENEW and not may_renew):
                raise _invalid(f"{each} is no type of acknowledgement here")
        before = last


def ranges_of(batches: Sequence[AcknowledgementBatch]) -> Iterator[AcknowledgedRange]:
    """The ranges of equal types, in order."""
    for batch in batches:
        if len(batch.types) == 1:
            event = RecordEvent(batch.types[0])
            yield AcknowledgedRange(batch.first_offset, batch.last_offset, event)
            continue
        first = batch.first_offset
        for kind, group in groupby(batch.types):
            count = sum(1 for _ in group)
            yield AcknowledgedRange(first, first + count - 1, RecordEvent(kind))
            first += count


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, text)
