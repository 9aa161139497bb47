"""Writes a message from plain values, by the schema that one of kio's classes carries.

Structures are dictionaries, error codes and enums are numbers, a duration is `NAME_ms` in
milliseconds. A field that the version does not have is left out; a missing value is Kafka's
default, or else zero, empty or null. A name that no version of the message knows is a mistake of
the caller and is asserted.

kio's own writer wants instances of its classes and takes two to three times as long: it shows when
Metadata lists ten thousand partitions on the event loop.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import timedelta
from functools import lru_cache
from struct import Struct
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from odradek.protocol.primitives import Writer
from odradek.protocol.schemas.message_classes import EVERY_NAME
from odradek.protocol.schemas.message_schemas import (
    api_key_map,
    load_request_schema,
    load_response_schema,
    schema_name_map,
)

_Write = Callable[[Writer, Any], None]
_Values = Mapping[str, Any]

_DOUBLE: Final = Struct(">d")
_MILLISECOND: Final = timedelta(milliseconds=1)


def write_message(message_type: Any, values: _Values) -> bytes:
    """The bytes of a message of the given class.

    Raises:
        AssertionError: a name is in no version of this message.
    """
    writer = Writer()
    _structure(message_type)(writer, values)
    return writer.to_bytes()


@lru_cache(maxsize=2048)
def _structure(message_type: Any) -> _Write:
    flexible: bool = message_type.__flexible__
    plain: list[tuple[str, _Write, Any]] = []
    tagged: list[tuple[int, str, _Write, Any]] = []
    for field in fields(message_type):
        key, write_field, default = _field(field, flexible)
        if "tag" in field.metadata:
            tagged.append((field.metadata["tag"], key, write_field, default))
        else:
            plain.append((key, write_field, default))
    tagged.sort(key=lambda entry: entry[0])
    known = frozenset(entry[0] for entry in plain) | {entry[1] for entry in tagged}

    def write(writer: Writer, values: _Values) -> None:
        if not known.issuperset(values):
            _check_names(message_type, values)
        for key, write_field, default in plain:
            write_field(writer, values.get(key, default))
        if flexible:
            _write_tags(writer, tagged, values)

    return write


def _write_tags(
    writer: Writer, tagged: list[tuple[int, str, _Write, Any]], values: _Values
) -> None:
    given = [entry for entry in tagged if values.get(entry[1], entry[3]) != entry[3]]
    writer.uvarint(len(given))
    for tag, key, write_field, _ in given:
        value = Writer()
        write_field(value, values[key])
        writer.tagged(tag, value.to_bytes())


def _field(field: "Field[Any]", flexible: bool) -> tuple[str, _Write, Any]:
    """The name of a value, how it is written, and the value that is written if it is missing."""
    annotation: Any = field.type
    nullable = False
    if get_origin(annotation) in (UnionType, Union):
        annotation = next(part for part in get_args(annotation) if part is not type(None))
        nullable = True
    kafka_type: str = field.metadata.get("kafka_type", "")
    is_time = kafka_type.startswith(("timedelta", "datetime"))
    key = f"{field.name}_ms" if is_time else field.name
    if get_origin(annotation) is tuple:
        element = _value(get_args(annotation)[0], kafka_type, flexible, False)
        return key, _array(element, flexible), None if nullable else ()
    # A tagged structure is null by being absent, so its value has no room for a null marker.
    marked = nullable and not ("tag" in field.metadata and not kafka_type)
    write = _value(annotation, kafka_type, flexible, marked)
    return key, write, _default(field, annotation, kafka_type, nullable)


def _default(field: "Field[Any]", annotation: Any, kafka_type: str, nullable: bool) -> Any:
    if isinstance(field.default, timedelta):
        return field.default // _MILLISECOND
    if kafka_type == "datetime_i64":
        return -1
    if hasattr(annotation, "__version__"):
        return None if nullable or "tag" in field.metadata else {}
    if field.default is not MISSING:
        return field.default
    return None if nullable else _ZEROS.get(kafka_type, 0)


_ZEROS: Final[dict[str, Any]] = {"string": "", "bytes": b"", "records": b"", "uuid": None}


def _array(write_element: _Write, flexible: bool) -> _Write:
    def write(writer: Writer, elements: Any) -> None:
        if elements is None:
            writer.array_length(-1, flexible)
            return
        writer.array_length(len(elements), flexible)
        for element in elements:
            write_element(writer, element)

    return write


def _value(annotation: Any, kafka_type: str, flexible: bool, nullable: bool) -> _Write:
    if hasattr(annotation, "__version__"):
        return _nullable_structure(annotation) if nullable else _structure(annotation)
    match kafka_type:
        case "string" if nullable:
            return lambda writer, text: writer.nullable_string(text, flexible)
        case "string":
            return lambda writer, text: writer.string(text, flexible)
        case "bytes" | "records":
            return lambda writer, data: _bytes(writer, data, flexible)
        case _:
            return _FIXED[kafka_type]


def _nullable_structure(message_type: Any) -> _Write:
    """A structure behind a byte that is negative for null (KIP-893)."""
    write_structure = _structure(message_type)

    def write(writer: Writer, values: _Values | None) -> None:
        writer.int8(-1 if values is None else 1)
        if values is not None:
            write_structure(writer, values)

    return write


def _bytes(writer: Writer, data: bytes | None, flexible: bool) -> None:
    if data is None:
        writer.null_bytes(flexible)
    else:
        writer.buffers([data], flexible)


_FIXED: Final[dict[str, _Write]] = {
    "int8": Writer.int8,
    "int16": Writer.int16,
    "int32": Writer.int32,
    "int64": Writer.int64,
    "uint16": lambda writer, value: writer.raw(value.to_bytes(2, "big")),
    "uint32": lambda writer, value: writer.raw(value.to_bytes(4, "big")),
    "float64": lambda writer, value: writer.raw(_DOUBLE.pack(value)),
    "bool": lambda writer, value: writer.int8(1 if value else 0),
    "uuid": Writer.uuid,
    "error_code": Writer.int16,
    "timedelta_i32": Writer.int32,
    "timedelta_i64": Writer.int64,
    "datetime_i64": Writer.int64,
}


def _check_names(message_type: Any, values: _Values) -> None:
    stray = values.keys() - _names_in_any_version(message_type)
    assert not stray, f"{message_type.__name__} has no field {sorted(stray)} in any version"


@lru_cache(maxsize=256)
def _names_in_any_version(message_type: Any) -> frozenset[str]:
    """The keys that some version of this class takes; of kio's, told by where the class lives."""
    declared: frozenset[str] | None = getattr(message_type, EVERY_NAME, None)
    if declared is not None:
        return declared
    parts = message_type.__module__.split(".")
    load = load_request_schema if parts[-1] == "request" else load_response_schema
    api_key = next(key for key, name in api_key_map.items() if name == parts[2])
    keys: set[str] = set()
    for version in schema_name_map[parts[2]]:
        keys |= _keys_of(load(api_key, version), message_type.__name__)
    return frozenset(keys)


def _keys_of(root: Any, class_name: str) -> set[str]:
    """The keys of the class with that name in a message, which may be nested."""
    if root.__name__ == class_name:
        return {_field(field, False)[0] for field in fields(root)}
    keys: set[str] = set()
    for field in fields(root):
        for nested in _nested_types(field.type):
            keys |= _keys_of(nested, class_name)
    return keys


def _nested_types(annotation: Any) -> list[Any]:
    if hasattr(annotation, "__version__"):
        return [annotation]
    return [nested for part in get_args(annotation) for nested in _nested_types(part)]
