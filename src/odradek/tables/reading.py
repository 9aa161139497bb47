"""What a worker does: fetches or reads the chunks of a range, and makes Arrow batches of them.

Everything heavy is imported here and not in `source`, because Spark imports that module just
to look which data sources there are.
"""

import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from odradek.client.blocking import PartitionReader
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.records.batch import BatchHeader, split_batches
from odradek.records.columnar import ColumnDecoder
from odradek.records.reader import read_batch
from odradek.tables.arrow import record_batch
from odradek.tables.bounds import open_cluster
from odradek.tables.chunks import Chunk
from odradek.tables.directory import DataDirectory
from odradek.tables.errors import DataLoss, MissingData
from odradek.tables.offsets import EARLIEST
from odradek.tables.options import ReadOptions
from odradek.tables.ranges import OffsetRange
from odradek.tables.columns import HEADERS

_log = logging.getLogger(__name__)

# An Arrow batch is made in memory as a whole, some times over, here and in Spark's JVM. So it
# ends at so many rows, which are enough for its own cost not to count, or bytes. A compressed
# batch of records may have more in it: that is handed over in pieces, a larger record alone.
BATCH_ROWS: Final = 32_768
BATCH_BYTES: Final = 8 << 20
_LOST: Final = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def read_range(
    options: ReadOptions, schema: StructType, piece: OffsetRange
) -> Iterator[pa.RecordBatch]:
    """The records of a range as Arrow batches with the columns of `schema`.

    Raises:
        DataLoss: records are missing and the options do not allow for it.
        BrokerError: the broker cannot be read from, or a batch is corrupt.
    """
    with closing(_open_records(options, piece.topic_partition)) as records:
        rest: OffsetRange | None = piece
        while rest is not None:
            decoder = _decoder(frozenset(schema.fieldNames()), rest)
            try:
                yield from _decode(records.read(rest.start, rest.end), decoder, schema, rest)
                return
            except MissingData as missing:
                if options.fail_on_data_loss:
                    raise DataLoss(str(missing)) from missing
                _log.warning("%s; going on with what is there", missing)
                rest = _after_gap(missing.next_offset, decoder.next_offset, rest)


def _decode(
    chunks: Iterator[Chunk], decoder: ColumnDecoder, schema: StructType, piece: OffsetRange
) -> Iterator[pa.RecordBatch]:
    """The records of chunks; what came before records are missing is handed over as well."""
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    missing: MissingData | None = None
    try:
        for chunk in chunks:
            for records in _visible(chunk):
                position = decoder.append(records)
                while decoder.is_full:
                    yield from _finished(decoder, arrow_schema, piece.topic_partition)
                    position = decoder.append(records, position)
    except MissingData as error:
        missing = error
    if decoder.row_count:
        yield from _finished(decoder, arrow_schema, piece.topic_partition)
    if missing is not None:
        raise missing


def _finished(
    decoder: ColumnDecoder, schema: pa.Schema, topic_partition: TopicPartition
) -> Iterator[pa.RecordBatch]:
    """What a decoder has gathered, in pieces that are not too large."""
    return _pieces(record_batch(decoder.finish(), schema, topic_partition))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halves of halves, until each has at most twice `BATCH_BYTES` or a single row."""
    if batch.num_rows <= 1 or batch.nbytes <= 2 * BATCH_BYTES:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _pieces(batch.slice(0, middle))
    yield from _pieces(batch.slice(middle))


def _after_gap(following: int | None, offset: int, piece: OffsetRange) -> OffsetRange | None:
    """What is left of a range behind missing records; `None` if that is nothing."""
    if following is None or following >= piece.end:
        return None
    assert following > offset, f"{piece} is missing at {offset} and goes on at {following}"
    return OffsetRange(piece.topic_partition, following, piece.end)


class _SegmentRecords:
    """A partition's records in files."""

    def __init__(self, options: ReadOptions, topic_partition: TopicPartition) -> None:
        self._directory = DataDirectory(options.log_dirs)
        self._topic_partition = topic_partition

    def read(self, start: int, end: int) -> Iterator[Chunk]:
        return self._directory.partition(self._topic_partition).read(start, end)

    def close(self) -> None:
        return None


class _BrokerRecords:
    """A partition's records through its leader."""

    def __init__(self, options: ReadOptions, topic_partition: TopicPartition) -> None:
        self._cluster = open_cluster(options)
        self._topic_partition = topic_partition
        self._reader = PartitionReader(
            self._cluster,
            topic_partition,
            read_committed=options.read_committed,
            max_wait_ms=options.client.fetch_max_wait_ms,
            max_bytes=options.client.fetch_max_bytes,
            partition_max_bytes=options.client.partition_fetch_max_bytes,
        )

    def read(self, start: int, end: int) -> Iterator[Chunk]:
        try:
            for fetched in self._reader.read(start, end):
                start = fetched.next_offset
                yield Chunk(fetched.records, fetched.next_offset, tuple(fetched.aborted))
        except BrokerError as error:
            if error.code not in _LOST:
                raise
            what = f"offsets {start} to {end}: {error}"
            raise MissingData(what, self._first_offset_above(start)) from error

    def _first_offset_above(self, offset: int) -> int | None:
        """Where the partition begins, if records before that were wanted."""
        self._cluster.forget(disconnect=True)
        try:
            first = self._cluster.list_offsets({self._topic_partition: EARLIEST})
        except BrokerError as error:
            if error.code not in _LOST:
                raise
            return None
        begin = first[self._topic_partition]
        return begin if begin is not None and begin > offset else None

    def close(self) -> None:
        self._cluster.close()


def _open_records(
    options: ReadOptions, topic_partition: TopicPartition
) -> _SegmentRecords | _BrokerRecords:
    if options.log_dirs:
        return _SegmentRecords(options, topic_partition)
    return _BrokerRecords(options, topic_partition)


def _decoder(columns: frozenset[str], piece: OffsetRange) -> ColumnDecoder:
    return ColumnDecoder(
        key="key" in columns,
        value="value" in columns,
        offset="offset" in columns,
        timestamp="timestamp" in columns,
        timestamp_type="timestampType" in columns,
        headers=HEADERS in columns,
        start_offset=piece.start,
        end_offset=piece.end,
        max_rows=BATCH_ROWS,
        max_bytes=BATCH_BYTES,
        check_crc=True,
    )


def _visible(chunk: Chunk) -> Iterator[memoryview]:
    """The stretches of a chunk without the batches of aborted transactions."""
    if not chunk.aborted:
        yield chunk.records
        return
    waiting = sorted(chunk.aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    for header in split_batches(chunk.records, drop_partial_tail=True):
        while waiting and waiting[-1][1] <= header.last_offset:
            aborting.add(waiting.pop()[0])
        if header.is_control and _ends_aborted(chunk.records, header):
            aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            yield chunk.records[header.position : header.end_position]


def _ends_aborted(records: memoryview, header: BatchHeader) -> bool:
    """Whether a control batch is the marker of an abort: version 0, type 0."""
    key = read_batch(records, header)[0].key
    return key is not None and key[2:4] == b"\0\0"
