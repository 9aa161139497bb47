"""Rows become batches. If these fail, what Spark writes is lost, goes elsewhere or is too large."""

from collections import defaultdict
from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tables.columns import binary_column

from odradek.client.core.metadata import PartitionMetadata, TopicMetadata
from odradek.client.core.producing.partitioner import partition_for_key
from odradek.records.builder import RecordBatchBuilder
from odradek.records.reader import iter_records
from odradek.tables.write.record_accumulator import (
    OpenBatch,
    RecordAccumulator,
    Rows,
    checksum_of,
)

PARTITIONS = 3
NOW_MS = 1_700_000_000_000
BATCH_BYTES = 100
Wanted = tuple[int | None, bytes | None, bytes | None, int | None]

TEXTS = st.none() | st.binary(max_size=30)
# Partition, key and value; the time of a row is its number.
ROWS = st.lists(
    st.tuples(st.none() | st.integers(0, PARTITIONS - 1), TEXTS, TEXTS), max_size=60
).map(lambda rows: [(*row, number) for number, row in enumerate(rows)])


class Sender:
    """Keeps what it is given, by partition, with the sequences that were announced."""

    def __init__(self, *, batch_bytes: int = BATCH_BYTES, buffer_bytes: int = 1 << 20) -> None:
        self.accumulator = RecordAccumulator(
            self, Random(7), batch_bytes=batch_bytes, buffer_bytes=buffer_bytes
        )
        self.partitions = PARTITIONS
        self.sent: dict[int, list[bytes]] = defaultdict(list)
        self.sequences: dict[int, list[int]] = defaultdict(list)
        self.asked = 0

    def topic(self, name: str) -> TopicMetadata:
        self.asked += 1
        partitions = {index: PartitionMetadata(leader=1) for index in range(self.partitions)}
        return TopicMetadata(name, None, False, partitions)

    def new_builder(self, sequence: int) -> RecordBatchBuilder:
        return RecordBatchBuilder(base_sequence=sequence, producer_id=1, producer_epoch=0)

    def send(self, batches: Sequence[OpenBatch]) -> None:
        for batch in batches:
            self.sequences[batch.partition.partition].append(batch.sequence)
            self.sent[batch.partition.partition].append(self.accumulator.take(batch))


def rows(wanted: Sequence[Wanted], topics: str | Sequence[str] = "orders") -> Rows:
    partitions, keys, values, times = zip(*wanted, strict=True)
    return Rows(
        len(wanted), topics, binary_column(values), binary_column(keys), partitions, None, times
    )


@given(ROWS, st.integers(1, 60))
def test_every_row_is_in_a_batch_of_its_partition_in_its_order(
    wanted: list[Wanted], at_once: int
) -> None:
    sender = Sender()
    for begin in range(0, len(wanted), at_once):
        sender.accumulator.append(rows(wanted[begin : begin + at_once]), NOW_MS)
    sender.send(sender.accumulator.unsent())
    assert sender.accumulator.unsent() == []

    arrived = 0
    for partition, batches in sender.sent.items():
        batched = [list(iter_records(batch, check_crc=True)) for batch in batches]
        found = [record for records in batched for record in records]
        numbers = [record.timestamp for record in found]
        assert numbers == sorted(set(numbers))
        for record in found:
            chosen, key, value, _ = wanted[record.timestamp]
            assert (record.key, record.value) == (key, value)
            if chosen is None and key is not None:
                chosen = partition_for_key(key, PARTITIONS)
            assert chosen in (None, partition)
        begins = [sum(map(len, batched[:index])) for index in range(len(batched))]
        assert sender.sequences[partition] == begins
        sizes = zip(batches, batched, strict=True)
        assert all(len(batch) <= BATCH_BYTES or len(records) == 1 for batch, records in sizes)
        arrived += len(found)
    assert arrived == len(wanted)


def test_a_row_without_a_time_has_that_of_its_writing() -> None:
    sender = Sender()
    sender.accumulator.append(rows([(0, None, b"a", None), (0, None, b"b", 5)]), NOW_MS)
    sender.send(sender.accumulator.unsent())
    assert [each.timestamp for each in iter_records(sender.sent[0][0])] == [NOW_MS, 5]


def test_what_all_partitions_hold_together_is_bounded() -> None:
    sender = Sender(batch_bytes=10_000, buffer_bytes=500)
    for number in range(60):
        sender.accumulator.append(rows([(number % 3, None, b"x" * 50, None)]), NOW_MS)
        held = sum(batch.size_bytes for batch in sender.accumulator.unsent())
        assert held < 500 + 3 * 61 + 100
    assert sum(map(len, sender.sent.values())) >= 6


def test_a_topic_that_has_grown_is_noticed_with_the_next_batch() -> None:
    sender = Sender(batch_bytes=200)
    sender.partitions = 1
    many: list[Wanted] = [(None, b"k%d" % number, b"v" * 20, None) for number in range(100)]
    sender.accumulator.append(rows(many[:3]), NOW_MS)
    assert (sender.asked, len(sender.accumulator.unsent())) == (1, 1)
    sender.partitions = 3
    sender.accumulator.append(rows(many[3:]), NOW_MS)
    sender.send(sender.accumulator.unsent())
    assert sorted(sender.sent) == [0, 1, 2]
    assert 1 < sender.asked <= 1 + sum(map(len, sender.sent.values()))


def test_rows_of_several_topics_and_their_headers() -> None:
    sender = Sender()
    both = rows([(0, b"a", None, None), (0, None, b"b", None)], ["orders", "bills"])
    both.headers = [[("trace", b"1"), ("none", None)], []]
    sender.accumulator.append(both, NOW_MS)
    made = {
        batch.partition.topic: next(iter(iter_records(sender.accumulator.take(batch))))
        for batch in sender.accumulator.unsent()
    }
    assert [(each.key, each.value, list(each.headers)) for each in made.values()] == [
        (b"a", None, [("trace", b"1"), ("none", None)]),
        (None, b"b", []),
    ]
    assert list(made) == ["orders", "bills"]


@given(ROWS.filter(bool), st.randoms())
def test_a_checksum_is_of_the_rows_and_not_of_their_order(wanted: list, rng: Random) -> None:
    """A shuffle gives a repeated task its rows in another order."""
    shuffled = list(wanted)
    rng.shuffle(shuffled)
    assert checksum_of(rows(shuffled)) == checksum_of(rows(wanted))
    more = [*wanted, (None, b"k", b"v", 0)]
    assert checksum_of(rows(more)) != checksum_of(rows(wanted))


def test_rows_that_differ_have_other_checksums() -> None:
    """A task that has other rows, and as many, would be taken for written."""
    pairs = [
        (None, None), (b"", None), (None, b""), (b"", b""), (None, b"\0"), (b"\0", None),
        (b"ab", b"c"), (b"a", b"bc"), (b"abc", b""), (b"", b"abc"), (None, b"abc"), (b"abc", None),
    ]  # fmt: skip
    assert len({checksum_of(rows([(None, *pair, 0)])) for pair in pairs}) == len(pairs)
