"""Marks: the releaser's records in a schedule partition, in control batches.

Clients skip control batches, so a schedule topic shows them only schedules. Two marks frame every
release:

    RELEASE    these records go to this partition now, under this sequence of this producer
    RELEASED   the target has them

After a crash between the two it is unknown whether the target has them. The next leader sends the
same records under the same sequence again; a target that has them recognises the repetition.
RETURNED instead of RELEASED takes back a release that the target will never append; EXPIRED names
records whose time was over before they could be delivered.

Key: version (2 bytes), kind (2 bytes), as end markers of transactions have them.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from odradek.model import TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.records.errors import CorruptRecords
from odradek.records.record import Record

_KEY: Final = struct.Struct(">hh")
_HEAD: Final = struct.Struct(">h16siqii")  # version, topic id, partition, producer, sequence, count
_ENTRY: Final = struct.Struct(">qqq")  # offset, due, due next
_VERSION: Final = 0


class MarkKind(IntEnum):
    """The types of control records; Kafka's own end at 6."""

    RELEASE = 20001
    RELEASED = 20002
    RETURNED = 20003
    EXPIRED = 20004


class Entry(NamedTuple):
    """One record: its offset, when it was due, and when it is due again (-1: never)."""

    offset: int
    due_ms: int
    next_due_ms: int


class Target(NamedTuple):
    """A partition of one topic of that name; a recreated one has another id."""

    topic: str
    topic_id: UUID
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition, by its name."""
        return TopicPartition(self.topic, self.partition)


NOWHERE: Final = Target("", UUID(int=0), -1)
"""The target of expired records."""


class Mark(NamedTuple):
    """One mark; which fields say something follows from its kind. The `sequence` of RELEASE is that
    of its first record, of RELEASED that of the next record."""

    kind: MarkKind
    target: Target = NOWHERE
    producer_id: int = -1
    sequence: int = 0
    entries: Sequence[Entry] = ()


def build_marks(marks: Sequence[Mark], now_ms: int) -> bytearray:
    """The control batch of marks."""
    builder = RecordBatchBuilder(is_control=True)
    for mark in marks:
        builder.append(now_ms, _KEY.pack(_VERSION, mark.kind), _value(mark))
    return bytearray(builder.build())


def _value(mark: Mark) -> bytes:
    target = mark.target
    head = _HEAD.pack(
        _VERSION,
        target.topic_id.bytes,
        target.partition,
        mark.producer_id,
        mark.sequence,
        len(mark.entries),
    )
    entries = b"".join(_ENTRY.pack(*entry) for entry in mark.entries)
    return head + entries + target.topic.encode()


def parse_marks(records: Sequence[Record]) -> Iterator[Mark]:
    """The marks among control records; others are skipped.

    Raises:
        CorruptRecords: a mark is cut short.
    """
    for record in records:
        key, value = record.key, record.value
        if key is None or len(key) < _KEY.size:
            continue
        kind = _KEY.unpack_from(key)[1]
        if kind in _KINDS and value is not None:
            yield _parse(MarkKind(kind), value)


def _parse(kind: MarkKind, value: bytes) -> Mark:
    try:
        _, topic_id, partition, producer_id, sequence, count = _HEAD.unpack_from(value)
        end = _HEAD.size + count * _ENTRY.size
        entries = tuple(Entry(*each) for each in _ENTRY.iter_unpack(value[_HEAD.size : end]))
        target = Target(value[end:].decode(), UUID(bytes=topic_id), partition)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise CorruptRecords(f"a mark of a schedule topic cannot be read: {error}") from error
    if len(entries) != count:
        raise CorruptRecords(f"a mark of {count} records names {len(entries)}")
    return Mark(kind, target, producer_id, sequence, entries)


_KINDS: Final = frozenset(int(kind) for kind in MarkKind)

SCHEDULE_MARKS: Final = {int(kind): f"schedule{kind.name.capitalize()}" for kind in MarkKind}
"""The names of marks, as tools print them."""


def describe_mark(record: Record) -> dict[str, object]:
    """A mark in plain values, for people.

    Raises:
        CorruptRecords: it is cut short.
    """
    for mark in parse_marks([record]):
        facts: dict[str, object] = {}
        if mark.target != NOWHERE:
            facts["target"] = str(mark.target.topic_partition)
            facts |= {"producerId": mark.producer_id, "sequence": mark.sequence}
        return facts | {"offsets": [entry.offset for entry in mark.entries]}
    raise CorruptRecords("a mark of a schedule topic has no value")
