"""`write.format("odradek")` and `writeStream`: writes rows as records, at least or exactly once.

Columns are the connector's: `value`, and optionally `key`, `topic`, `headers` and `partition`;
others are ignored. With `keepTimestamps` the column `timestamp` is kept as well, which is what a
restored topic needs.

At least once: a task that is repeated writes its records again; a writer is idempotent for as
long as it lives, not beyond. Exactly once (a stream to one topic, unless `exactlyOnce=false`): a
task leaves its records in an open transaction, `odradek.tables.write.transaction`, and `commit`,
on the driver, commits those of all tasks, `odradek.tables.write.batch_commit`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from pyspark_odradek.errors import in_one_sentence
from pyspark_odradek.schema import COLUMN_TYPES
from pyspark_odradek.sink_options import SinkOptions
from pyspark_odradek.workers import freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.client.sync import Cluster
    from odradek.tables.write.batch_commit import BatchCommit
    from odradek.tables.write.query_run import QueryRun
    from odradek.tables.write.record_accumulator import BinaryColumn, Rows
    from odradek.tables.write.transaction import Content, Share
    from odradek.tables.write.writing import TopicWriter

# The properties that Spark gives the tasks of a micro-batch.
_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"
# A query's jobs are the group that has the id of its run.
_RUN_ID: Final = "spark.jobGroup.id"

_ADVICE: Final = (
    "What cuts a batch into tasks must not change before it is done, nor what is in it. If records "
    "were deleted before they were read again, set failOnDataLoss to false, here too"
)

_TEXT: Final = (BinaryType(), StringType())
_ACCEPTED: Final[dict[str, tuple[DataType, ...]]] = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
}


@dataclass
class Written(WriterCommitMessage):
    """The number of records that a task wrote."""

    records: int


@dataclass
class Prepared(Written):
    """The message of a task that has written, which the driver commits."""

    run: "QueryRun"
    share: "Share"


class BatchWriter(DataSourceArrowWriter):
    """Writes a table."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(options, schema)
        self._options = options

    @in_one_sentence
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:  # type: ignore[override]
        """Writes the rows of a task, on a worker; returns when all records are acknowledged."""
        return write_batches(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing: records are visible at once."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing: records cannot be taken back."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(options, schema)
        self._options = options

    @in_one_sentence
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:  # type: ignore[override]
        """Writes the rows of a task, on a worker; returns when all records are acknowledged."""
        if self._options.exactly_once:
            return write_once(self._options, iterator, *_told_by_spark(self._options))
        return write_batches(self._options, iterator)

    @in_one_sentence
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commits the transactions that all tasks have prepared; other records are already
        visible."""
        if prepared := _prepared(messages):
            commit_prepared(self._options, prepared, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Aborts the transactions that tasks have prepared, for which readers would wait."""
        if prepared := _prepared(messages):
            commit = _batch_commit(self._options, prepared)
            commit.abort([message.share for message in prepared])


def check_columns(options: SinkOptions, schema: StructType) -> None:
    """Checks that rows of this schema can be written.

    Raises:
        ValueError: a column is missing, or has another type.
    """
    types = {field.name: field.dataType for field in schema}
    if "value" not in types:
        raise ValueError("there is no column value to write")
    if options.topic is None and "topic" not in types:
        raise ValueError("say where to write: the option topic, or a column topic")
    if options.keep_timestamps and "timestamp" not in types:
        raise ValueError("keepTimestamps: there is no column timestamp")
    for name, accepted in _ACCEPTED.items():
        found = types.get(name)
        if found is not None and found not in accepted and _counts(name, options):
            names = " or ".join(each.simpleString() for each in accepted)
            raise ValueError(f"column {name} is of type {found.simpleString()}, not {names}")
    headers = types.get("headers")
    wanted = COLUMN_TYPES["headers"]
    if headers is not None and headers.simpleString() != wanted.simpleString():
        raise ValueError(
            f"column headers is of type {headers.simpleString()}, not {wanted.simpleString()}"
        )


def write_batches(options: SinkOptions, batches: "Iterator[pa.RecordBatch]") -> Written:
    """Writes all rows and waits until they are acknowledged.

    Raises:
        ValueError: a row names no topic.
        KafkaError: the broker refused records, or did not answer in time.
    """
    from odradek.clock import SystemClock
    from odradek.tables.write.writing import TopicWriter

    with closing(_cluster(options)) as cluster:
        writer = TopicWriter(cluster, options.write, SystemClock())
        tables = (_rows(options, batch) for batch in batches if batch.num_rows)
        records = sum(rows.count for rows in _appended(writer, tables))
        writer.flush()
    freeze_imports()
    return Written(records)


def write_once(
    options: SinkOptions,
    batches: "Iterator[pa.RecordBatch]",
    run: "QueryRun",
    task: int,
    batch_id: int,
    advice: str = _ADVICE,
) -> Prepared:
    """Writes the rows of a task of a batch, unless an earlier attempt has; they are not committed.

    `advice` is for the user of a query whose earlier attempt wrote others.

    Raises:
        KafkaError: the broker refused records, or a newer attempt has taken over.
    """
    from odradek.clock import SystemClock
    from odradek.tables.write.transaction import BatchTransaction, Content, Share
    from odradek.tables.write.writing import TopicWriter

    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return Prepared(0, run, Share(task, Content()))
    transaction = BatchTransaction(
        options.brokers, run, task, timeout_ms=options.transaction_timeout_ms
    )
    with closing(_cluster(options)) as cluster, transaction:
        tables = (_rows(options, batch) for batch in chain((first,), batches) if batch.num_rows)
        if not transaction.begin(batch_id):
            lacks = not options.fail_on_data_loss
            content = _content_of(tables)
            share = transaction.repeated(content, may_lack_records=lacks, advice=advice)
            return Prepared(0, run, share)
        writer = TopicWriter(cluster, options.write, SystemClock(), transaction)
        content = _content_of(_appended(writer, tables))
        writer.flush()
        freeze_imports()
        return Prepared(content.records, run, transaction.prepare(batch_id, content))


def content_of(options: SinkOptions, batches: "Iterable[pa.RecordBatch]") -> "Content":
    """Returns the content of rows, as `write_once` would write them."""
    return _content_of(_rows(options, batch) for batch in batches if batch.num_rows)


def commit_prepared(options: SinkOptions, prepared: Sequence[Prepared], batch_id: int) -> None:
    """Commits the transactions that the tasks of a batch have prepared.

    Raises:
        OutdatedQuery: a newer run has taken over, or the batch was partitioned otherwise.
        KafkaError: a coordinator refuses, or does not answer.
    """
    commit = _batch_commit(options, prepared)
    commit.commit(batch_id, [message.share for message in prepared])


def _told_by_spark(options: SinkOptions) -> "tuple[QueryRun, int, int]":
    """Reads run, task and batch from Spark's properties.

    Raises:
        ValueError: one is missing.
    """
    from pyspark import TaskContext

    from odradek.model import TopicPartition
    from odradek.tables.write.query_run import QueryRun

    context = TaskContext.get()
    told = (
        None
        if context is None
        else [context.getLocalProperty(name) for name in (_QUERY_ID, _RUN_ID, _BATCH_ID)]
    )
    if context is None or told is None or None in told:
        raise ValueError("exactlyOnce: Spark does not tell this task its query, run and batch")
    assert options.topic is not None, "checked with the options"
    checkpoint, run, batch_id = map(str, told)
    query = options.query_name or checkpoint
    marker = TopicPartition(options.topic, 0)
    return QueryRun(query, checkpoint, run, marker), context.partitionId(), int(batch_id)


def _prepared(messages: Sequence[WriterCommitMessage | None]) -> list[Prepared]:
    return [message for message in messages if isinstance(message, Prepared)]


def _batch_commit(options: SinkOptions, prepared: Sequence[Prepared]) -> "BatchCommit":
    from odradek.tables.write.batch_commit import BatchCommit

    return BatchCommit(
        options.brokers,
        prepared[0].run,
        timeout_ms=options.transaction_timeout_ms,
        may_lack_records=not options.fail_on_data_loss,
    )


def _cluster(options: SinkOptions) -> "Cluster":
    from odradek.client.sync import Cluster

    return Cluster(
        options.bootstrap_servers,
        client_id=options.client_id,
        request_timeout_ms=options.write.request_timeout_ms,
        api_timeout_ms=options.delivery_timeout_ms,
        limited_by="kafka.delivery.timeout.ms",
        security=options.security.security(),
    )


def _appended(writer: "TopicWriter", tables: "Iterable[Rows]") -> "Iterator[Rows]":
    """Yields the same rows, each batch once the writer has taken it."""
    for rows in tables:
        writer.append(rows)
        yield rows


def _content_of(tables: "Iterable[Rows]") -> "Content":
    from odradek.tables.write.record_accumulator import checksum_of
    from odradek.tables.write.transaction import Content

    records = checksum = 0
    for rows in tables:
        records += rows.count
        checksum += checksum_of(rows)
    return Content(records, checksum)


def _counts(name: str, options: SinkOptions) -> bool:
    """Whether a column is used."""
    match name:
        case "timestamp":
            return options.keep_timestamps
        case "topic":
            return options.topic is None
        case _:
            return True


def _rows(options: SinkOptions, batch: "pa.RecordBatch") -> "Rows":
    """Yields the columns that are written; a missing column is null in every row."""
    import pyarrow as pa

    from odradek.tables.write.record_accumulator import Rows

    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    # The option goes before the column, as with the connector.
    topics: Any = options.topic
    if topics is None:
        if columns["topic"].null_count:
            raise ValueError("a row has no topic, and there is no option topic")
        topics = columns["topic"].to_pylist()
    partitions, headers = columns.get("partition"), columns.get("headers")
    timestamps = columns["timestamp"] if options.keep_timestamps else None
    if timestamps is not None:
        for wanted in (pa.timestamp("ms", "UTC"), pa.int64()):
            timestamps = timestamps.cast(wanted, safe=False)
    return Rows(
        count=batch.num_rows,
        topics=topics,
        values=_binary(columns["value"]),
        keys=_binary(columns["key"]) if "key" in columns else None,
        partitions=None if partitions is None else partitions.to_pylist(),
        headers=None if headers is None else [_pairs(of_a_row) for of_a_row in headers.to_pylist()],
        timestamps_ms=None if timestamps is None else timestamps.to_pylist(),
    )


def _pairs(headers: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    return [(pair["key"], pair["value"]) for pair in headers] if headers else []


def _binary(column: Any) -> "BinaryColumn":
    """Returns the bytes of a column of binaries or strings, of at least one row."""
    import pyarrow as pa

    from odradek.tables.write.record_accumulator import BinaryColumn

    values: Any = column.cast(pa.binary(), safe=False)
    _, offsets, data = values.buffers()
    return BinaryColumn(
        data=b"" if data is None else data.to_pybytes(),
        offsets=offsets.slice(values.offset * 4).to_pybytes(),
        is_null=_flags(values.is_null()) if values.null_count else None,
    )


def _flags(column: Any) -> bytes:
    """Returns a byte for each value of a column of booleans without nulls."""
    import pyarrow as pa

    flags: bytes = column.cast(pa.uint8()).buffers()[1].to_pybytes()
    return flags
