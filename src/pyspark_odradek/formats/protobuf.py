"""Protobuf's binary encoding, read by the descriptors that `protoc` and registries provide.

A descriptor is itself a message, so the reader of messages reads it too: no package is needed.
Types are the same as in Spark's own Protobuf package, except that unsigned numbers get a type that
holds them: `uint32` is a long, `uint64` a decimal.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import types as t

from pyspark_odradek.formats import limits
from pyspark_odradek.formats.bytestream import ByteStream
from pyspark_odradek.formats.errors import Undecodable, UnusableSchema

Wire = int | bytes
Part = tuple[int, int, Wire]
ReadParts = Callable[[list[Part]], Any]
# The wire types: varint, eight bytes, length and bytes, four bytes.
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_SIZES: Final = {_EIGHT: 8, _FOUR: 4}
_LAST_FIELD: Final = (1 << 29) - 1
_REQUIRED, _REPEATED = 2, 3
_MESSAGE, _ENUM = 11, 14
_TIMESTAMP: Final = ".google.protobuf.Timestamp"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS: Final = 1_000_000_000
_UINT64: Final = t.DecimalType(20, 0)


def _signed(value: Wire, bits: int = 64) -> int:
    number = int(value) & ((1 << bits) - 1)
    return number - (1 << bits) if number >> (bits - 1) else number


def _zigzag(value: Wire, bits: int = 64) -> int:
    number = int(value) & ((1 << bits) - 1)
    return (number >> 1) ^ -(number & 1)


def _unpacked(layout: str) -> Callable[[Wire], Any]:
    size = struct.Struct(f"<{layout}")
    return lambda value: size.unpack(bytes(value))[0]


def _text(value: Wire) -> str:
    data = bytes(value)
    return ByteStream(data).text(data)


@dataclass(frozen=True)
class _Scalar:
    """The wire and table forms of a type of FieldDescriptorProto."""

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
    17: _Scalar(_VARINT, t.IntegerType(), lambda value: _zigzag(value, 32)),
    18: _Scalar(_VARINT, t.LongType(), _zigzag),
}


@dataclass
class _Field:
    number: int
    name: str
    kind: int
    type_name: str
    label: int
    # Whether a missing value is distinguished from zero.
    has_presence: bool
    # The number of the alternatives of which it is one, if it is.
    choice: int | None

    @property
    def is_repeated(self) -> bool:
        return self.label == _REPEATED


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
        """Returns the name of the message at the indexes of a registry's prefix.

        Raises:
            Undecodable: there is none.
        """
        if indexes not in self.order:
            raise Undecodable(f"the schema has no message {list(indexes)}")
        return self.order[indexes]


def read_set(data: bytes) -> Descriptors:
    """Reads a FileDescriptorSet, which `protoc --descriptor_set_out --include_imports` writes.

    Raises:
        UnusableSchema: it is malformed.
    """
    return _guarded(lambda: _Parts(data).messages(1))


def read_files(files: Sequence[bytes]) -> Descriptors:
    """Reads FileDescriptorProtos, imported ones first.

    Raises:
        UnusableSchema: one is malformed.
    """
    return _guarded(lambda: files)


def _guarded(files: Callable[[], Sequence[bytes]]) -> Descriptors:
    found = Descriptors()
    try:
        for file in files():
            _read_file(file, found)
    except (Undecodable, RecursionError) as error:
        raise UnusableSchema(f"this is no descriptor of Protobuf: {error}") from None
    if not found.order:
        raise UnusableSchema("this descriptor of Protobuf has no message")
    return found


class _Parts:
    """The fields of a part of a descriptor, by their numbers."""

    def __init__(self, data: bytes) -> None:
        self._parts: Final = list(_fields(data))

    def messages(self, number: int) -> list[bytes]:
        """Returns all occurrences of a bytes field."""
        return [data for data in self._all(number) if isinstance(data, bytes)]

    def text(self, number: int) -> str:
        """Returns a string field, or "" if it is missing."""
        return _text((self.messages(number) or [b""])[-1])

    def number(self, number: int, absent: int = 0) -> int:
        """Returns a number field, or `absent` if it is missing."""
        found = [value for value in self._all(number) if isinstance(value, int)]
        return found[-1] if found else absent

    def has(self, number: int) -> bool:
        """Whether a field was written."""
        return bool(self._all(number))

    def _all(self, number: int) -> list[Wire]:
        return [value for each, _, value in self._parts if each == number]


def _read_file(data: bytes, into: Descriptors) -> None:
    parts = _Parts(data)
    package, is_proto3 = parts.text(2), parts.text(12) == "proto3"
    prefix = f".{package}" if package else ""
    into.order = {}
    for place, message in enumerate(parts.messages(4)):
        _read_message(message, prefix, (place,), is_proto3, into)
    for enum in parts.messages(5):
        _read_enum(enum, prefix, into)


def _read_message(
    data: bytes, prefix: str, place: tuple[int, ...], is_proto3: bool, into: Descriptors
) -> None:
    parts = _Parts(data)
    name = f"{prefix}.{parts.text(1)}"
    is_map_entry = any(_Parts(options).number(7) for options in parts.messages(7))
    # A missing part of a map's entry is zero, in any Protobuf.
    has_zeros = is_proto3 or is_map_entry
    fields = [_read_field(each, has_zeros) for each in parts.messages(2)]
    into.messages[name] = _Message(fields, is_map_entry)
    into.order[place] = name
    for number, nested in enumerate(parts.messages(3)):
        _read_message(nested, name, (*place, number), is_proto3, into)
    for enum in parts.messages(4):
        _read_enum(enum, name, into)


def _read_field(data: bytes, has_zeros: bool) -> _Field:
    parts = _Parts(data)
    # In proto3 an optional field is the only member of a oneof.
    choice = parts.number(9) if parts.has(9) and not parts.number(17) else None
    return _Field(
        number=parts.number(3),
        name=parts.text(1),
        kind=parts.number(5),
        type_name=parts.text(6),
        label=parts.number(4),
        has_presence=not has_zeros or parts.has(9) or bool(parts.number(17)),
        choice=choice,
    )


def _read_enum(data: bytes, prefix: str, into: Descriptors) -> None:
    parts = _Parts(data)
    values = map(_Parts, parts.messages(2))
    into.enums[f"{prefix}.{parts.text(1)}"] = {
        _signed(each.number(2), 32): each.text(1) for each in values
    }


def _fields(data: bytes) -> Iterator[Part]:
    """Yields the fields of a message from the wire: number, wire type and value; groups are not
    supported.
    """
    stream = ByteStream(data)
    while not stream.is_at_end:
        tag = stream.varint()
        number, wire = tag >> 3, tag & 7
        if not 0 < number <= _LAST_FIELD:
            raise Undecodable(f"there is no field {number}")
        match wire:
            case 0:
                yield number, wire, stream.varint()
            case 1 | 5:
                yield number, wire, stream.take(_SIZES[wire])
            case 2:
                yield number, wire, stream.take(stream.varint())
            case _:
                raise Undecodable(f"field {number} has an unknown wire type: {wire}")


def spark_type(schema: Descriptors, name: str) -> t.StructType:
    """Returns the type of a column for a message.

    Raises:
        UnusableSchema: it contains itself, which no table can, or an unknown type, or too many
            types.
    """
    return _message_type(schema, name, (), limits.TypeCount())


def _message_type(
    schema: Descriptors, name: str, inside: tuple[str, ...], count: limits.TypeCount
) -> t.StructType:
    if name in inside:
        raise UnusableSchema(f"message {name[1:]} contains itself, which no table can")
    if name not in schema.messages:
        raise UnusableSchema(f"message {name[1:]} is not in the schema: does it import others?")
    within = (*inside, name)
    return t.StructType(
        [
            t.StructField(each.name, _field_type(schema, each, within, count))
            for each in schema.messages[name].fields
        ]
    )


def _field_type(
    schema: Descriptors, each: _Field, inside: tuple[str, ...], count: limits.TypeCount
) -> t.DataType:
    count.add()
    single: t.DataType
    if each.kind == _MESSAGE and each.type_name == _TIMESTAMP:
        single = t.TimestampType()
    elif each.kind == _MESSAGE:
        entry = schema.messages.get(each.type_name)
        if entry is not None and entry.is_map_entry:
            key, value = (_field_type(schema, one, inside, count) for one in entry.fields)
            return t.MapType(key, value)
        single = _message_type(schema, each.type_name, inside, count)
    elif each.kind == _ENUM:
        single = t.StringType()
    elif each.kind in _SCALARS:
        single = _SCALARS[each.kind].type
    else:
        raise UnusableSchema(f"field {each.name} is a group, which is not supported")
    return t.ArrayType(single) if each.is_repeated else single


def message_reader(schema: Descriptors, name: str) -> Callable[[bytes], tuple[Any, ...]]:
    """Returns the function that reads a message as a row.

    The writer may have had another version: fields are identified by their numbers, and unknown
    ones are ignored.
    """
    message = schema.messages[name]
    places = {each.number: place for place, each in enumerate(message.fields)}
    choices = [each.choice for each in message.fields]
    readers = [_reader(schema, each) for each in message.fields]
    absent = [
        _absent(schema, each, message, reader)
        for each, reader in zip(message.fields, readers, strict=True)
    ]

    def read(data: bytes) -> tuple[Any, ...]:
        found = _occurrences(data, places, choices)
        return tuple(
            reader(parts) if parts else zero()
            for reader, parts, zero in zip(readers, found, absent, strict=True)
        )

    return read


def _occurrences(
    data: bytes, places: dict[int, int], choices: list[int | None]
) -> list[list[Part]]:
    """Returns the occurrences of fields by their column; of a oneof the last one written counts."""
    found: list[list[Part]] = [[] for _ in choices]
    chosen: dict[int, int] = {}
    for part in _fields(data):
        place = places.get(part[0])
        if place is None:
            continue
        choice = choices[place]
        if choice is not None:
            if (before := chosen.get(choice, place)) != place:
                found[before].clear()
            chosen[choice] = place
        found[place].append(part)
    return found


def _absent(
    schema: Descriptors, each: _Field, message: _Message, reader: ReadParts
) -> Callable[[], Any]:
    """Returns the value of a field that was not written."""
    if each.label == _REQUIRED:
        return lambda: _fail(f"field {each.name} is required and not there")
    if each.is_repeated or (message.is_map_entry and each.kind == _MESSAGE):
        return lambda: reader([])  # none, or the message of which nothing was written
    if each.has_presence or each.kind == _MESSAGE:
        return lambda: None
    zero = _zero(schema, each)
    return lambda: zero


def _zero(schema: Descriptors, each: _Field) -> Any:
    if each.kind == _ENUM:
        return next(iter(schema.enums.get(each.type_name, {}).values()), "0")
    return _SCALARS[each.kind].zero


def _fail(why: str) -> Any:
    raise Undecodable(why)


def _reader(schema: Descriptors, each: _Field) -> ReadParts:
    """Returns the function that makes the value of a field from all its occurrences."""
    if each.kind != _MESSAGE:
        return _scalar_reader(each, _scalar_of(schema, each))
    inner: Callable[[bytes], Any] = (
        _time if each.type_name == _TIMESTAMP else message_reader(schema, each.type_name)
    )
    entry = schema.messages.get(each.type_name)
    if entry is not None and entry.is_map_entry:
        return lambda parts: dict(inner(_bytes_of(each, part)) for part in parts)
    if each.is_repeated:
        return lambda parts: [inner(_bytes_of(each, part)) for part in parts]
    # Parts of one message, one behind the other, are the message.
    return lambda parts: inner(b"".join(_bytes_of(each, part) for part in parts))


def _bytes_of(each: _Field, part: Part) -> bytes:
    _, wire, data = part
    if wire != _BYTES or not isinstance(data, bytes):
        raise Undecodable(f"field {each.name} has another type than in the schema")
    return data


def _scalar_of(schema: Descriptors, each: _Field) -> _Scalar:
    if each.kind != _ENUM:
        return _SCALARS[each.kind]
    names = schema.enums.get(each.type_name, {})
    # An unknown symbol is shown as its number.
    return _Scalar(
        _VARINT,
        t.StringType(),
        lambda value: names.get(_signed(value, 32), str(_signed(value, 32))),
    )


def _scalar_reader(each: _Field, scalar: _Scalar) -> ReadParts:
    def values(part: Part) -> list[Any]:
        _, wire, value = part
        if wire == scalar.wire:
            return [scalar.read(value)]
        if wire == _BYTES and each.is_repeated:
            return [scalar.read(one) for one in _packed(bytes(value), _SIZES.get(scalar.wire))]
        raise Undecodable(f"field {each.name} has another type than in the schema")

    if each.is_repeated:
        return lambda parts: [value for part in parts for value in values(part)]
    return lambda parts: values(parts[-1])[0]


def _packed(data: bytes, size: int | None) -> Iterator[Wire]:
    stream = ByteStream(data)
    while not stream.is_at_end:
        yield stream.varint() if size is None else stream.take(size)


def _time(data: bytes) -> datetime:
    """A `google.protobuf.Timestamp`: seconds, and nanoseconds that are counted forwards."""
    seconds = nanoseconds = 0
    for number, wire, value in _fields(data):
        if number in (1, 2) and wire != _VARINT:
            raise Undecodable("a time has seconds or nanoseconds that are no numbers")
        if number == 1:
            seconds = _signed(value)
        elif number == 2:
            nanoseconds = _signed(value, 32)
    if not 0 <= nanoseconds < _NANOSECONDS:
        raise Undecodable(f"{nanoseconds} nanoseconds are no part of a second")
    return _EPOCH + timedelta(seconds=seconds, microseconds=nanoseconds // 1000)
