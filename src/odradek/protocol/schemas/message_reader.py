"""Reads a message into one of kio's classes, by the schema that the class carries.

kio comes with a faster reader, which sets memory aside for as many elements as an array claims to
have: a request of thirty bytes that announces two thousand million topics ends the whole process.
Bytes from the network are therefore read here, with the bounds of `Reader`; a count is refused
unless that many elements could fit in the bytes that are left.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from struct import Struct
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from odradek.protocol.primitives import ProtocolError, Reader
from odradek.protocol.schemas.message_schemas import KioErrorCode

_Read = Callable[[Reader], Any]

_INT64: Final = Struct(">q")
_DOUBLE: Final = Struct(">d")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_MS: Final = timedelta.max // timedelta(milliseconds=1)
_ELEMENT_BYTES: Final = 1
_ERROR_CODES: Final = {int(code): code for code in KioErrorCode}


def read_message(message_type: Any, frame: memoryview, position: int) -> Any:
    """Reads a message that begins at `position`. Bytes behind it are ignored, as Kafka does.

    Raises:
        ProtocolError: it is malformed.
    """
    try:
        return _structure(message_type)(Reader(frame, position))
    except (ValueError, OverflowError) as error:  # a duration, a moment
        raise ProtocolError(f"not a {message_type.__name__}: {error}", position) from error


@lru_cache(maxsize=2048)
def _structure(message_type: Any) -> _Read:
    flexible: bool = message_type.__flexible__
    plain: list[tuple[str, _Read]] = []
    tagged: dict[int, tuple[str, _Read]] = {}
    defaults: dict[str, object] = {}
    for field in fields(message_type):
        read_field = _field(field, flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = field.name, read_field
            assert field.default is not MISSING, f"{field.name} is tagged and has no default"
            defaults[field.name] = field.default
        else:
            plain.append((field.name, read_field))

    def read(reader: Reader) -> Any:
        values = {name: read_field(reader) for name, read_field in plain}
        if flexible:
            values.update(defaults)
            _read_tags(reader, tagged, values)
        return message_type(**values)

    return read


def _read_tags(
    reader: Reader, tagged: dict[int, tuple[str, _Read]], values: dict[str, object]
) -> None:
    for _ in range(reader.tag_count()):
        tag = reader.uvarint()
        if tag not in tagged:
            reader.skip_tagged_field()
            continue
        name, read_field = tagged[tag]
        end = reader.tagged_end()
        values[name] = read_field(reader)
        reader.check_at(end)


def _field(field: "Field[Any]", flexible: bool) -> _Read:
    annotation: Any = field.type
    nullable = False
    if get_origin(annotation) in (UnionType, Union):
        annotation = next(part for part in get_args(annotation) if part is not type(None))
        nullable = True
    kafka_type: str = field.metadata.get("kafka_type", "")
    if get_origin(annotation) is tuple:
        return _array(
            _value(get_args(annotation)[0], kafka_type, flexible, False), flexible, nullable
        )
    # A tagged field is null by being absent, so its value has no room for a null marker.
    structure_tagged = "tag" in field.metadata and not kafka_type
    return _value(annotation, kafka_type, flexible, nullable and not structure_tagged)


def _array(read_element: _Read, flexible: bool, nullable: bool) -> _Read:
    def read(reader: Reader) -> tuple[Any, ...] | None:
        count = reader.nullable_array_length(flexible, _ELEMENT_BYTES)
        if count < 0:
            if nullable:
                return None
            raise ProtocolError("null where an array is required", reader.position)
        return tuple([read_element(reader) for _ in range(count)])

    return read


def _value(annotation: Any, kafka_type: str, flexible: bool, nullable: bool) -> _Read:
    if hasattr(annotation, "__version__"):
        return _nullable_structure(annotation) if nullable else _structure(annotation)
    match kafka_type:
        case "string" if nullable:
            return lambda reader: reader.nullable_string(flexible)
        case "string":
            return lambda reader: reader.string(flexible)
        case "bytes" | "records":
            return lambda reader: _bytes(reader, flexible, nullable)
        case _:
            return _FIXED[kafka_type]


def _nullable_structure(message_type: Any) -> _Read:
    """A structure behind a byte that is negative for null (KIP-893)."""
    read_structure = _structure(message_type)
    return lambda reader: None if reader.int8() < 0 else read_structure(reader)


def _bytes(reader: Reader, flexible: bool, nullable: bool) -> bytes | None:
    data = reader.nullable_bytes(flexible)
    if data is None and not nullable:
        raise ProtocolError("null where bytes are required", reader.position)
    return None if data is None else bytes(data)


def _error_code(reader: Reader) -> KioErrorCode:
    """A code; one that is newer than the table is an unknown error, as to Kafka's own readers."""
    return _ERROR_CODES.get(reader.int16(), KioErrorCode.unknown_server_error)


def _duration(reader: Reader) -> timedelta:
    """Reads a duration; one that is too long for Python, a client's "for ever", is cut."""
    return timedelta(milliseconds=max(-_LONGEST_MS, min(reader.int64(), _LONGEST_MS)))


def _moment(reader: Reader) -> datetime | None:
    value_ms = reader.int64()
    return None if value_ms < 0 else _EPOCH + timedelta(milliseconds=value_ms)


_FIXED: dict[str, _Read] = {
    "int8": Reader.int8,
    "int16": Reader.int16,
    "int32": Reader.int32,
    "int64": Reader.int64,
    "uint8": lambda reader: reader.int8() & 0xFF,
    "uint16": lambda reader: reader.int16() & 0xFFFF,
    "uint32": lambda reader: reader.int32() & 0xFFFFFFFF,
    "float64": lambda reader: _DOUBLE.unpack(_INT64.pack(reader.int64()))[0],
    "bool": Reader.boolean,
    "uuid": Reader.uuid,
    "error_code": _error_code,
    "timedelta_i32": lambda reader: timedelta(milliseconds=reader.int32()),
    "timedelta_i64": _duration,
    "datetime_i64": _moment,
}
