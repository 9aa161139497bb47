"""A topic's Arrow batches as one file: Parquet, CSV, lines of JSON, or Arrow's own.

Batch by batch, so a topic may be larger than memory. A file is written under another name and
renamed when it is complete.
"""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from io import BufferedWriter
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from odradek.tables.arrow import arrow_schema
from odradek.tables.columns import HEADERS, check_columns
from odradek.tables.named_text import named_text

Write: TypeAlias = Callable[[pa.RecordBatch], None]
# The functions that write a batch, and that end the file.
Writer: TypeAlias = tuple[Write, Callable[[], Any]]


def write_file(
    path: str, format: str, batches: Iterable[pa.RecordBatch], columns: Sequence[str] | None = None
) -> int:
    """Writes batches of these columns to a file; returns how many records there were.

    Raises:
        ValueError: a key or a value for CSV is no text.
        OSError: the file cannot be written.
    """
    partial = f"{path}.partial"
    records = 0
    try:
        with open(partial, "wb") as file:
            write, close = _WRITERS[format](file, arrow_schema(check_columns(columns)))
            for batch in batches:
                write(batch)
                records += batch.num_rows
            close()
        os.replace(partial, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(partial)
    return records


def _parquet(file: BufferedWriter, schema: pa.Schema) -> Writer:
    writer = pyarrow.parquet.ParquetWriter(file, schema)
    return writer.write_batch, writer.close


def _arrow(file: BufferedWriter, schema: pa.Schema) -> Writer:
    writer = pyarrow.ipc.new_file(file, schema)
    return writer.write_batch, writer.close


def _csv(file: BufferedWriter, schema: pa.Schema) -> Writer:
    shown = pa.schema([(f.name, _csv_type(f)) for f in schema])
    writer = pyarrow.csv.CSVWriter(file, shown)

    def write(batch: pa.RecordBatch) -> None:
        arrays = [_csv_column(batch, field) for field in schema]
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=shown))

    return write, writer.close


def _csv_type(field: "pa.Field[Any]") -> pa.DataType:
    return pa.string() if field.name in ("key", "value", HEADERS) else field.type


def _csv_column(batch: pa.RecordBatch, field: "pa.Field[Any]") -> "pa.Array[Any]":
    column = batch.column(field.name)
    if field.name == HEADERS:
        return pa.array([_headers_text(row) for row in column.to_pylist()], pa.string())
    if field.name not in ("key", "value"):
        return column
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        raise ValueError(
            f"the topic has a {field.name} that is no text: CSV cannot hold it, .jsonl, .parquet "
            "and .arrow can"
        ) from None


def _headers_text(headers: list[dict[str, Any]] | None) -> str | None:
    return None if headers is None else _json([_header(each) for each in headers])


def _jsonl(file: BufferedWriter, _: pa.Schema) -> Writer:
    def write(batch: pa.RecordBatch) -> None:
        file.write(b"".join(_line(row) for row in batch.to_pylist()))

    return write, file.flush


def _line(row: dict[str, Any]) -> bytes:
    shown: dict[str, Any] = {}
    for name, value in row.items():
        if name in ("key", "value"):
            shown |= named_text(name, value)
        elif name == HEADERS:
            shown[name] = [_header(each) for each in value or ()]
        elif name == "timestamp":
            shown[name] = round(value.timestamp() * 1000)
        else:
            shown[name] = value
    return _json(shown).encode() + b"\n"


def _header(header: dict[str, Any]) -> dict[str, Any]:
    return {"name": header["key"], **named_text("value", header["value"])}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_WRITERS: Final[dict[str, Callable[[BufferedWriter, pa.Schema], Writer]]] = {
    "parquet": _parquet,
    "csv": _csv,
    "jsonl": _jsonl,
    "arrow": _arrow,
}
