"""No bytes whatsoever stop a decoder, nor do they make it give what its column cannot hold.

Types, schemas and values are drawn at random: bytes alone, and what was written by the schema with
some bytes changed. What a column holds is said here once more, without the code that is tried. If
this fails, one record ends `decode` at each start, or Spark makes 0 or null of a value.
"""

import json
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import types as t
from tests.unit.pyspark_odradek.test_formats import described, field, tagged, text, varint, zigzag

from pyspark_odradek.formats import Undecodable, UnusableSchema, decoder_for

PREFIX = b"\0\0\0\0\x07"
BITS = {t.ByteType: 8, t.ShortType: 16, t.IntegerType: 32, t.LongType: 64}
PLAIN = {
    t.StringType: str,
    t.BinaryType: bytes,
    t.BooleanType: bool,
    t.DoubleType: float,
    t.FloatType: float,
    t.DateType: date,
    t.TimestampType: datetime,
}


def holds(column: t.DataType, value: Any, is_nullable: bool = True) -> bool:
    """Whether Spark keeps a value as it is in a column of a type."""
    if value is None:
        return is_nullable
    match column:
        case t.StructType():
            fields = zip(column.fields, value, strict=True)
            return type(value) is tuple and all(holds(f.dataType, v, f.nullable) for f, v in fields)
        case t.ArrayType():
            items = (holds(column.elementType, each, column.containsNull) for each in value)
            return type(value) is list and all(items)
        case t.MapType():
            keys = (holds(column.keyType, key, False) for key in value)
            values = (holds(column.valueType, v, column.valueContainsNull) for v in value.values())
            return type(value) is dict and all(keys) and all(values)
        case t.DecimalType():
            return is_exact(column, value)
    if type(column) in BITS:
        beyond = 1 << (BITS[type(column)] - 1)
        return type(value) is int and -beyond <= value < beyond
    return type(value) is PLAIN[type(column)] and survives(column, value)


def is_exact(column: t.DecimalType, value: Decimal) -> bool:
    _, digits, exponent = value.as_tuple()
    has_digits = value.is_zero() or len(digits) <= column.precision
    return type(value) is Decimal and exponent == -column.scale and has_digits


def survives(column: t.DataType, value: Any) -> bool:
    """True if a value gets to the JVM: as UTF-8, as four bytes, as microseconds."""
    match column:
        case t.StringType():
            return bool(value.encode().decode() == value)
        case t.FloatType():
            return len(struct.pack("<f", value)) == 4
        case t.TimestampType():
            return value.tzinfo is UTC and type(column.toInternal(value)) is int
    return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each example has its schemas."""
    return tmp_path_factory.mktemp("schemas")


def tried(make: Callable[[], Any], value: bytes) -> None:
    """Decodes a value, and looks at what comes out."""
    try:
        decoder = make()
        row = decoder.decode(value)
    except (Undecodable, UnusableSchema):
        return
    assert holds(decoder.type, row), (decoder.type.simpleString(), row)


@st.composite
def damaged(draw: st.DrawFn, values: st.SearchStrategy[bytes]) -> bytes:
    """A value with some bytes changed, added or cut off, or none."""
    value = bytearray(draw(values))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        place = draw(st.integers(0, len(value)))
        value[place : place + draw(st.integers(0, 2))] = draw(st.binary(max_size=3))
    return bytes(value)


# --- JSON -------------------------------------------------------------------------------------

NAMES = ("a", "b", "c")


@st.composite
def decimals(draw: st.DrawFn) -> t.DecimalType:
    precision = draw(st.integers(1, 38))
    return t.DecimalType(precision, draw(st.integers(0, precision)))


scalars = decimals() | st.sampled_from([
    t.StringType(), t.BooleanType(), t.ByteType(), t.ShortType(), t.IntegerType(), t.LongType(),
    t.FloatType(), t.DoubleType(), t.TimestampType(), t.DateType(),
])  # fmt: skip


def structs(inner: st.SearchStrategy[t.DataType]) -> st.SearchStrategy[t.StructType]:
    columns = st.lists(st.tuples(inner, st.booleans()), min_size=1, max_size=3)
    return columns.map(
        lambda found: t.StructType(
            [t.StructField(name, *each) for name, each in zip(NAMES, found, strict=False)]
        )
    )


columns = st.recursive(
    scalars,
    lambda inner: (
        structs(inner)
        | st.builds(t.ArrayType, inner, st.booleans())
        | st.builds(t.MapType, scalars, inner, st.booleans())
    ),
    max_leaves=6,
)
digits = st.from_regex(r"\A-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,45})?([eE][-+]?[0-9]{1,10})?\Z")
# What is at the edges of types, and what is none of them.
words = st.text() | st.sampled_from([
    "NaN", "-Infinity", "sNaN", "true", "1_000", "\ud800", "0001-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59-05:00", "0001-01-01", "2026-11-27T06:00:00.123456789Z", "24:00",
])  # fmt: skip


# Documents are drawn as texts: the decoder is not to be tried by a writer that is made like it.
def shown_list(items: list[str]) -> str:
    return f"[{', '.join(items)}]"


def shown_object(entries: dict[str, str]) -> str:
    return f"{{{', '.join(f'{json.dumps(name)}: {text}' for name, text in entries.items())}}}"


documents = st.recursive(
    digits | (st.none() | st.booleans() | words).map(json.dumps),
    lambda inner: (
        st.lists(inner, max_size=3).map(shown_list)
        | st.dictionaries(st.sampled_from(NAMES) | words | digits, inner, max_size=3).map(
            shown_object
        )
    ),
    max_leaves=8,
)


def document_of(column: t.DataType) -> st.SearchStrategy[str]:
    """Texts that may well be in a column, and now and then something else."""
    fitting: st.SearchStrategy[str]
    match column:
        case t.StructType():
            fields = {each.name: document_of(each.dataType) for each in column}
            fitting = st.fixed_dictionaries({}, optional=fields).map(shown_object)
        case t.ArrayType():
            fitting = st.lists(document_of(column.elementType), max_size=3).map(shown_list)
        case t.MapType():
            keys = document_of(column.keyType).map(lambda each: each.strip('"'))
            values = document_of(column.valueType)
            fitting = st.dictionaries(keys, values, max_size=3).map(shown_object)
        case t.NumericType():
            fitting = digits
        case t.BooleanType():
            fitting = st.booleans().map(json.dumps)
        case t.TimestampType():
            fitting = st.datetimes().map(lambda each: f'"{each.isoformat()}"')
        case t.DateType():
            fitting = st.dates().map(lambda each: f'"{each.isoformat()}"')
        case _:
            fitting = words.map(json.dumps)
    return st.integers(0, 9).flatmap(lambda chance: documents if chance == 0 else fitting)


@given(st.data())
def test_no_text_of_json_stops_a_decoder(data: st.DataObject) -> None:
    column = data.draw(columns)
    value = data.draw(damaged(document_of(column).map(str.encode)) | st.binary())
    schema = t.StructType().add("a", column) if not isinstance(column, t.StructType) else column
    if schema is not column:
        value = b'{"a": ' + value + b"}"
    tried(lambda: decoder_for("json", schema=schema, registry=None, subject=""), value)


@given(documents)
def test_a_column_of_text_shows_the_same_document(document: str) -> None:
    """Python's parser finds in it what it finds in the value, each number by its digits."""
    schema = t.StructType().add("a", "string")
    decoder = decoder_for("json", schema=schema, registry=None, subject="")
    [found] = decoder.decode(f'{{"a": [{document}]}}'.encode())
    read = partial(json.loads, parse_int="number {}".format, parse_float="number {}".format)
    assert read(found) == [read(document)]


@pytest.mark.parametrize("around", [b"[", b'{"a":', b'{"a":['])
@pytest.mark.parametrize("depth", [300, 990, 2_000, 100_000])
def test_no_depth_stops_a_decoder(around: bytes, depth: int) -> None:
    """Columns of text show what is in them, which is as deep."""
    schema = t.StructType().add("a", "string")
    for value in (around * depth, b'{"a":' + b"[" * depth + b"]" * depth + b"}"):
        tried(lambda: decoder_for("json", schema=schema, registry=None, subject=""), value)


def rounded(written: str, scale: int) -> int:
    """How many of the last place that a column has there are in a number, half of one for one: by
    digits alone, where the decoder has decimals."""
    number, _, exponent = written.lower().partition("e")
    whole, _, behind = number.partition(".")
    shift = int(exponent or 0) - len(behind) + scale
    size = int((whole + behind).lstrip("-"))
    # Beyond that nothing is left of what has 90 digits, or it is too large for each column.
    shift = max(-200, min(shift, 200))
    places = 10 ** abs(shift)
    found = size * places if shift >= 0 else (2 * size + places) // (2 * places)
    return -found if number.startswith("-") else found


@example("0.5", t.DecimalType(1, 0))
@example("-2.5", t.DecimalType(1, 0))
@example("9.5", t.DecimalType(1, 0))
@example("12345678901234567890.123456789012345678", t.DecimalType(38, 18))
@example("1e-9999999999", t.DecimalType(38, 38))
@given(digits, decimals())
def test_digits_are_those_of_the_text(written: str, column: t.DecimalType) -> None:
    schema = t.StructType().add("amount", column).add("whole", "string")
    decoder = decoder_for("json", schema=schema, registry=None, subject="")
    value = f'{{"amount": {written}, "whole": {written}}}'.encode()
    expected = rounded(written, column.scale)
    if abs(expected) < 10**column.precision:
        amount, whole = decoder.decode(value)
        _, found, exponent = amount.as_tuple()
        assert (int("".join(map(str, found))), exponent) == (abs(expected), -column.scale)
        assert (amount < 0, whole) == (expected < 0, written)
    else:
        with pytest.raises(Undecodable, match="digits before its point"):
            decoder.decode(value)


# --- Avro -------------------------------------------------------------------------------------

logical = st.sampled_from([
    {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"}, {"type": "long", "logicalType": "date"},
    {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18},
    {"type": "bytes", "logicalType": "decimal"},
])  # fmt: skip
avro_scalars = logical | st.sampled_from(
    ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
)
defaults = st.none() | st.booleans() | st.integers() | st.floats() | words


@st.composite
def avro_records(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    fields = [{"name": name, "type": draw(inner)} for name in NAMES[: draw(st.integers(0, 3))]]
    for each in fields:
        if draw(st.booleans()):
            each["default"] = draw(defaults)
    return {"type": "record", "name": draw(st.sampled_from(["R", "s.R", "Q"])), "fields": fields}


avro_schemas = st.recursive(
    avro_scalars
    | st.builds(lambda size: {"type": "fixed", "name": "F", "size": size}, st.integers(0, 3))
    | st.just({"type": "enum", "name": "E", "symbols": ["S", "L"], "default": "S"}),
    lambda inner: (
        avro_records(inner)
        | st.lists(inner, min_size=1, max_size=3)
        | st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(lambda values: {"type": "map", "values": values}, inner)
    ),
    max_leaves=6,
)


def avro_value(schema: Any) -> st.SearchStrategy[bytes]:
    """Values as a writer of a schema may write them."""
    if isinstance(schema, list):
        branches = [avro_value(each).map(lambda data, at=at: zigzag(at) + data)
                    for at, each in enumerate(schema)]  # fmt: skip
        return st.one_of(branches)
    match schema if isinstance(schema, str) else schema["type"]:
        case "record":
            fields = [avro_value(each["type"]) for each in schema["fields"]]
            return st.tuples(*fields).map(b"".join)
        case "array":
            return blocks(avro_value(schema["items"]))
        case "map":
            entry = st.tuples(st.text(max_size=3).map(text), avro_value(schema["values"]))
            return blocks(entry.map(b"".join))
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"])
        case "enum":
            return st.integers(0, 1).map(zigzag)
        case "int" | "long":
            return (st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9)).map(zigzag)
        case "float" | "double" as kind:
            size = 4 if kind == "float" else 8
            return st.binary(min_size=size, max_size=size)
        case "boolean":
            return st.sampled_from([b"\0", b"\1", b"\2"])
        case "bytes":
            return st.binary(max_size=20).map(lambda data: zigzag(len(data)) + data)
        case "string":
            return st.text(max_size=5).map(text)
    return st.just(b"")


def blocks(items: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.lists(items, max_size=3).map(
        lambda found: (zigzag(len(found)) + b"".join(found) if found else b"") + b"\0"
    )


@given(st.data())
def test_no_bytes_of_avro_stop_a_decoder(folder: Path, data: st.DataObject) -> None:
    reader = data.draw(avro_records(avro_schemas) | avro_schemas)
    writer = data.draw(st.sampled_from([reader, data.draw(avro_records(avro_schemas))]))
    value = data.draw(damaged(avro_value(writer)) | st.binary())
    (folder / "7.avsc").write_text(json.dumps(writer))
    (folder / "s-value.avsc").write_text(json.dumps(reader))
    make = lambda: decoder_for("avro", schema=None, registry=str(folder), subject="s-value")  # noqa: E731
    tried(make, PREFIX + value)


@st.composite
def broken(draw: st.DrawFn, schema: Any) -> Any:
    """A schema of which a part is something else, or is not there."""
    match schema:
        case dict() if draw(st.booleans()):
            name = draw(st.sampled_from(sorted(schema)))
            rest = {each: node for each, node in schema.items() if each != name}
            part = broken(schema[name]).map(lambda node: {**rest, name: node})
            return draw(st.just(rest) | part)
        case list() if schema and draw(st.booleans()):
            at = draw(st.integers(0, len(schema) - 1))
            return [*schema[:at], draw(broken(schema[at])), *schema[at + 1 :]]
    return draw(defaults | st.sampled_from([[], {}, [[]], {"type": "int"}, "R", "record", -1, 1e9]))


@given(st.data())
def test_no_schema_of_a_registry_stops_a_decoder(folder: Path, data: st.DataObject) -> None:
    """Somebody has put it there: those who read other values must not suffer for it."""
    reader = data.draw(avro_records(avro_schemas))
    (folder / "7.avsc").write_text(json.dumps(data.draw(broken(reader))))
    (folder / "s-value.avsc").write_text(json.dumps(reader))
    make = lambda: decoder_for("avro", schema=None, registry=str(folder), subject="s-value")  # noqa: E731
    tried(make, PREFIX + data.draw(avro_value(reader)))


# --- Protobuf ---------------------------------------------------------------------------------

KINDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 18)
INNER = described("I", field("x", 1, 5), field("y", 2, 9))
ENTRY = described("E", field("key", 1, 5), field("value", 2, 9)) + tagged(7, tagged(7, 1))
MESSAGES = (".s.M.I", ".s.M.E", ".google.protobuf.Timestamp")


@st.composite
def fields(draw: st.DrawFn, number: int) -> bytes:
    label = draw(st.sampled_from([1, 1, 1, 2, 3]))
    choice = tagged(9, 0) if label == 1 and draw(st.booleans()) else b""
    if draw(st.booleans()):
        return field(f"f{number}", number, draw(st.sampled_from(KINDS)), label=label) + choice
    name = draw(st.sampled_from(MESSAGES))
    label = 3 if name == ".s.M.E" else label
    return field(f"f{number}", number, 11, name, label=label) + choice


@st.composite
def descriptors(draw: st.DrawFn) -> bytes:
    found = [draw(fields(number)) for number in range(1, draw(st.integers(2, 5)))]
    nested = tagged(3, INNER) + tagged(3, ENTRY)
    file = tagged(2, b"s") + tagged(4, described("M", *found, nested=nested))
    return tagged(1, file + tagged(12, draw(st.sampled_from([b"proto2", b"proto3"]))))


numbers = st.integers(1, 5)
parts: st.SearchStrategy[bytes] = st.deferred(
    lambda: (
        st.builds(tagged, numbers, st.integers(-(2**63), 2**64 - 1) | st.integers(0, 99))
        | st.builds(
            tagged, numbers, st.binary(max_size=9) | st.lists(parts, max_size=3).map(b"".join)
        )
        | st.builds(
            lambda n, data: varint(n << 3 | 1) + data, numbers, st.binary(min_size=8, max_size=8)
        )
        | st.builds(
            lambda n, data: varint(n << 3 | 5) + data, numbers, st.binary(min_size=4, max_size=4)
        )
    )
)


@given(descriptors(), damaged(st.lists(parts, max_size=5).map(b"".join)) | st.binary())
def test_no_bytes_of_protobuf_stop_a_decoder(folder: Path, schema: bytes, value: bytes) -> None:
    path = folder / "m.desc"
    path.write_bytes(schema)
    make = lambda: decoder_for("protobuf", schema=str(path), registry=None, subject="")  # noqa: E731
    tried(make, value)


@given(descriptors(), st.data())
def test_no_descriptor_stops_a_decoder(folder: Path, schema: bytes, data: st.DataObject) -> None:
    broken = data.draw(damaged(st.just(schema)))
    (folder / "7.avsc").unlink(missing_ok=True)
    (folder / "7.desc").write_bytes(broken)
    (folder / "m-value.desc").write_bytes(schema)
    make = lambda: decoder_for("protobuf", schema=None, registry=str(folder), subject="m-value")  # noqa: E731
    tried(make, PREFIX + b"\0" + data.draw(parts))


# --- the prefix of a registry -------------------------------------------------------------------

KEPT = {
    "a.avsc": b'{"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}',
    "j.json": b'{"properties": {"x": {"type": "integer"}}}',
    "p.desc": tagged(1, tagged(4, described("M", field("x", 1, 5), nested=tagged(3, INNER)))),
}
values = st.binary(max_size=9) | st.sampled_from([b'{"x": 1}', tagged(1, 5), zigzag(5)])
ids = st.sampled_from([7, 8, 9, 0, 2**31, 2**32 - 1])
counted = st.integers(0, 2) | st.integers(-(2**63), 2**63 - 1)
prefixes = st.builds(
    lambda number, indexes: struct.pack(">bI", 0, number) + b"".join(map(zigzag, indexes)),
    ids,
    st.lists(counted, max_size=4),
)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a schema of each format, under a subject and under an id."""
    folder = tmp_path_factory.mktemp("mixed")
    for number, (name, schema) in enumerate(KEPT.items(), 7):
        (folder / name).write_bytes(schema)
        (folder / f"{number}{Path(name).suffix}").write_bytes(schema)
    return folder


@given(st.sampled_from(["json", "avro", "protobuf"]), damaged(prefixes), values)
def test_no_prefix_stops_a_decoder(mixed: Path, kind: str, prefix: bytes, value: bytes) -> None:
    """Another format's, one of a schema that is not there, one of a message that is not there."""
    make = lambda: decoder_for(kind, schema=None, registry=str(mixed), subject=kind[0])  # noqa: E731
    tried(make, prefix + value)
