"""Protobuf's binary form, read by the descriptors that `protoc` and registries give out.

A descriptor is itself a message, so the reader of messages reads them too: no package is needed.
Types are those of Spark's own Protobuf package, but that unsigned numbers get a type that holds
them: `uint32` is a long, `uint64` a decimal.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import types as t

from pyspark_odradek.formats.bytestream import ByteStream
from pyspark_odradek.formats.errors import Undecodable, UnusableSchema

Wire = int | bytes
# What stands for a number on the wire: varint, eight bytes, length and bytes, four bytes.
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_REPEATED: Final = 3
_MESSAGE, _ENUM = 11, 14
_TIMESTAMP: Final = ".google.protobuf.Timestamp"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UINT64: Final = t.DecimalType(20, 0)


def _signed(value: Wire, bits: int = 64) -> int:
    number = int(value) & ((1 << bits) - 1)
    return number - (1 << bits) if number >> (bits - 1) else number


def _zigzag(value: Wire) -> int:
    return (int(value) >> 1) ^ -(int(value) & 1)


def _unpacked(layout: str) -> Callable[[Wire], Any]:
    size = struct.Struct(f"<{layout}")
    return lambda value: size.unpack(bytes(value))[0]


def _text(value: Wire) -> str:
    data = bytes(value)
    return ByteStream(data).text(data)


@dataclass(frozen=True)
class _Scalar:
    """How a type of FieldDescriptorProto is on the wire and in a table."""

    wire: int
    type: t.DataType
    read: Callable[[Wire], Any]
    zero: Any = 0


_SCALARS: Final[dict[int, _Scalar]] = {
    1: _Scalar(_EIGHT, t.DoubleType(), _unpacked("d"), 0.0),
    2: _Scalar(_FOUR, t.FloatType(), _unpacked("f"), 0.0),
    3: _Scalar(_VARINT, t.LongType(), _signed),
    4: _Scalar(_VARINT, _UINT64, lambda value: Decimal(int(value)), Decimal(0)),
    5: _Scalar(_VARINT, t.IntegerType(), lambda value: _signed(value, 32)),
    6: _Scalar(_EIGHT, _UINT64, lambda value: Decimal(_unpacked("Q")(value)), Decimal(0)),
    7: _Scalar(_FOUR, t.LongType(), _unpacked("I")),
    8: _Scalar(_VARINT, t.BooleanType(), bool, False),
    9: _Scalar(_BYTES, t.StringType(), _text, ""),
    12: _Scalar(_BYTES, t.BinaryType(), bytes, b""),
    13: _Scalar(_VARINT, t.LongType(), lambda value: int(value) & 0xFFFFFFFF),
    15: _Scalar(_FOUR, t.IntegerType(), _unpacked("i")),
    16: _Scalar(_EIGHT, t.LongType(), _unpacked("q")),
    17: _Scalar(_VARINT, t.IntegerType(), _zigzag),
    18: _Scalar(_VARINT, t.LongType(), _zigzag),
}


@dataclass
class _Field:
    number: int
    name: str
    kind: int
    type_name: str
    is_repeated: bool
    # Whether a value that is not there is told from one that is zero.
    has_presence: bool


@dataclass
class _Message:
    fields: list[_Field]
    is_map_entry: bool


@dataclass
class Descriptors:
    """The messages and enums of a schema, by full names that begin with a dot.

    `order` has the messages of the schema's own file as the prefix counts them.
    """

    messages: dict[str, _Message] = field(default_factory=dict)
    enums: dict[str, dict[int, str]] = field(default_factory=dict)
    order: dict[tuple[int, ...], str] = field(default_factory=dict)

    def name_at(self, indexes: tuple[int, ...]) -> str:
        """The message at a place in the file: the indexes of a registry's prefix.

        Raises:
            Undecodable: there is none.
        """
        if indexes not in self.order:
            raise Undecodable(f"the schema has no message {list(indexes)}")
        return self.order[indexes]


def read_set(data: bytes) -> Descriptors:
    """A FileDescriptorSet, what `protoc --descriptor_set_out --include_imports` writes.

    Raises:
        UnusableSchema: it is none.
    """
    return _guarded(lambda: [bytes(file) for number, file in _fields(data) if number == 1])


def read_files(files: Sequence[bytes]) -> Descriptors:
    """FileDescriptorProtos, those that others import first.

    Raises:
        UnusableSchema: they are none.
    """
    return _guarded(lambda: files)


def _guarded(files: Callable[[], Sequence[bytes]]) -> Descriptors:
    found = Descriptors()
    try:
        for file in files():
            _read_file(file, found)
    except (Undecodable, TypeError, ValueError) as error:
        raise UnusableSchema(f"this is no descriptor of Protobuf: {error}") from None
    if not found.order:
        raise UnusableSchema("this descriptor of Protobuf has no message")
    return found


def _read_file(data: bytes, into: Descriptors) -> None:
    parts = list(_fields(data))
    package = "".join(_text(value) for number, value in parts if number == 2)
    syntax = "".join(_text(value) for number, value in parts if number == 12)
    prefix = f".{package}" if package else ""
    into.order = {}
    messages = [bytes(value) for number, value in parts if number == 4]
    for place, message in enumerate(messages):
        _read_message(message, prefix, (place,), syntax == "proto3", into)
    for number, value in parts:
        if number == 5:
            _read_enum(bytes(value), prefix, into)


def _read_message(
    data: bytes, prefix: str, place: tuple[int, ...], is_proto3: bool, into: Descriptors
) -> None:
    parts = list(_fields(data))
    name = f"{prefix}.{''.join(_text(value) for number, value in parts if number == 1)}"
    options = [dict(_fields(bytes(value))) for number, value in parts if number == 7]
    fields = [_read_field(bytes(value), is_proto3) for number, value in parts if number == 2]
    into.messages[name] = _Message(fields, any(each.get(7) for each in options))
    into.order[place] = name
    nested = [bytes(value) for number, value in parts if number == 3]
    for number, each in enumerate(nested):
        _read_message(each, name, (*place, number), is_proto3, into)
    for number, value in parts:
        if number == 4:
            _read_enum(bytes(value), name, into)


def _read_field(data: bytes, is_proto3: bool) -> _Field:
    parts = dict(_fields(data))
    return _Field(
        number=int(parts[3]),
        name=_text(parts[1]),
        kind=int(parts[5]),
        type_name=_text(parts.get(6, b"")),
        is_repeated=parts.get(4) == _REPEATED,
        has_presence=not is_proto3 or 9 in parts or bool(parts.get(17)),
    )


def _read_enum(data: bytes, prefix: str, into: Descriptors) -> None:
    parts = list(_fields(data))
    name = "".join(_text(value) for number, value in parts if number == 1)
    values = [dict(_fields(bytes(value))) for number, value in parts if number == 2]
    into.enums[f"{prefix}.{name}"] = {
        _signed(each.get(2, 0), 32): _text(each[1]) for each in values
    }


def _fields(data: bytes) -> Iterator[tuple[int, Wire]]:
    """The fields of a message as they are on the wire; groups have ended with the last century."""
    stream = ByteStream(data)
    while not stream.is_at_end:
        tag = stream.varint()
        number, wire = tag >> 3, tag & 7
        match wire:
            case 0:
                yield number, stream.varint()
            case 1:
                yield number, stream.take(8)
            case 2:
                yield number, stream.take(stream.varint())
            case 5:
                yield number, stream.take(4)
            case _:
                raise Undecodable(f"field {number} has a form that there is not: {wire}")


def spark_type(schema: Descriptors, name: str, inside: tuple[str, ...] = ()) -> t.StructType:
    """The type of a column for a message.

    Raises:
        UnusableSchema: it contains itself, which no table can, or something that is not there.
    """
    if name in inside:
        raise UnusableSchema(f"message {name[1:]} contains itself, which no table can")
    if name not in schema.messages:
        raise UnusableSchema(f"message {name[1:]} is not in the schema: does it import others?")
    within = (*inside, name)
    return t.StructType(
        [
            t.StructField(each.name, _field_type(schema, each, within))
            for each in schema.messages[name].fields
        ]
    )


def _field_type(schema: Descriptors, each: _Field, inside: tuple[str, ...]) -> t.DataType:
    single: t.DataType
    if each.kind == _MESSAGE and each.type_name == _TIMESTAMP:
        single = t.TimestampType()
    elif each.kind == _MESSAGE:
        entry = schema.messages.get(each.type_name)
        if entry is not None and entry.is_map_entry:
            key, value = (_field_type(schema, one, inside) for one in entry.fields)
            return t.MapType(key, value)
        single = spark_type(schema, each.type_name, inside)
    elif each.kind == _ENUM:
        single = t.StringType()
    elif each.kind in _SCALARS:
        single = _SCALARS[each.kind].type
    else:
        raise UnusableSchema(f"field {each.name} is a group, which is not supported")
    return t.ArrayType(single) if each.is_repeated else single


def message_reader(schema: Descriptors, name: str) -> Callable[[bytes], tuple[Any, ...]]:
    """The function that reads a message as a row.

    Whoever wrote it may have had another version: fields are the same by their numbers, and
    what this one does not know is passed over.
    """
    fields = schema.messages[name].fields
    places = {each.number: place for place, each in enumerate(fields)}
    readers = [_value_reader(schema, each) for each in fields]

    def read(data: bytes) -> tuple[Any, ...]:
        row: list[Any] = [_absent(schema, each) for each in fields]
        for number, value in _fields(data):
            place = places.get(number)
            if place is None:
                continue
            found = readers[place](value)
            if not fields[place].is_repeated:
                row[place] = found[-1]
            elif isinstance(row[place], dict):
                row[place].update(found)
            else:
                row[place].extend(found)
        return tuple(row)

    return read


def _absent(schema: Descriptors, each: _Field) -> Any:
    if each.is_repeated:
        entry = schema.messages.get(each.type_name)
        return {} if entry is not None and entry.is_map_entry else []
    if each.has_presence or each.kind == _MESSAGE:
        return None
    if each.kind == _ENUM:
        return schema.enums.get(each.type_name, {}).get(0, "0")
    return _SCALARS[each.kind].zero


def _value_reader(schema: Descriptors, each: _Field) -> Callable[[Wire], list[Any]]:
    """Gives all values of one occurrence: of a packed field that can be many."""
    if each.kind == _MESSAGE:
        return _submessage_reader(schema, each)
    if each.kind == _ENUM:
        names = schema.enums.get(each.type_name, {})
        # A symbol that came later is told by its number.
        scalar = _Scalar(
            _VARINT,
            t.StringType(),
            lambda value: names.get(_signed(value, 32), str(_signed(value, 32))),
        )
    else:
        scalar = _SCALARS[each.kind]
    is_number = scalar.wire == _VARINT

    def read(value: Wire) -> list[Any]:
        if scalar.wire != _BYTES and isinstance(value, bytes) and each.is_repeated:
            size = {_EIGHT: 8, _FOUR: 4}.get(scalar.wire)
            if is_number or len(value) != size:
                return [scalar.read(one) for one in _packed(value, size)]
        if is_number != isinstance(value, int):
            raise Undecodable(f"field {each.name} has another type than in the schema")
        try:
            return [scalar.read(value)]
        except struct.error:
            raise Undecodable(f"field {each.name} has another size than in the schema") from None

    return read


def _packed(data: bytes, size: int | None) -> Iterator[Wire]:
    stream = ByteStream(data)
    while not stream.is_at_end:
        yield stream.varint() if size is None else stream.take(size)


def _submessage_reader(schema: Descriptors, each: _Field) -> Callable[[Wire], list[Any]]:
    if each.type_name == _TIMESTAMP:
        return lambda value: [_time(bytes(value))]
    inner = message_reader(schema, each.type_name)

    def read(value: Wire) -> list[Any]:
        if not isinstance(value, bytes):
            raise Undecodable(f"field {each.name} has another type than in the schema")
        return [inner(value)]

    return read


def _time(data: bytes) -> datetime:
    parts = dict(_fields(data))
    microseconds = _signed(parts.get(2, 0), 32) // 1000
    return _EPOCH + timedelta(seconds=_signed(parts.get(1, 0)), microseconds=microseconds)
