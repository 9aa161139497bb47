"""Reads ranges as Arrow batches: their chunks are fetched, or read from files, and decoded.

Spark workers use it for a task, and `Broker.to_arrow` for a topic. Missing records are either an
error or skipped with a warning, as the options say; a directory that is not the plan's is always an
error.
"""

import logging
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import Final, Protocol
from uuid import UUID

import pyarrow as pa

from odradek.client.sync import PartitionReader
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.records.batch import BatchHeader, split_batches
from odradek.records.columnar import ColumnDecoder
from odradek.records.reader import read_batch
from odradek.tables.arrow import arrow_schema, record_batch
from odradek.tables.columns import HEADERS
from odradek.tables.errors import DamagedRecords, DataLoss, MissingData
from odradek.tables.plan.bounds import open_cluster
from odradek.tables.plan.identity import Identity, check_same_log_dirs, topic_id_of
from odradek.tables.plan.offsets import EARLIEST
from odradek.tables.plan.options import ReadOptions
from odradek.tables.plan.ranges import OffsetRange
from odradek.tables.plan.wanted import Numbers
from odradek.tables.scan.chunks import Chunk
from odradek.tables.scan.directory import DataDirectory
from odradek.tables.scan.leases import LeaseKeeper, ReadLease

_log = logging.getLogger(__name__)

# An Arrow batch is made in memory as a whole, some times over, here and in Spark's JVM. So it
# ends at so many rows, which are enough for its own cost not to count, or bytes. A compressed
# batch of records may have more in it: that is handed over in pieces, a larger record alone.
BATCH_ROWS: Final = 32_768
BATCH_BYTES: Final = 8 << 20
_LOST: Final = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_DAMAGED: Final = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
)


class Records(Protocol):
    """The source of records: brokers, or files."""

    def read(self, piece: OffsetRange) -> Iterator[Chunk]:
        """The chunks that together hold the records of a range.

        Raises:
            MissingData: records of the range are missing.
        """

    def where(self, topic_partition: TopicPartition) -> str:
        """Names the place of records in an error about a partition."""

    def close(self) -> None:
        """Closes the source."""


def read_ranges(
    options: ReadOptions,
    identity: Identity,
    schema: pa.Schema,
    pieces: Iterable[OffsetRange],
    lease: ReadLease | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of ranges, one after the other, as Arrow batches of `schema`.

    The lease, on these and maybe other ranges of the same plan, is renewed meanwhile.

    Raises:
        DataLoss: records are missing and the options do not allow for it.
        DamagedRecords: a batch is not what its checksum says, or cannot be decoded.
        WrongPath: the directories are not those of the plan.
        BrokerError: the broker cannot be read from.
    """
    keeper = LeaseKeeper(options, lease)
    with closing(open_records(options, identity)) as records:
        for piece in pieces:
            keeper.maybe_renew()
            for batch in _read_range(records, schema, piece, options):
                yield batch
                keeper.maybe_renew()


def first_times(
    options: ReadOptions, pieces: Iterable[OffsetRange]
) -> Iterator[tuple[OffsetRange, int]]:
    """The time of the first record of each range that has one, in milliseconds.

    Raises:
        DataLoss, DamagedRecords, BrokerError: as of `read_ranges`.
    """
    schema = arrow_schema(["timestamp"])
    with closing(open_records(options, Identity())) as records:
        for piece in pieces:
            with closing(_read_range(records, schema, piece, options)) as batches:
                first = next((batch for batch in batches if batch.num_rows), None)
            if first is not None:
                time = first.column(0).cast(pa.timestamp("ms", "UTC"), safe=False)
                yield piece, time.cast(pa.int64())[0].as_py()


def open_records(options: ReadOptions, identity: Identity) -> Records:
    """Opens the records of a plan with this identity.

    Raises:
        WrongPath: the directories are not those of the plan.
    """
    if options.log_dirs:
        return _SegmentRecords(options, identity)
    return _BrokerRecords(options, identity)


def _read_range(
    records: Records, schema: pa.Schema, piece: OffsetRange, options: ReadOptions
) -> Generator[pa.RecordBatch, None, None]:
    rest: OffsetRange | None = piece
    while rest is not None:
        decoder = _decoder(frozenset(schema.names), rest, options.wanted.timestamp_ms)
        try:
            yield from _decode(records.read(rest), decoder, schema, rest)
            return
        except MissingData as missing:
            if options.fail_on_data_loss:
                raise DataLoss(str(missing)) from missing
            _log.warning("%s; continuing with the records that are left", missing)
            rest = _after_gap(missing.next_offset, decoder.next_offset, rest)
        except BrokerError as error:
            if error.code not in _DAMAGED:
                raise
            where = records.where(piece.topic_partition)
            raise DamagedRecords(
                f"{piece.topic_partition}: the batch at offset {decoder.next_offset} in {where} "
                f"is damaged: {error}"
            ) from error


def _decode(
    chunks: Iterator[Chunk], decoder: ColumnDecoder, schema: pa.Schema, piece: OffsetRange
) -> Iterator[pa.RecordBatch]:
    """The records of chunks; those before missing records are handed over as well."""
    missing: MissingData | None = None
    try:
        for chunk in chunks:
            for records in _visible(chunk):
                position = decoder.append(records)
                while decoder.is_full:
                    yield from _finished(decoder, schema, piece.topic_partition)
                    position = decoder.append(records, position)
    except MissingData as error:
        missing = error
    if decoder.row_count:
        yield from _finished(decoder, schema, piece.topic_partition)
    if missing is not None:
        raise missing


def _finished(
    decoder: ColumnDecoder, schema: pa.Schema, topic_partition: TopicPartition
) -> Iterator[pa.RecordBatch]:
    """The decoder's rows, in pieces of bounded size."""
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
    """The rest of a range behind missing records; `None` if nothing is left."""
    if following is None or following >= piece.end:
        return None
    assert following > offset, f"{piece} is missing at {offset} and goes on at {following}"
    return OffsetRange(piece.topic_partition, following, piece.end)


class _SegmentRecords:
    """Records in files."""

    def __init__(self, options: ReadOptions, identity: Identity) -> None:
        check_same_log_dirs(identity.log_dirs)
        self._directory = DataDirectory(options.log_dirs)
        self._identity = identity
        # Once for all ranges: records deleted from now on existed when they were planned.
        self._deleted_up_to = self._directory.deleted_up_to()

    def read(self, piece: OffsetRange) -> Iterator[Chunk]:
        files = self._directory.partition(piece.topic_partition)
        _check_topic_id(self._identity, piece, topic_id_of(files.directory))
        first = self._deleted_up_to.get(piece.topic_partition, 0)
        if piece.start < first:
            # A segment stays for a while after its records were deleted.
            raise MissingData(
                f"{piece.topic_partition}: offsets {piece.start} to {min(first, piece.end)} were "
                "deleted",
                first,
            )
        return files.read(piece.start, piece.end)

    def where(self, topic_partition: TopicPartition) -> str:
        return self._directory.partition(topic_partition).directory

    def close(self) -> None:
        return None


class _BrokerRecords:
    """Records through the leaders of their partitions, all over the same connections."""

    def __init__(self, options: ReadOptions, identity: Identity) -> None:
        self._options = options
        self._identity = identity
        self._cluster = open_cluster(options, patiently=True)

    def read(self, piece: OffsetRange) -> Iterator[Chunk]:
        offset = piece.start
        try:
            if self._identity.topic_ids:
                # Not worth a request if there is nothing to compare.
                topic = self._cluster.retrying(
                    lambda: self._cluster.topic(piece.topic_partition.topic)
                )
                _check_topic_id(self._identity, piece, topic.topic_id)
            for fetched in self._reader(piece.topic_partition).read(piece.start, piece.end):
                offset = fetched.next_offset
                yield Chunk(fetched.records, fetched.next_offset, tuple(fetched.aborted))
        except BrokerError as error:
            if error.code not in _LOST:
                raise
            what = f"{piece.topic_partition}: offsets {offset} to {piece.end}: {error}"
            following = self._first_offset_above(piece.topic_partition, offset)
            raise MissingData(what, following) from error

    def where(self, topic_partition: TopicPartition) -> str:
        return f"what the leader of {topic_partition} sent"

    def close(self) -> None:
        self._cluster.close()

    def _reader(self, topic_partition: TopicPartition) -> PartitionReader:
        client = self._options.client
        return PartitionReader(
            self._cluster,
            topic_partition,
            topic_id=self._identity.topic_ids.get(topic_partition.topic),
            rack_id=client.rack,
            read_committed=self._options.read_committed,
            max_wait_ms=client.fetch_max_wait_ms,
            max_bytes=client.fetch_max_bytes,
            partition_max_bytes=client.partition_fetch_max_bytes,
        )

    def _first_offset_above(self, topic_partition: TopicPartition, offset: int) -> int | None:
        """The log start offset, if records before it were wanted."""
        self._cluster.forget(disconnect=True)
        try:
            begin = self._cluster.list_offsets({topic_partition: EARLIEST})[topic_partition]
        except BrokerError as error:
            if error.code not in _LOST:
                raise
            return None
        return begin if begin is not None and begin > offset else None


def _check_topic_id(identity: Identity, piece: OffsetRange, found: UUID | None) -> None:
    """Checks the topic's id: offsets of a deleted topic are not valid in a later one of its
    name."""
    planned = identity.topic_ids.get(piece.topic_partition.topic)
    if planned is not None and found is not None and found != planned:
        raise MissingData(f"{piece.topic_partition} was deleted and recreated")


def _decoder(columns: frozenset[str], piece: OffsetRange, times_ms: Numbers) -> ColumnDecoder:
    return ColumnDecoder(
        key="key" in columns,
        value="value" in columns,
        offset="offset" in columns,
        timestamp="timestamp" in columns,
        timestamp_type="timestampType" in columns,
        headers=HEADERS in columns,
        start_offset=piece.start,
        end_offset=piece.end,
        earliest_ms=times_ms.lowest,
        latest_ms=times_ms.highest,
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
    """Whether a control batch is the marker of an abort: version 0, type 0.

    A batch that compaction has emptied counts as none: its transaction has no record left.
    """
    keys = [record.key for record in read_batch(records, header)]
    return any(key is not None and key[2:4] == b"\0\0" for key in keys)
