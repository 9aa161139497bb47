"""Wraps decoded columns as Arrow record batches, without copying them.

Raises:
    ImportError: on import, pyarrow is not installed.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

try:
    import pyarrow as pa
except ImportError:
    raise ImportError("pyarrow is not installed: pip install 'odradek[arrow]'") from None

from odradek.model import TopicPartition
from odradek.records.columnar import BinaryBuffers, BinaryViewBuffers, ColumnBuffers, HeaderBuffers
from odradek.tables.columns import HEADERS

Table: TypeAlias = pa.Table
RecordBatch: TypeAlias = pa.RecordBatch
_MILLISECONDS = pa.timestamp("ms", tz="UTC")
_TYPES: "dict[str, pa.DataType]" = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _MILLISECONDS,
    "timestampType": pa.int32(),
    HEADERS: pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """The schema of these columns, in this order."""
    return pa.schema([(name, _TYPES[name]) for name in columns])


def record_batch(
    columns: ColumnBuffers, schema: pa.Schema, topic_partition: TopicPartition
) -> pa.RecordBatch:
    """The rows of `columns` as a batch of exactly `schema`, in its order. Only value views that the
    schema wants to be something else are copied."""
    arrays = [_array(columns, field, topic_partition) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def arrow_table(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> Table:
    """The batches one after the other, as one table."""
    return pa.Table.from_batches(batches, schema=schema)


def pandas_frame(table: Table) -> Any:
    """The table as a data frame of pandas.

    Raises:
        ImportError: pandas is not installed.
    """
    try:
        return table.to_pandas()
    except ModuleNotFoundError:
        raise ImportError("pandas is not installed: pip install 'pandas>=2.2.2,<3'") from None


def _array(
    columns: ColumnBuffers, field: "pa.Field[Any]", topic_partition: TopicPartition
) -> "pa.Array[Any]":
    rows = columns.row_count
    match field.name:
        case "key":
            return _binary(columns.key, rows, field.type)
        case "value":
            if columns.value_views is not None:
                return _views(columns.value_views, rows, field.type)
            return _binary(columns.value, rows, field.type)
        case "topic":
            return pa.repeat(topic_partition.topic, rows)
        case "partition":
            return pa.repeat(pa.scalar(topic_partition.partition, pa.int32()), rows)
        case "offset":
            return _fixed(columns.offset, rows, field.type)
        case "timestamp":
            times = _fixed(columns.timestamp, rows, _MILLISECONDS)
            return _times(times, field.type, topic_partition)
        case "timestampType":
            return _fixed(columns.timestamp_type, rows, field.type)
        case _:
            return _headers(columns.headers, rows, field.type)


def _times(
    times: "pa.Array[Any]", type: pa.DataType, topic_partition: TopicPartition
) -> "pa.Array[Any]":
    try:
        return times.cast(type)
    except pa.ArrowInvalid:
        furthest = max(times.cast(pa.int64()).to_pylist(), key=lambda time: abs(time or 0))
        raise ValueError(
            f"{topic_partition} has a record whose time, {furthest} ms, is too far from 1970 for a "
            "column of microseconds; reading only other columns works (columns)"
        ) from None


def _binary(column: BinaryBuffers | None, rows: int, type: pa.DataType) -> "pa.Array[Any]":
    assert column is not None, "every column of the schema was asked for"
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(type, rows, buffers, column.null_count)


def _views(column: BinaryViewBuffers, rows: int, type: pa.DataType) -> "pa.Array[Any]":
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, *map(pa.py_buffer, (column.views, *column.data))]
    array = pa.Array.from_buffers(pa.binary_view(), rows, buffers, column.null_count)
    return array if type == array.type else array.cast(type)


def _fixed(data: bytes | None, rows: int, type: pa.DataType) -> "pa.Array[Any]":
    assert data is not None, "every column of the schema was asked for"
    return pa.Array.from_buffers(type, rows, [None, pa.py_buffer(data)], 0)


def _headers(column: HeaderBuffers | None, rows: int, type: "pa.ListType[Any]") -> "pa.Array[Any]":
    assert column is not None, "every column of the schema was asked for"
    pair = type.value_type
    keys = _binary(column.keys, column.header_count, pair.field("key").type)
    values = _binary(column.values, column.header_count, pair.field("value").type)
    pairs = pa.Array.from_buffers(pair, column.header_count, [None], 0, children=[keys, values])
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets)]
    return pa.Array.from_buffers(type, rows, buffers, column.null_count, children=[pairs])
