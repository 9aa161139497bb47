"""Letters that are too large for their topic are compressed; if that is not enough, they are cut.

A compressed record may be many times as large uncompressed, and the headers with the error come on
top. A letter that is cut has the beginning of its key and value, and its own headers only where
they are small. Each part that is cut has a header with its whole size and digest; the whole record
is where the other headers say:

    odradek.cut.value     3000000 bytes, sha256 9f86d081884c7d659a2feaa0c55ad015...
    odradek.cut.key       200000 bytes, sha256 ...
    odradek.cut.headers   20 headers, sha256 ...

These follow the record's own. If the last of those has such a name, `odradek.cut.nothing` follows
it, so that a whole letter is not taken for a cut one. A letter that is cut again, because its topic
takes less by then, keeps the notes that it has: they tell of the whole record.
"""

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from odradek.records.builder import RecordBatchBuilder
from odradek.records.compression import Compression

if TYPE_CHECKING:
    import pyarrow as pa

CUT: Final = "odradek.cut."
WHOLE: Final = f"{CUT}nothing"
_NOTES: Final = tuple(f"{CUT}{part}" for part in ("key", "value", "headers"))
CODEC: Final = Compression.ZSTD
# The least limit of a dead-letter topic: the reason alone may have 4 000 bytes.
LEAST_LIMIT: Final = 16_384
# The headers that `decode` adds to those of a record.
_TOLD: Final = 5

Header = dict[str, Any]


def fitted(batches: "Iterator[pa.RecordBatch]", limit: int) -> "Iterator[pa.RecordBatch]":
    """Returns the same letters, cut where a topic with this limit would not take them."""
    import pyarrow as pa

    for batch in batches:
        if batch.nbytes <= limit // 2:
            yield batch
        else:
            rows = [_fitted(row, limit) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=batch.schema)


def _fitted(row: dict[str, Any], limit: int) -> dict[str, Any]:
    if _is_taken(row, limit):
        return row
    own, known = _without_notes(row["headers"][:-_TOLD])
    key, key_note = _cut(row["key"], limit // 8, "key")
    value, value_note = _cut(row["value"], limit // 4, "value")
    own, own_note = _cut_headers(own, limit // 8)
    notes = {each["key"]: each for each in (*key_note, *value_note, *own_note, *known)}
    headers = [*own, *notes.values(), *row["headers"][-_TOLD:]]
    return {"key": key, "value": value, "headers": headers}


def _without_notes(headers: list[Header]) -> tuple[list[Header], list[Header]]:
    """Returns the headers of a record, and those in which an earlier cut told of it."""
    own = len(headers)
    while own and headers[own - 1]["key"] in _NOTES:
        own -= 1
    return headers[:own], headers[own:]


def _is_taken(row: dict[str, Any], limit: int) -> bool:
    """Whether a row is small enough after compression, which makes some rows larger."""
    headers = [(header["key"], header["value"]) for header in row["headers"]]
    builder = RecordBatchBuilder(CODEC)
    builder.append(0, row["key"], row["value"], headers)
    return builder.size_bytes <= limit // 2 or len(builder.build()) <= limit


def _cut(data: bytes | None, limit: int, part: str) -> tuple[bytes | None, list[Header]]:
    if data is None or len(data) <= limit:
        return data, []
    return data[:limit], [_note(part, f"{len(data)} bytes, {_digest(data)}")]


def _cut_headers(own: list[Header], limit: int) -> tuple[list[Header], list[Header]]:
    """The record's own headers, if they are small."""
    data = b"".join(each["key"].encode() + (each["value"] or b"") for each in own)
    if len(data) + 16 * len(own) <= limit:
        return own, []
    return [], [_note("headers", f"{len(own)} headers, {_digest(data)}")]


def _note(part: str, text: str) -> Header:
    return {"key": f"{CUT}{part}", "value": text.encode()}


def _digest(data: bytes) -> str:
    return f"sha256 {hashlib.sha256(data).hexdigest()}"
