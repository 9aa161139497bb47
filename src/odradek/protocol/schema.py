"""Decodes Kafka's own records by a table of their fields, into JSON-shaped values.

For tools: they show every field of every version under Kafka's own name, in Kafka's order. Code
that acts on such a record decodes it into its own type instead. A `Schema` follows Kafka's message
definitions; tagged fields appear only when they were written.

    int8 int16 uint16 int32 int64   numbers        uuid   22 characters, URL-safe base64
    float64                         a number       bool   true or false
    string                          text           bytes  base64
    struct                          an object of `fields`; []X is an array of X
"""

import base64
import struct
from typing import Final, NamedTuple, TypeAlias, cast
from uuid import UUID

from odradek.protocol.primitives import ProtocolError, Reader
from odradek.protocol.uuids import uuid_text

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_NEVER: Final = 0x7FFF
_INT64: Final = struct.Struct(">q")
_FLOAT64: Final = struct.Struct(">d")


class Field(NamedTuple):
    """A field, there from version `since` to `until`; a `tag` makes it a tagged one. Only writers
    use its `default`."""

    name: str
    type: str
    since: int = 0
    until: int = _NEVER
    tag: int | None = None
    fields: tuple["Field", ...] = ()
    default: bool | int | None = None


class Schema(NamedTuple):
    """The fields of a record; lengths are compact from version `flexible_since` on."""

    name: str
    fields: tuple[Field, ...]
    last_version: int = 0
    flexible_since: int = _NEVER


def decode(schema: Schema, version: int, data: bytes, position: int = 0) -> dict[str, Json]:
    """The fields of the record that begins at `position`, behind its version.

    Raises:
        ProtocolError: the version is unknown, or the bytes are not what it promises.
    """
    if not 0 <= version <= schema.last_version:
        raise ProtocolError(f"{schema.name} has no version {version}", position)
    reader = Reader(memoryview(data), position)
    return _struct(reader, schema.fields, version, version >= schema.flexible_since)


def _struct(
    reader: Reader, fields: tuple[Field, ...], version: int, flexible: bool
) -> dict[str, Json]:
    values: dict[str, Json] = {}
    present = [field for field in fields if field.since <= version <= field.until]
    for field in present:
        if field.tag is None:
            values[field.name] = _value(reader, field.type, field, version, flexible)
    if not flexible:
        return values
    tagged = {field.tag: field for field in present if field.tag is not None}
    for _ in range(reader.tag_count()):
        tagged_field = tagged.get(reader.uvarint())
        if tagged_field is None:
            reader.skip_tagged_field()
            continue
        end = reader.tagged_end()
        kind = tagged_field.type
        # A tagged object says first whether it is null.
        is_null = kind == "struct" and reader.uvarint() == 0
        shown = None if is_null else _value(reader, kind, tagged_field, version, flexible)
        values[tagged_field.name] = shown
        reader.check_at(end)
    order = {field.name: index for index, field in enumerate(present)}
    return dict(sorted(values.items(), key=lambda item: order[item[0]]))


def _value(reader: Reader, kind: str, field: Field, version: int, flexible: bool) -> Json:
    if kind.startswith("[]"):
        count = reader.nullable_array_length(flexible, 1)
        if count < 0:
            return None
        return [_value(reader, kind[2:], field, version, flexible) for _ in range(count)]
    if kind == "struct":
        return _struct(reader, field.fields, version, flexible)
    if kind == "string":
        return reader.nullable_string(flexible)
    if kind == "bytes":
        data = reader.nullable_bytes(flexible)
        return None if data is None else base64.b64encode(data).decode()
    if kind == "uuid":
        value = reader.uuid()
        return uuid_text(value or UUID(int=0))
    if kind == "bool":
        return reader.int8() != 0
    if kind == "float64":
        return cast(float, _FLOAT64.unpack(_INT64.pack(reader.int64()))[0])
    return _number(reader, kind)


def _number(reader: Reader, kind: str) -> int:
    if kind == "int8":
        return reader.int8()
    if kind == "int16":
        return reader.int16()
    if kind == "uint16":
        return reader.int16() & 0xFFFF
    if kind == "int32":
        return reader.int32()
    assert kind == "int64", f"no type is called {kind}"
    return reader.int64()
