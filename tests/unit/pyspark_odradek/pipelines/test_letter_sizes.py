"""Letters that are too large for their topic. If these fail, one record ends `decode` at each
start, or nobody can say what it was."""

import hashlib
import random
from typing import Any

import pyarrow as pa
import pytest

from odradek.records.builder import RecordBatchBuilder
from pyspark_odradek.pipelines.ends.letter_sizes import CODEC, LEAST_LIMIT, fitted

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", pa.list_(HEADER))])
TOLD = [
    {"key": f"odradek.{name}", "value": value}
    for name, value in (
        ("reason", "ä".encode() * 1_000), ("topic", b"t" * 249), ("partition", b"2147483647"),
        ("offset", b"9223372036854775807"), ("timestamp", b"1700000000000"),
    )
]  # fmt: skip


def noise(size: int) -> bytes:
    """Bytes that no codec makes smaller."""
    return random.Random(size).randbytes(size)


def header(key: str, value: bytes | None) -> dict[str, Any]:
    return {"key": key, "value": value}


def letter(key: bytes | None, value: bytes | None, *own: dict[str, Any]) -> dict[str, Any]:
    return {"key": key, "value": value, "headers": [*own, *TOLD]}


def sent(limit: int, *letters: dict[str, Any]) -> list[dict[str, Any]]:
    """Dead letters; each has to be small enough for the topic."""
    batch = pa.RecordBatch.from_pylist(list(letters), schema=SCHEMA)
    found = [row for each in fitted(iter([batch]), limit) for row in each.to_pylist()]
    for row in found:
        builder = RecordBatchBuilder(CODEC)
        headers = [(each["key"], each["value"]) for each in row["headers"]]
        builder.append(0, row["key"], row["value"], headers)
        assert len(builder.build()) <= limit
    return found


def test_what_the_topic_takes_is_left_as_it_is() -> None:
    small = letter(None, b"x", header("h", None))
    pressed = letter(b"k", b"x" * 3_000_000)
    assert sent(100_000, small, pressed, letter(None, None)) == [
        small, pressed, letter(None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("limit", [LEAST_LIMIT, 1_048_588])
@pytest.mark.parametrize("missing", [-200, 0, 10_000])
def test_a_value_that_is_too_large_is_cut_and_told_by_size_and_digest(
    limit: int, missing: int
) -> None:
    """A record 200 bytes below the limit is above it with its reason."""
    value = noise(limit + missing)
    [found] = sent(limit, letter(b"key", value, header("h", b"1")))
    digest = hashlib.sha256(value).hexdigest()
    note = f"{limit + missing} bytes, sha256 {digest}".encode()
    assert found == {
        "key": b"key",
        "value": value[: limit // 4],
        "headers": [header("h", b"1"), header("odradek.cut.value", note), *TOLD],
    }


def test_a_letter_that_fits_until_it_is_compressed_is_cut() -> None:
    """A value that cannot be compressed grows by it: the topic refused the letter at each start."""
    limit = 1_048_588
    builder = RecordBatchBuilder()
    headers = [(each["key"], each["value"]) for each in TOLD]
    builder.append(0, None, noise(limit // 2), headers)
    value = noise(limit // 2 + limit - builder.size_bytes)
    [found] = sent(limit, letter(None, value))
    assert found["value"] == value[: limit // 4]


def test_keys_and_headers_are_cut_as_well() -> None:
    key, value = noise(50_000), noise(30_000)
    [found] = sent(20_000, letter(key, value, header("h", value), header("ä", None)))
    notes = {each["key"]: each["value"].decode() for each in found["headers"][:3]}
    digests = [
        hashlib.sha256(data).hexdigest() for data in (key, value, b"h" + value + "ä".encode())
    ]
    assert notes == {
        "odradek.cut.key": f"50000 bytes, sha256 {digests[0]}",
        "odradek.cut.value": f"30000 bytes, sha256 {digests[1]}",
        "odradek.cut.headers": f"2 headers, sha256 {digests[2]}",
    }
    assert (found["key"], found["value"]) == (key[:2_500], value[:5_000])
    assert found["headers"][3:] == TOLD
    [again] = sent(20_000, found)
    assert again == found, "what redrive sends back is not cut once more"


def test_a_letter_that_is_cut_again_tells_of_the_whole_record() -> None:
    """Where a topic took less by then, its note had the size of what the first cut had left."""
    key, value, own = noise(90_000), noise(900_000), header("h", noise(70_000))
    whole = letter(key, value, own)
    [first] = sent(200_000, whole)
    [again] = sent(20_000, first)
    [at_once] = sent(20_000, whole)
    assert (first["value"], again["value"]) == (value[:50_000], value[:5_000])
    assert again == at_once


def test_very_many_headers_are_cut_too() -> None:
    own = (header(f"{size}", noise(size)) for size in range(200))
    [found] = sent(LEAST_LIMIT, letter(None, None, *own))
    names = [each["key"] for each in found["headers"]]
    assert names == ["odradek.cut.headers", *(each["key"] for each in TOLD)]
