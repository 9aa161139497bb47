"""The bytes that values are made of. If these fail, a typed table has other values than were
written."""

import itertools
import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from pyspark_odradek.formats import (
    Decoder,
    Undecodable,
    UnusableSchema,
    avro,
    decoder_for,
    jsons,
    protobuf,
)
from pyspark_odradek.formats.bytestream import ByteStream

PREFIX_7 = b"\0\0\0\0\x07"


def zigzag(number: int) -> bytes:
    return varint((number << 1) ^ (number >> 63))


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def text(word: str) -> bytes:
    return zigzag(len(word.encode())) + word.encode()


def record(*fields: tuple[str, Any], **more: Any) -> str:
    """A record of fields with their types; a third part is a default."""
    rows = [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": rows, **more})


def read(writer: str, reader: str, data: bytes) -> Any:
    stream = ByteStream(data)
    value = avro.resolve(avro.parse(writer), avro.parse(reader))(stream)
    assert stream.is_at_end
    return value


# --- Avro -------------------------------------------------------------------------------------

EVERYTHING = record(
    ("b", "boolean"), ("i", "int"), ("l", "long"), ("f", "float"), ("d", "double"),
    ("by", "bytes"), ("s", "string"), ("n", ["null", "string"]),
    ("m", {"type": "map", "values": "long"}),
    ("a", {"type": "array", "items": "int"}), ("u", ["int", "string"]),
    ("e", {"type": "enum", "name": "Size", "symbols": ["S", "L"]}), ("again", "Size"),
    ("x", {"type": "fixed", "name": "Two", "size": 2}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("ms", {"type": "long", "logicalType": "timestamp-millis"}),
    ("us", {"type": "long", "logicalType": "timestamp-micros"}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    namespace="shop",
)  # fmt: skip
WRITTEN = b"".join([
    b"\x01", zigzag(-3), zigzag(2**62), struct.pack("<f", 1.5), struct.pack("<d", -2.25),
    zigzag(2), b"\xff\x00", text("ä"), zigzag(1), text("here"),
    zigzag(1), text("k"), zigzag(9), zigzag(0),
    zigzag(-2), zigzag(2), zigzag(1), zigzag(2), zigzag(1), zigzag(3), zigzag(0),
    zigzag(1), text("u"), zigzag(1), zigzag(0), b"ab",
    zigzag(-1), zigzag(1500), zigzag(-1), zigzag(2), b"\xff\x38",
])  # fmt: skip
ROW = (
    True, -3, 2**62, 1.5, -2.25, b"\xff\x00", "ä", "here", {"k": 9}, [1, 2, 3], (None, "u"),
    "L", "S", b"ab", date(1969, 12, 31), datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), Decimal("-2.00"),
)  # fmt: skip


def test_every_type_of_avro() -> None:
    assert read(EVERYTHING, EVERYTHING, WRITTEN) == ROW
    columns = avro.spark_type(avro.parse(EVERYTHING)).simpleString()
    assert columns == (
        "struct<b:boolean,i:int,l:bigint,f:float,d:double,by:binary,s:string,n:string,"
        "m:map<string,bigint>,a:array<int>,u:struct<member0:int,member1:string>,e:string,"
        "again:string,x:binary,day:date,ms:timestamp,us:timestamp,price:decimal(9,2)>"
    )


def test_a_value_of_an_older_schema_gets_the_tables_shape() -> None:
    """Fields in another order, gone, new with a default, renamed, and of a narrower type."""
    old = record(("gone", "string"), ("total", "int"), ("shop", "string"))
    new = record(
        ("store", "string"), ("total", "double"), ("note", ["null", "string"], None),
        ("tags", {"type": "array", "items": "string"}, ["a"]),
    )  # fmt: skip
    new = new.replace('"store"', '"store", "aliases": ["shop"]')
    assert read(old, new, text("x") + zigzag(5) + text("here")) == ("here", 5.0, None, ["a"])
    with pytest.raises(Undecodable, match="field total is missing and has no default"):
        read(record(("shop", "string")), new, text("here"))
    with pytest.raises(Undecodable, match="string cannot be read as double"):
        read(record(("total", "string"), ("shop", "string")), new, b"")


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ('{"type": "record"', "no Avro schema"),
        (record(("x", "wrong")), "no Avro schema"),
        (record(("next", ["null", "Order"])), "contains itself"),
    ],
)
def test_schemas_that_there_are_no_tables_for(schema: str, reason: str) -> None:
    with pytest.raises(UnusableSchema, match=reason):
        avro.parse(schema)


def test_a_schema_that_is_huge_once_its_names_are_replaced_is_refused() -> None:
    """One of 40 lines in a registry kept the workers busy for ever."""
    schema: Any = {"type": "record", "name": "R0", "fields": []}
    for number in range(1, 40):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{number - 1}"}]
        schema = {"type": "record", "name": f"R{number}", "fields": fields}
    with pytest.raises(UnusableSchema, match="1099511627775 types, which is too many"):
        avro.parse(json.dumps(schema))


@given(st.binary(max_size=60))
def test_no_bytes_are_more_than_undecodable(data: bytes) -> None:
    schema = avro.parse(EVERYTHING)
    with pytest.raises(Undecodable):
        raise Undecodable(avro.resolve(schema, schema)(ByteStream(data)))


# --- Protobuf ---------------------------------------------------------------------------------


def tagged(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def described(name: str, *fields: bytes, nested: bytes = b"") -> bytes:
    return tagged(1, name.encode()) + b"".join(tagged(2, each) for each in fields) + nested


def field(name: str, number: int, kind: int, type_name: str = "", label: int = 1) -> bytes:
    parts = tagged(1, name.encode()) + tagged(3, number) + tagged(4, label) + tagged(5, kind)
    return parts + (tagged(6, type_name.encode()) if type_name else b"")


SIZES = tagged(1, b"Size") + b"".join(
    tagged(2, tagged(1, word) + tagged(2, number)) for number, word in enumerate((b"S", b"L"))
)
ENTRY = described("StockEntry", field("key", 1, 9), field("value", 2, 5)) + tagged(7, tagged(7, 1))
ORDER = described(
    "Order",
    field("id", 1, 3), field("price", 2, 1), field("shop", 3, 9), field("size", 4, 14, ".s.Size"),
    field("tags", 5, 9, label=3), field("counts", 6, 5, label=3),
    field("line", 7, 11, ".s.Order.Line"), field("stock", 8, 11, ".s.Order.StockEntry", label=3),
    field("at", 9, 11, ".google.protobuf.Timestamp"), field("note", 10, 9) + tagged(17, 1),
    field("big", 11, 4), field("delta", 12, 18), field("data", 13, 12), field("ok", 14, 8),
    nested=tagged(3, described("Line", field("n", 1, 13))) + tagged(3, ENTRY),
)  # fmt: skip
FILE = tagged(1, b"shop.proto") + tagged(2, b"s") + tagged(4, ORDER) + tagged(5, SIZES)
FILE += tagged(12, b"proto3")
SENT = b"".join([
    tagged(1, -5), varint(2 << 3 | 1) + struct.pack("<d", 2.5), tagged(3, "ä".encode()),
    tagged(4, 1), tagged(5, b"x"), tagged(5, b"y"), tagged(6, varint(1) + varint(-2)),
    tagged(6, 3), tagged(7, tagged(1, 2**32 - 1)),
    tagged(8, tagged(1, b"k") + tagged(2, 4)), tagged(9, tagged(1, 10) + tagged(2, 5_000)),
    tagged(11, 2**64 - 1), tagged(12, 3), tagged(13, b"\xff"), tagged(14, 1), tagged(99, b"new"),
])  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "7.desc").write_bytes(tagged(1, FILE))
    (tmp_path / "orders-value.desc").write_bytes(tagged(1, FILE))
    return tmp_path


def protobuf_decoder(folder: Path) -> Decoder:
    return decoder_for("protobuf", schema=None, registry=str(folder), subject="orders-value")


def test_every_type_of_protobuf(folder: Path) -> None:
    decoder = protobuf_decoder(folder)
    assert decoder.type.simpleString() == (
        "struct<id:bigint,price:double,shop:string,size:string,tags:array<string>,"
        "counts:array<int>,line:struct<n:bigint>,stock:map<string,int>,at:timestamp,note:string,"
        "big:decimal(20,0),delta:bigint,data:binary,ok:boolean>"
    )
    assert decoder.decode(PREFIX_7 + b"\0" + SENT) == (
        -5, 2.5, "ä", "L", ["x", "y"], [1, -2, 3], (2**32 - 1,), {"k": 4},
        datetime(1970, 1, 1, 0, 0, 10, 5, UTC), None, Decimal(2**64 - 1), -2, b"\xff", True,
    )  # fmt: skip
    nothing = (0, 0.0, "", "S", [], [], None, {}, None, None, Decimal(0), 0, b"", False)
    assert decoder.decode(PREFIX_7 + b"\0") == nothing


def chain(length: int, *labels: int) -> protobuf.Descriptors:
    """Messages of which each has the next one for each of the labels."""
    messages = [
        described(
            f"M{at}",
            *(
                field(f"f{number}", number, 11, f".M{at + 1}", label=label)
                for number, label in enumerate(labels, 1)
            ),
        )
        for at in range(length)
    ]
    last = described(f"M{length}", field("n", 1, 5))
    return protobuf.read_files([b"".join(tagged(4, each) for each in (*messages, last))])


def test_a_descriptor_that_is_huge_once_its_names_are_replaced_is_refused() -> None:
    """One of 40 messages kept the driver busy for ever."""
    with pytest.raises(UnusableSchema, match="more than 65536 types, which is too many"):
        protobuf.spark_type(chain(40, 1, 1), ".M0")


def test_lists_of_lists_are_read_by_as_many_readers() -> None:
    """Each message had a reader for values that are there and one for none: of 40 messages, each
    a list in the one before, nobody lived to see the last."""
    read = protobuf.message_reader(chain(40, 3), ".M0")
    assert read(b"") == ([],)
    assert read(tagged(1, b"")) == ([([],)],)


def test_what_an_entry_of_a_map_lacks_is_zero(tmp_path: Path) -> None:
    """Some write no value that is empty: a message without fields was null in the table."""
    options = tagged(7, tagged(7, 1))
    lines = described("LinesEntry", field("key", 1, 9), field("value", 2, 11, ".Order.Line"))
    times = described(
        "TimesEntry", field("key", 1, 5), field("value", 2, 11, ".google.protobuf.Timestamp")
    )
    order = described(
        "Order",
        field("lines", 1, 11, ".Order.LinesEntry", label=3),
        field("times", 2, 11, ".Order.TimesEntry", label=3),
        nested=tagged(3, described("Line", field("n", 1, 13)))
        + tagged(3, lines + options)
        + tagged(3, times + options),
    )
    path = tmp_path / "order.desc"
    path.write_bytes(tagged(1, tagged(4, order) + tagged(12, b"proto3")))
    decoder = decoder_for("protobuf", schema=str(path), registry=None, subject="")
    sent = tagged(1, tagged(1, b"k")) + tagged(2, b"")
    assert decoder.decode(sent) == ({"k": (0,)}, {0: datetime(1970, 1, 1, tzinfo=UTC)})


def test_of_alternatives_in_protobuf_the_last_one_counts_without_a_look_at_the_others() -> None:
    """All fields of the schema were gone over for each part of a value: one of 1 MB took 15 s."""
    names = ("one", "two", "three")
    fields = (field(name, number, 5) + tagged(9, 0) for number, name in enumerate(names, 1))
    order = described("Order", *fields, field("many", 4, 5, label=3), field("alone", 5, 5))
    schema = protobuf.read_files([tagged(4, order) + tagged(12, b"proto3")])
    read = protobuf.message_reader(schema, ".Order")
    schema.messages[".Order"].fields.clear()
    sent = tagged(1, 7) + tagged(2, 8) + tagged(4, 6) + tagged(5, 3)
    assert read(sent) == (None, 8, None, [6], 3)
    assert read(sent + tagged(3, 1) + tagged(1, 9)) == (9, None, None, [6], 3)
    assert read(b"") == (None, None, None, [], 0)


def test_a_protobuf_of_another_message_is_told(folder: Path) -> None:
    decoder = protobuf_decoder(folder)
    with pytest.raises(Undecodable, match=r"it is a s\.Order\.Line, not a s\.Order"):
        decoder.decode(PREFIX_7 + zigzag(2) + zigzag(0) + zigzag(0))
    with pytest.raises(Undecodable, match=r"the schema has no message \[5\]"):
        decoder.decode(PREFIX_7 + zigzag(1) + zigzag(5))
    for data in (SENT[:-3], tagged(2, b"abc"), tagged(3, b"\xff"), tagged(3, 1), b"\x0f"):
        with pytest.raises(Undecodable):
            decoder.decode(PREFIX_7 + b"\0" + data)


@given(data=st.binary(max_size=60))
def test_no_bytes_of_protobuf_are_more_than_undecodable(
    data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "order.desc"
    path.write_bytes(tagged(1, FILE))
    decoder = decoder_for("protobuf", schema=str(path), registry=None, subject="")
    with pytest.raises(Undecodable):
        raise Undecodable(str(decoder.decode(data)))


# --- JSON -------------------------------------------------------------------------------------

COLUMNS = (
    t.StructType().add("id", "long").add("name", "string").add("price", "double")
    .add("small", "byte").add("at", "timestamp").add("tags", t.ArrayType(t.StringType()))
)  # fmt: skip


def test_json_with_columns_in_sql() -> None:
    decoder = decoder_for("json", schema=COLUMNS, registry=None, subject="")
    value = (
        b'{"id": 1, "name": {"a": 1}, "price": 2, "at": "2026-11-22T06:00Z", "tags": ["x", null]}'
    )
    at = datetime(2026, 11, 22, 6, tzinfo=UTC)
    assert decoder.decode(value) == (1, '{"a": 1}', 2.0, None, at, ["x", None])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "Expecting value"),
        (b"\xff", "decode"),
        (b"[]", r"\[\] is not an object"),
        (b'{"id": "x"}', 'field id: "x" is not a number of 64 bits'),
        (b'{"id": true}', "field id: true is not a number of 64 bits"),
        (b'{"small": 128}', "field small: 128 is not a number of 8 bits"),
        (b'{"price": NaN}', "NaN is no number"),
        (b'{"at": "soon"}', "field at: Invalid isoformat"),
        (b'{"tags": "x"}', 'field tags: "x" is not a list'),
    ],
)
def test_json_that_is_something_else(value: bytes, reason: str) -> None:
    decoder = decoder_for("json", schema=COLUMNS, registry=None, subject="")
    with pytest.raises(Undecodable, match=reason):
        decoder.decode(value)


def test_numbers_of_json_keep_their_digits() -> None:
    """An amount of money would come out as the nearest float."""
    columns = (
        t.StructType().add("amount", t.DecimalType(38, 18)).add("whole", "string")
        .add("inner", t.StructType().add("rate", t.DecimalType(20, 19))).add("x", "double")
    )  # fmt: skip
    decoder = decoder_for("json", schema=columns, registry=None, subject="")
    value = (
        b'{"amount": 12345678901234567890.123456789012345678, "x": 0.5,'
        b' "whole": {"a": [1.10, 1e400, true]}, "inner": {"rate": 0.1000000000000000055}}'
    )
    assert decoder.decode(value) == (
        Decimal("12345678901234567890.123456789012345678"),
        '{"a": [1.10, 1e400, true]}',
        (Decimal("0.1000000000000000055"),),
        0.5,
    )


@pytest.mark.parametrize(
    ("type", "token", "kept"),
    [
        (t.StringType(), "1.10", "1.10"),
        (t.StringType(), "-0", "-0"),
        (t.StringType(), "1.0E+05", "1.0E+05"),
        (t.StringType(), "9" * 5_000, "9" * 5_000),
        (t.StringType(), "1e99999999999999999999", "1e99999999999999999999"),
        (t.StringType(), '{"a":[1.10]}', '{"a": [1.10]}'),
        (
            t.DecimalType(38, 18),
            "12345678901234567.891",
            Decimal("12345678901234567.891" + "0" * 15),
        ),
        (t.DecimalType(38, 0), "9" * 38, Decimal("9" * 38)),
        (t.DecimalType(38, 38), "-0." + "9" * 38, Decimal("-0." + "9" * 38)),
        (t.DecimalType(5, 2), '"1.005"', Decimal("1.01")),
        # Java would be busy for minutes with it.
        (t.DecimalType(5, 2), "1e-99999999", Decimal("0.00")),
        (t.DecimalType(5, 2), "0e99999999", Decimal("0.00")),
    ],
)
def test_the_text_of_a_number_decides(type: t.DataType, token: str, kept: Any) -> None:
    """A field without a column must not be read as a number either."""
    columns = t.StructType().add("x", type)
    decoder = decoder_for("json", schema=columns, registry=None, subject="")
    [found] = decoder.decode(f'{{"x": {token}, "y": {token}}}'.encode())
    assert (str(found), found) == (str(kept), kept)


@pytest.mark.parametrize("digits", [10**38 - 1, 1 - 10**38, 12345678901234567890123456789012345678])
@pytest.mark.parametrize("scale", [0, 18, 38])
@pytest.mark.parametrize("base", ["bytes", "fixed"])
def test_decimals_of_avro_keep_all_their_digits(base: str, scale: int, digits: int) -> None:
    """They were rounded to 28."""
    amount = {"type": base, "name": "F", "size": 16, "logicalType": "decimal"}
    schema = record(("x", {**amount, "precision": 38, "scale": scale}))
    data = digits.to_bytes(16, "big", signed=True)
    [found] = read(schema, schema, (zigzag(16) if base == "bytes" else b"") + data)
    assert found.as_tuple() == Decimal(f"{digits}e-{scale}").as_tuple()


def test_defaults_of_avro_keep_all_their_digits() -> None:
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    default = (10**38 - 1).to_bytes(16, "big").decode("latin-1")
    [found] = read(record(), record(("x", amount, default)), b"")
    assert found == Decimal("9" * 36 + ".99")


@pytest.mark.parametrize(
    ("type", "meant"),
    [
        ({"type": "string", "logicalType": "decimal", "precision": 4}, t.StringType()),
        ({"type": "bytes", "logicalType": "decimal"}, t.BinaryType()),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, t.BinaryType()),
        ({"type": "long", "logicalType": "date"}, t.LongType()),
        ({"type": "bytes", "logicalType": ["decimal"]}, t.BinaryType()),
    ],
)
def test_a_logical_type_that_is_none_is_passed_over(type: Any, meant: t.DataType) -> None:
    """As the standard of Avro wants it; every value was a dead letter."""
    assert avro.spark_type(avro.parse(record(("x", type)))) == t.StructType().add("x", meant)


def test_a_decimal_that_spark_does_not_have_is_refused() -> None:
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 39}
    with pytest.raises(UnusableSchema, match="no decimals of 39 digits"):
        avro.spark_type(avro.parse(record(("x", amount))))


def test_columns_of_a_json_schema(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "price": {"type": ["null", "number"]},
            "line": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/line"}]},
            "any": {},
            "more": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "definitions": {"line": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    }
    (tmp_path / "s.json").write_text(json.dumps(schema))
    decoder = decoder_for("json", schema=str(tmp_path / "s.json"), registry=None, subject="")
    assert decoder.type.simpleString() == (
        "struct<id:bigint,price:double,line:struct<n:bigint>,any:string,"
        "more:map<string,boolean>,tags:array<string>>"
    )
    assert decoder.decode(b'{"line": {"n": 1}, "any": [1]}') == (
        None,
        None,
        (1,),
        "[1]",
        None,
        None,
    )


def test_a_json_schema_that_is_huge_once_its_names_are_replaced_is_refused() -> None:
    """As one of Avro is, and one of Protobuf."""
    places = [f"d{number}" for number in range(40)]
    schemas: dict[str, Any] = {
        name: {"properties": {each: {"$ref": f"#/$defs/{inner}"} for each in "ab"}}
        for name, inner in itertools.pairwise(places)
    }
    schema = {"$ref": "#/$defs/d0", "$defs": {**schemas, places[-1]: {"type": "integer"}}}
    with pytest.raises(UnusableSchema, match="more than 65536 types, which is too many"):
        jsons.spark_type(json.dumps(schema))


POISON = (
    t.StructType().add("price", t.DecimalType(5, 2)).add("at", "timestamp")
    .add("more", t.ArrayType(t.StructType().add("part", t.DecimalType(2, 2))))
)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"price": 1000}', "more than 3 digits"),
        (b'{"price": "999.995"}', "more than 3 digits"),
        (b'{"price": "1E+999999"}', "more than 3 digits"),
        (b'{"price": "Infinity"}', "is not a number"),
        (b'{"more": [{"part": "0.5"}, {"part": "1.0"}]}', "more than 0 digits"),
        (b'{"at": "0001-01-01T00:00:00+14:00"}', "out of the range"),
        (b'{"at": "9999-12-31T23:59:59-14:00"}', "out of the range"),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_what_spark_could_not_take_is_refused_here(value: bytes, reason: str) -> None:
    """The whole job ended for one value, at each start again."""
    decoder = decoder_for("json", schema=POISON, registry=None, subject="")
    with pytest.raises(Undecodable, match=reason):
        decoder.decode(value)


def test_what_spark_can_take_is_not() -> None:
    decoder = decoder_for("json", schema=POISON, registry=None, subject="")
    value = b'{"price": "999.99499", "at": "9999-12-31T23:59:59Z", "more": [{"part": 0}, null]}'
    at = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert decoder.decode(value) == (Decimal("999.99"), at, [(Decimal(0),), None])
    assert decoder.decode(b"{}") == (None, None, None)
