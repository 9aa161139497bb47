"""A decoder gives what a value says, or a reason. If these fail, a table has values that nobody
wrote: Spark makes 0 of a null that may not be, of a number that is too large, of a key of another
type."""

import json
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as t
from tests.unit.pyspark_odradek.test_formats import (
    described,
    field,
    record,
    tagged,
    text,
    varint,
    zigzag,
)

from pyspark_odradek.formats import Decoder, Undecodable, UnusableSchema, decoder_for

Make = Callable[[str, str | bytes], Decoder]


def of_columns(ddl: t.StructType) -> Decoder:
    return decoder_for("json", schema=ddl, registry=None, subject="")


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a decoder of a format by the text of its schema."""

    def made(kind: str, schema: str | bytes) -> Decoder:
        path = tmp_path / {"avro": "s.avsc", "protobuf": "s.desc"}[kind]
        path.write_bytes(schema if isinstance(schema, bytes) else schema.encode())
        return decoder_for(kind, schema=str(path), registry=None, subject="")

    return made


@pytest.fixture
def two(tmp_path: Path) -> Callable[[str, str], Decoder]:
    """Makes a decoder of Avro whose values were written with another schema, of id 7."""

    def made(writer: str, reader: str) -> Decoder:
        (tmp_path / "7.avsc").write_text(writer)
        (tmp_path / "s-value.avsc").write_text(reader)
        return decoder_for("avro", schema=None, registry=str(tmp_path), subject="s-value")

    return made


# --- JSON -------------------------------------------------------------------------------------

NOT_NULL = t.StructType().add("id", "long", nullable=False)


@pytest.mark.parametrize(
    ("columns", "value", "reason"),
    [
        (NOT_NULL, b"{}", "field id: it is not there, and may not be null"),
        (NOT_NULL, b'{"id": null}', "field id: it is not there"),
        (t.StructType().add("in", NOT_NULL), b'{"in": {}}', "field in: field id: it is not there"),
        (t.StructType().add("a", t.ArrayType(t.LongType(), False)), b'{"a": [1, null]}', "not be"),
        (
            t.StructType().add("m", t.MapType(t.StringType(), t.LongType(), False)),
            b'{"m": {"k": null}}',
            "may not be null",
        ),
        (t.StructType().add("x", "float"), b'{"x": 1e300}', "1e300 is too large"),
        (t.StructType().add("x", "float"), b'{"x": -3402823567797337e23}', "is too large"),
        (t.StructType().add("x", "double"), b'{"x": 1e400}', "1e400 is too large"),
        (t.StructType().add("x", "double"), b'{"x": ' + b"9" * 400 + b"}", "is too large"),
        (t.StructType().add("x", t.DecimalType(5, 2)), b'{"x": "NaN"}', ': "NaN" is not a number'),
        (t.StructType().add("x", t.DecimalType(5, 2)), b'{"x": "-sNaN"}', "is not a number"),
        (t.StructType().add("x", t.DecimalType(5, 2)), b'{"x": "Infinity"}', "is not a number"),
        (t.StructType().add("x", t.DecimalType(5, 2)), b'{"x": 1e-8888888888888888888}', "expon"),
        (t.StructType().add("x", t.DecimalType(5, 2)), b'{"x": "1_00"}', "1_00. is not a number"),
        (t.StructType().add("s", "string"), b'{"s": "\\ud800"}', "half a character"),
        (t.StructType().add("s", "string"), b'{"s": "\xed\xa0\x80"}', "half a character"),
        (t.StructType().add("at", "date"), b'{"at": 20261122}', "is not a date"),
    ],
)  # fmt: skip
def test_what_is_not_in_json_is_not_made_up(
    columns: t.StructType, value: bytes, reason: str
) -> None:
    with pytest.raises(Undecodable, match=reason):
        of_columns(columns).decode(value)


@pytest.mark.parametrize(
    "value",
    [
        b'{"m": {"k": "1", "k": "2"}}',
        b'{"m": {"k": "1", "\\u006b": "1"}}',
        b'{"m": {}, "m": {}}',
        b'{"s": {"in": [{"k": 1, "k": 1}]}}',
        b'{"passed over": {"k": 1, "k": 1}}',
    ],
)
def test_of_two_entries_with_one_key_none_is_chosen(value: bytes) -> None:
    """The last one was taken, and nobody was told."""
    inner = t.MapType(t.StringType(), t.StringType())
    with pytest.raises(Undecodable, match=r'an object has the key ".*" twice'):
        of_columns(t.StructType().add("m", inner).add("s", "string")).decode(value)


def keyed(key: t.DataType) -> Decoder:
    return of_columns(t.StructType().add("m", t.MapType(key, t.StringType())))


@pytest.mark.parametrize(
    ("key", "written", "read"),
    [
        (t.StringType(), "7", "7"),
        (t.IntegerType(), "-7", -7),
        (t.DoubleType(), "2.50", 2.5),
        (t.FloatType(), "0.1", struct.unpack("<f", struct.pack("<f", 0.1))[0]),
        (t.DecimalType(38, 18), "12345678901234567.891", Decimal("12345678901234567.891")),
        (t.BooleanType(), "true", True),
        (t.TimestampType(), "2026-11-22T06:00Z", datetime(2026, 11, 22, 6, tzinfo=UTC)),
    ],
)
def test_keys_of_a_map_have_its_type(key: t.DataType, written: str, read: Any) -> None:
    """Spark made 0 of a text that was a key where numbers are."""
    value = json.dumps({"m": {written: "x"}}).encode()
    [found] = keyed(key).decode(value)[0]
    assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize(
    ("key", "written"),
    [
        (t.IntegerType(), ["x"]),
        (t.IntegerType(), [" 7"]),
        (t.IntegerType(), ["7.0"]),
        (t.ByteType(), ["128"]),
        (t.BooleanType(), ["True"]),
        (t.DoubleType(), ["NaN"]),
        (t.DoubleType(), ["1e400"]),
        (t.StringType(), ["\ud800"]),
        # Two entries would become one.
        (t.DoubleType(), ["1.0", "1.00"]),
        (t.FloatType(), ["0.1", "0.10000000149"]),
    ],
)
def test_other_keys_are_refused(key: t.DataType, written: list[str]) -> None:
    value = json.dumps({"m": dict.fromkeys(written, "x")}).encode()
    with pytest.raises(Undecodable):
        keyed(key).decode(value)


def test_a_map_by_structs_is_no_table_of_json() -> None:
    with pytest.raises(UnusableSchema, match="JSON has no keys of type struct<id:bigint>"):
        keyed(NOT_NULL)


# --- Avro -------------------------------------------------------------------------------------

CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DAY = {"type": "int", "logicalType": "date"}


@pytest.mark.parametrize(
    ("type", "data", "reason"),
    [
        ("int", zigzag(2**31), "2147483648 is not a number of 32 bits"),
        ("long", b"\xff" * 9 + b"\x02", "more than 64 bits"),
        ("boolean", b"\x02", "neither true nor false"),
        (CENTS, zigzag(2) + (10_000).to_bytes(2, "big"), "more than 2 digits before"),
        # Of so many bytes alone the decimal would be computed for hours.
        (CENTS, zigzag(30_000_000) + b"\x7f" * 30_000_000, "more than 2 digits before"),
    ],
)
def test_avro_that_no_column_holds(make: Make, type: Any, data: bytes, reason: str) -> None:
    with pytest.raises(Undecodable, match=reason):
        make("avro", record(("x", type))).decode(data)


@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "E", "fields": []}])
def test_items_without_bytes_are_not_counted_for_ever(make: Make, items: Any) -> None:
    """Twelve bytes said that there are 2**62 of them."""
    decoder = make("avro", json.dumps({"type": "array", "items": items}))
    with pytest.raises(Undecodable, match="has no bytes for 4611686018427387904 items"):
        decoder.decode(zigzag(2**62) + zigzag(0))
    with pytest.raises(Undecodable, match="has no bytes for"):
        decoder.decode((zigzag(60_000) * 1_000) + zigzag(0))
    assert len(decoder.decode(zigzag(1_000) + zigzag(0))) == 1_000


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (CENTS, {**CENTS, "scale": 1}),
        (DAY, MICROS),
        (MILLIS, {**DAY, "type": "int"}),
    ],
)
def test_meanings_are_not_mixed_up(two: Any, writer: Any, reader: Any) -> None:
    """An amount was ten times as much, a day a millisecond."""
    decoder = two(record(("x", writer)), record(("x", reader)))
    with pytest.raises(Undecodable, match="cannot be read as"):
        decoder.decode(b"\0\0\0\0\x07" + zigzag(0))


def test_a_time_keeps_the_unit_that_it_was_written_in(two: Any) -> None:
    decoder = two(record(("x", MILLIS)), record(("x", MICROS)))
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert decoder.decode(b"\0\0\0\0\x07" + zigzag(1_700_000_000_000)) == (at,)


def test_a_record_of_a_union_is_the_one_of_its_name(two: Any) -> None:
    """The first that has the fields was taken, which is another thing."""
    cat, dog = (
        {"type": "record", "name": name, "fields": [{"name": "age", "type": "int"}]}
        for name in ("Cat", "Dog")
    )
    decoder = two(record(("x", dog)), record(("x", [cat, dog])))
    assert decoder.decode(b"\0\0\0\0\x07" + zigzag(3)) == ((None, (3,)),)


@pytest.mark.parametrize(
    ("type", "default"),
    [
        ("int", "7"),
        ("int", True),
        ("int", 2**31),
        ("int", None),
        ("string", 7),
        ("boolean", 0),
        ("float", 1e300),
        ("double", "1"),
        ("bytes", "\u0100"),
        ({"type": "fixed", "name": "Two", "size": 2}, "abc"),
        ({"type": "enum", "name": "Size", "symbols": ["S"]}, "L"),
        ({"type": "array", "items": "int"}, [None]),
        ({"type": "map", "values": "int"}, {"a": "b"}),
        ({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}, {}),
        (["null", "int"], "x"),
        (CENTS, "\x7f\xff\xff"),
    ],
)
def test_defaults_have_their_types(two: Any, type: Any, default: Any) -> None:
    decoder = two(record(), record(("x", type, default)))
    with pytest.raises(UnusableSchema, match="default"):
        decoder.decode(b"\0\0\0\0\x07")


# --- Protobuf ---------------------------------------------------------------------------------


def message(*fields: bytes, nested: bytes = b"", syntax: bytes = b"proto3") -> bytes:
    file = tagged(2, b"s") + tagged(4, described("M", *fields, nested=nested))
    return tagged(1, file + tagged(12, syntax))


def eight(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 1) + data


def four(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 5) + data


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (1, tagged(1, b"12345678")),  # a text for a double
        (1, tagged(1, 5)),
        (6, four(1, b"abcd")),
        (9, eight(1, b"12345678")),  # a double for a text
        (9, tagged(1, 5)),
        (12, four(1, b"abcd")),
        (3, eight(1, b"12345678")),
    ],
)
def test_a_field_in_another_form_is_refused(make: Make, kind: int, data: bytes) -> None:
    """Eight bytes are a number, or a word, by what stands before them."""
    decoder = make("protobuf", message(field("x", 1, kind)))
    with pytest.raises(Undecodable, match="field x has another type"):
        decoder.decode(data)


AT = field("at", 1, 11, ".google.protobuf.Timestamp")


@pytest.mark.parametrize(
    "data",
    [
        tagged(1, 2**40),  # So many zeros were made of it.
        tagged(1, tagged(1, b"12")),
        tagged(1, tagged(2, 1_000_000_000)),
        tagged(1, tagged(2, -1)),
        tagged(1, tagged(1, 2**60)),
    ],
)
def test_a_time_of_protobuf_is_one(make: Make, data: bytes) -> None:
    with pytest.raises(Undecodable):
        make("protobuf", message(AT)).decode(data)


@pytest.mark.parametrize(
    "data", [b"\0\0", b"\2\1x", varint(2**32 << 3) + b"\0", b"\xff" * 9 + b"\2"]
)
def test_fields_that_no_message_has_are_refused(make: Make, data: bytes) -> None:
    """Any zeros were a message whose fields are all zero."""
    with pytest.raises(Undecodable):
        make("protobuf", message(field("x", 1, 3))).decode(data)


def test_numbers_of_32_bits_stay_within_them(make: Make) -> None:
    decoder = make("protobuf", message(field("x", 1, 17), field("y", 2, 5), field("z", 3, 13)))
    sent = tagged(1, 2**40 + 3) + tagged(2, 2**40 + 3) + tagged(3, 2**40 + 3)
    assert decoder.decode(sent) == (-2, 3, 3)


def test_an_entry_of_a_map_that_lacks_its_key_has_the_first(make: Make) -> None:
    """As in any reader of Protobuf, also of proto2, where the key was null."""
    entry = described("E", field("key", 1, 9), field("value", 2, 5)) + tagged(7, tagged(7, 1))
    schema = message(
        field("m", 1, 11, ".s.M.E", label=3), nested=tagged(3, entry), syntax=b"proto2"
    )
    decoder = make("protobuf", schema)
    assert decoder.decode(tagged(1, b"")) == ({"": 0},)
    assert decoder.decode(tagged(1, tagged(1, b"k"))) == ({"k": 0},)


def test_a_required_field_is_there(make: Make) -> None:
    decoder = make("protobuf", message(field("id", 1, 3, label=2), syntax=b"proto2"))
    with pytest.raises(Undecodable, match="field id is required and not there"):
        decoder.decode(b"")
    assert decoder.decode(tagged(1, 5)) == (5,)


def test_parts_of_a_message_are_put_together(make: Make) -> None:
    """The last part alone lacked what the others have."""
    inner = described("I", field("a", 1, 3), field("b", 2, 3))
    decoder = make("protobuf", message(field("in", 1, 11, ".s.M.I"), nested=tagged(3, inner)))
    assert decoder.decode(tagged(1, tagged(1, 5)) + tagged(1, tagged(2, 6))) == ((5, 6),)


def test_of_alternatives_the_last_one_counts(make: Make) -> None:
    choice = tagged(9, 0)
    decoder = make("protobuf", message(field("a", 1, 3) + choice, field("b", 2, 9) + choice))
    assert decoder.decode(tagged(1, 5) + tagged(2, b"x")) == (None, "x")


def test_indexes_in_front_of_a_message_are_a_list(tmp_path: Path) -> None:
    """A number of them below zero passed for the first message."""
    (tmp_path / "7.desc").write_bytes(message(field("x", 1, 3)))
    (tmp_path / "s-value.desc").write_bytes(message(field("x", 1, 3)))
    decoder = decoder_for("protobuf", schema=None, registry=str(tmp_path), subject="s-value")
    with pytest.raises(Undecodable, match="no list of indexes"):
        decoder.decode(b"\0\0\0\0\x07" + zigzag(-1))


def test_floats_that_are_none_are_kept_where_they_were_written(make: Make) -> None:
    """Avro and Protobuf have them; only of JSON they would be made up."""
    infinite = struct.pack("<d", float("inf"))
    assert make("avro", record(("x", "double"))).decode(infinite) == (float("inf"),)
    decoder = make("protobuf", message(field("x", 1, 1)))
    assert decoder.decode(eight(1, infinite)) == (float("inf"),)


def test_of_two_entries_of_avro_with_one_key_none_is_chosen(make: Make) -> None:
    """The last one was taken, as it was in JSON."""
    decoder = make("avro", record(("m", {"type": "map", "values": "string"})))
    one, other = text("a") + text("x"), text("b") + text("y")
    assert decoder.decode(b"\x04" + one + other + b"\0") == ({"a": "x", "b": "y"},)
    for twice in (b"\x04" + one + one, b"\x02" + one + b"\x02" + one):
        with pytest.raises(Undecodable, match="two keys of a map are the same"):
            decoder.decode(twice + b"\0")


def test_words_of_avro_and_json_are_the_same(make: Make) -> None:
    assert make("avro", record(("s", "string"))).decode(text("ä\0")) == ("ä\0",)
