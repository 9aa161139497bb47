"""If these fail, a Spark worker hands over wrong rows: wrong columns, aborted records, gaps."""

from collections.abc import Iterator
from uuid import UUID

import pyarrow as pa
import pytest

from odradek.model import TopicPartition
from odradek.records.batch import split_batches
from odradek.records.builder import RecordBatchBuilder, assemble_batch, build_end_marker
from odradek.storage.checkpoints import encode_partition_metadata
from odradek.tables.arrow import arrow_schema
from odradek.tables.columns import COLUMNS, HEADERS
from odradek.tables.errors import DamagedRecords, DataLoss, MissingData
from odradek.tables.plan.identity import Identity
from odradek.tables.plan.options import ClientOptions, ReadOptions, TopicSelection
from odradek.tables.plan.ranges import OffsetRange
from odradek.tables.scan import directory, reading
from odradek.tables.scan.chunks import Chunk
from odradek.tables.scan.segments import read_checkpoint

PARTITION = TopicPartition("orders", 3)
ALL_COLUMNS = COLUMNS
OPTIONS = ReadOptions(TopicSelection(names=("orders",)), ClientOptions("h:1"))


class Records:
    """A partition's records: what `read` gives for each start."""

    def __init__(self, chunks: dict[int, list[Chunk | Exception]]) -> None:
        self._chunks = chunks
        self.is_closed = False

    def read(self, piece: OffsetRange) -> Iterator[Chunk]:
        for chunk in self._chunks[piece.start]:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    def where(self, topic_partition: TopicPartition) -> str:
        return "the test"

    def close(self) -> None:
        self.is_closed = True


def rows(
    monkeypatch: pytest.MonkeyPatch,
    records: Records,
    piece: OffsetRange,
    columns: tuple[str, ...] = ("offset",),
    options: ReadOptions = OPTIONS,
) -> list[dict[str, object]]:
    monkeypatch.setattr(reading, "open_records", lambda *_: records)
    batches = list(reading.read_ranges(options, Identity(), arrow_schema(columns), [piece]))
    assert records.is_closed
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def chunk(*batches: bytes, next_offset: int, aborted: tuple[tuple[int, int], ...] = ()) -> Chunk:
    return Chunk(memoryview(b"".join(batches)), next_offset, aborted)


def plain(first: int, last: int, **more: object) -> bytes:
    builder = RecordBatchBuilder(0, first, **more)
    for offset in range(first, last + 1):
        builder.append(1_000 + offset, b"k", b"v%d" % offset)
    return builder.build()


def test_every_column_has_the_connectors_form(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = RecordBatchBuilder(0, 5)
    builder.append(1_700_000_000_123, b"k", None, [("a", b"1"), ("b", None)])
    builder.append(1_700_000_000_124, None, b"v")
    records = Records({5: [chunk(builder.build(), next_offset=7)]})
    first, second = rows(monkeypatch, records, OffsetRange(PARTITION, 5, 7), ALL_COLUMNS)
    assert first.pop("timestamp").isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert first == {
        "key": b"k",
        "value": None,
        "topic": "orders",
        "partition": 3,
        "offset": 5,
        "timestampType": 0,
        HEADERS: [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    }
    assert (second["key"], second["value"], second[HEADERS]) == (None, b"v", None)


def test_columns_come_in_the_order_of_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records({0: [chunk(plain(0, 0), next_offset=1)]})
    columns = ("partition", "value", "topic")
    [row] = rows(monkeypatch, records, OffsetRange(PARTITION, 0, 1), columns)
    assert list(row.items()) == [("partition", 3), ("value", b"v0"), ("topic", "orders")]


def test_only_the_range_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = [chunk(plain(0, 9), next_offset=10), chunk(plain(10, 19), next_offset=20)]
    found = rows(monkeypatch, Records({4: list(chunks)}), OffsetRange(PARTITION, 4, 12))
    assert [row["offset"] for row in found] == list(range(4, 12))


def test_full_batches_are_handed_over_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCH_ROWS", 4)
    batches = [plain(first, first + 2) for first in range(0, 30, 3)]
    records = Records({0: [chunk(*batches, next_offset=30)]})
    found = rows(monkeypatch, records, OffsetRange(PARTITION, 0, 30))
    assert [row["offset"] for row in found] == list(range(30))


@pytest.mark.parametrize("codec", [0, 4])
def test_batches_are_cut_by_their_bytes(monkeypatch: pytest.MonkeyPatch, codec: int) -> None:
    """Large records would take the memory of Spark's JVM, a compressed batch of them at once."""
    monkeypatch.setattr(reading, "BATCH_BYTES", 1000)
    sizes = [10, 900, 900, 900, 5_000, 10, 10, 2_500]
    builder = RecordBatchBuilder(codec, 0)
    for size in sizes:
        builder.append(0, None, bytes(size), [("h", b"x")])
    records = Records({0: [chunk(builder.build(), next_offset=8)]})
    monkeypatch.setattr(reading, "open_records", lambda *_: records)
    schema = arrow_schema(("value", HEADERS))
    piece = OffsetRange(PARTITION, 0, 8)
    batches = list(reading.read_ranges(OPTIONS, Identity(), schema, [piece]))
    assert [len(row["value"]) for batch in batches for row in batch.to_pylist()] == sizes
    assert all(batch.nbytes <= 2000 or batch.num_rows == 1 for batch in batches)
    assert len(batches) >= 5


def test_aborted_transactions_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(producer: int, first: int, last: int) -> bytes:
        return plain(first, last, producer_id=producer, producer_epoch=0, is_transactional=True)

    def marker(producer: int, offset: int, kind: int) -> bytes:
        builder = RecordBatchBuilder(
            0, offset, producer_id=producer, producer_epoch=0, is_transactional=True,
            is_control=True,
        )  # fmt: skip
        builder.append(0, b"\0\0" + kind.to_bytes(2, "big"), b"\0" * 6)
        return builder.build()

    batches = [
        of(1, 0, 1), of(2, 2, 3), plain(4, 4), marker(1, 5, 0), of(1, 6, 6), marker(2, 7, 1),
        marker(1, 8, 1),
    ]  # fmt: skip
    records = Records({0: [chunk(*batches, next_offset=9, aborted=((1, 0),))]})
    found = rows(monkeypatch, records, OffsetRange(PARTITION, 0, 9))
    assert [row["offset"] for row in found] == [2, 3, 4, 6]


def test_what_compaction_left_of_a_marker_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of a compacted topic would fail where somebody else has aborted a transaction."""
    marker = build_end_marker(
        commit=False, base_offset=0, timestamp_ms=0, producer_id=2, producer_epoch=1,
        coordinator_epoch=1,
    )  # fmt: skip
    [header] = split_batches(marker)
    emptied = assemble_batch(
        b"", base_offset=0, partition_leader_epoch=0, attributes=header.attributes,
        last_offset_delta=0, base_timestamp=-1, max_timestamp=0, producer_id=2, producer_epoch=1,
        base_sequence=-1, record_count=0,
    )  # fmt: skip
    aborted = plain(1, 1, producer_id=1, producer_epoch=0, is_transactional=True)
    records = Records({0: [chunk(emptied, aborted, plain(2, 2), next_offset=3, aborted=((1, 1),))]})
    found = rows(monkeypatch, records, OffsetRange(PARTITION, 0, 3))
    assert [row["offset"] for row in found] == [2]


def test_missing_records_end_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records({0: [MissingData("orders-3 is deleted")]})
    with pytest.raises(DataLoss, match="orders-3 is deleted"):
        rows(monkeypatch, records, OffsetRange(PARTITION, 0, 9))


@pytest.mark.parametrize(
    ("following", "expected"), [(6, [0, 1, 6, 7, 8]), (9, [0, 1]), (None, [0, 1])]
)
def test_missing_records_are_skipped_where_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, following: int | None, expected: list[int]
) -> None:
    chunks: dict[int, list[Chunk | Exception]] = {
        0: [chunk(plain(0, 1), next_offset=2), MissingData("gone", following)],
        # The broker gives whole batches: what was deleted comes along at their beginning.
        6: [chunk(plain(4, 8), next_offset=9)],
    }
    options = ReadOptions(OPTIONS.selection, OPTIONS.client, fail_on_data_loss=False)
    piece = OffsetRange(PARTITION, 0, 9)
    found = rows(monkeypatch, Records(chunks), piece, options=options)
    assert [row["offset"] for row in found] == expected


def test_a_topic_that_was_made_anew_is_not_read_for_the_old_one(log_dir, batch_of) -> None:
    """Offsets of the deleted topic would give rows of the one that has its name now."""
    log_dir.segment([batch_of(0, 4)], 0)
    metadata = log_dir.partition / "partition.metadata"
    metadata.write_bytes(encode_partition_metadata(UUID(int=1)))
    options = ReadOptions(OPTIONS.selection, OPTIONS.client, log_dirs=(str(log_dir.root),))
    schema, piece = arrow_schema(("offset",)), OffsetRange(TopicPartition("orders", 0), 0, 5)

    def read_as(topic_id: UUID) -> int:
        identity = Identity(topic_ids={"orders": topic_id})
        return sum(
            each.num_rows for each in reading.read_ranges(options, identity, schema, [piece])
        )

    assert read_as(UUID(int=1)) == 5
    with pytest.raises(DataLoss, match="was deleted and recreated"):
        read_as(UUID(int=2))


def test_what_was_deleted_is_looked_up_once_for_all_ranges(
    monkeypatch: pytest.MonkeyPatch, log_dir, batch_of
) -> None:
    """A task of hundreds of small partitions would parse the list of all of them for each."""
    log_dir.segment([batch_of(0, 9)], 0)
    log_dir.checkpoint("log-start-offset-checkpoint", 3)
    asked: list[str] = []

    def counted(log_dir: str, name: str) -> dict[TopicPartition, int]:
        asked.append(name)
        return read_checkpoint(log_dir, name)

    monkeypatch.setattr(directory, "read_checkpoint", counted)
    options = ReadOptions(OPTIONS.selection, OPTIONS.client, log_dirs=(str(log_dir.root),))
    part, schema = TopicPartition("orders", 0), arrow_schema(("offset",))
    pieces = [OffsetRange(part, start, start + 2) for start in (3, 5, 7)]
    batches = list(reading.read_ranges(options, Identity(), schema, pieces))
    assert sum(batch.num_rows for batch in batches) == 6
    assert asked == ["log-start-offset-checkpoint"]
    with pytest.raises(DataLoss, match="offsets 0 to 3 were deleted"):
        list(reading.read_ranges(options, Identity(), schema, [OffsetRange(part, 0, 5)]))


def test_a_flipped_bit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value would be another one, and nobody would know."""
    damaged = bytearray(plain(0, 4))
    damaged[damaged.index(b"v3") + 1] ^= 1
    records = Records({0: [chunk(bytes(damaged), next_offset=5)]})
    with pytest.raises(DamagedRecords, match="the batch at offset 0 in the test"):
        rows(monkeypatch, records, OffsetRange(PARTITION, 0, 5))
