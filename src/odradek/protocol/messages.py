"""Every message that is not hot: a thin wrapper around kio's generated classes.

kio has one immutable class per message and version, generated from Kafka's own definitions.
Requests are read into them (by `message_reader`) and handed to the handlers as they are.
Responses would be awkward to make by hand (durations are timedeltas, error codes an enum of
kio's own, and every version has classes of its own), so `build` makes a message from plain
names and values: nested structures are dictionaries, a duration is `NAME_ms` in
milliseconds, what a version does not know is left out, and what is not given is zero, empty
or null. A name that no version of the message knows is a mistake of the caller and is
asserted.

kio knows what Kafka 4 serves. Versions that Kafka has dropped are not there, and are not
advertised by us either; the three hot APIs, which go further back, do not come by here.
"""

import io
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer

from odradek.protocol.message_reader import read_message

# A message of kio, and its class: attributes depend on API and version, so both are untyped.
Message = Any
MessageType = Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def request_type(api_key: int, version: int) -> MessageType:
    """The class of a request.

    Raises:
        LookupError: there is no such message.
    """
    _check_known(api_key, version)
    return load_request_schema(api_key, version)


def response_type(api_key: int, version: int) -> MessageType:
    """The class of a response.

    Raises:
        LookupError: there is no such message.
    """
    _check_known(api_key, version)
    return load_response_schema(api_key, version)


def _check_known(api_key: int, version: int) -> None:
    if version not in versions(api_key):
        raise LookupError(f"no definition of API {api_key} version {version}")


def versions(api_key: int) -> list[int]:
    """The versions of an API that can be read and written here, in order; empty if none can."""
    name = api_key_map.get(api_key)
    return sorted(schema_name_map[name]) if name is not None else []


def is_flexible(api_key: int, version: int) -> bool:
    """Whether a version has compact lengths and tagged fields."""
    return bool(request_type(api_key, version).__flexible__)


def decode_request(api_key: int, version: int, frame: memoryview, position: int) -> Message:
    """Reads the body of a request. Bytes behind it are ignored, as Kafka does.

    Raises:
        ProtocolError: the body is malformed.
    """
    return read_message(request_type(api_key, version), frame, position)


def decode_response(api_key: int, version: int, frame: memoryview, position: int) -> Message:
    """Reads the body of a response.

    Raises:
        ProtocolError: the body is malformed.
    """
    return read_message(response_type(api_key, version), frame, position)


def encode(message: Message) -> bytes:
    """Writes the body of a message."""
    with io.BytesIO() as buffer:
        entity_writer(type(message))(buffer, message)
        return buffer.getvalue()


def milliseconds(duration: timedelta) -> int:
    """A duration of kio's in whole milliseconds."""
    return duration // timedelta(milliseconds=1)


def build(message_type: MessageType, values: Mapping[str, object]) -> Message:
    """Makes a message of the given class, and all that is nested in it, from plain values.

    Raises:
        AssertionError: a name is in no version of this message.
    """
    plan = _plan(message_type)
    arguments = {
        name: make(values[key]) if key in values else absent()
        for name, (key, make, absent) in plan.items()
    }
    unknown = values.keys() - {key for key, _, _ in plan.values()}
    if unknown:
        stray = unknown - _names_in_any_version(message_type)
        assert not stray, f"{message_type.__name__} has no field {sorted(stray)} in any version"
    return message_type(**arguments)


# How a field is made: the key it is given under, from a value, and when it is not given.
_FieldPlan = tuple[str, Callable[[Any], object], Callable[[], object]]


@lru_cache(maxsize=1024)
def _plan(message_type: Any) -> dict[str, _FieldPlan]:
    return {field.name: _field_plan(field) for field in fields(message_type)}


def _field_plan(field: "Field[Any]") -> _FieldPlan:
    kafka_type = field.metadata.get("kafka_type", "")
    key = f"{field.name}_ms" if kafka_type.startswith(("timedelta", "datetime")) else field.name
    make, zero = _converter(field.type, kafka_type)
    default = field.default if field.default is not MISSING else zero
    return key, make, lambda: default


def _converter(annotation: Any, kafka_type: str) -> tuple[Callable[[Any], object], object]:
    """How a value of this type is made from a plain one, and what stands for no value."""
    if get_origin(annotation) in (UnionType, Union):
        inner = next(part for part in get_args(annotation) if part is not type(None))
        make, _ = _converter(inner, kafka_type)
        return lambda value: None if value is None else make(value), None
    if get_origin(annotation) is tuple:
        make, _ = _converter(get_args(annotation)[0], kafka_type)
        return lambda value: tuple(make(element) for element in value), ()
    if hasattr(annotation, "__version__"):
        return lambda value: build(annotation, value), None
    return _PRIMITIVES.get(kafka_type, (_same, 0))


def _same(value: object) -> object:
    return value


def _moment(value_ms: int) -> datetime | None:
    return None if value_ms < 0 else _EPOCH + timedelta(milliseconds=value_ms)


_PRIMITIVES: dict[str, tuple[Callable[[Any], object], object]] = {
    "error_code": (KioErrorCode, KioErrorCode.none),
    "timedelta_i32": (lambda value: timedelta(milliseconds=value), timedelta(0)),
    "timedelta_i64": (lambda value: timedelta(milliseconds=value), timedelta(0)),
    "datetime_i64": (_moment, None),
    "string": (_same, ""),
    "bytes": (_same, b""),
    "records": (_same, b""),
    "bool": (bool, False),
    "float64": (float, 0.0),
    "uuid": (_same, UUID(int=0)),
}


@lru_cache(maxsize=256)
def _names_in_any_version(message_type: Any) -> frozenset[str]:
    """The keys that some version of this class takes."""
    schema, is_request = _schema_of(message_type)
    load = load_request_schema if is_request else load_response_schema
    api_key = next(key for key, name in api_key_map.items() if name == schema)
    keys: set[str] = set()
    for version in versions(api_key):
        keys |= _keys_of(load(api_key, version), message_type.__name__)
    return frozenset(keys)


def _schema_of(message_type: MessageType) -> tuple[str, bool]:
    """kio's name for the message, and whether it is the request; told by where the class lives."""
    parts = message_type.__module__.split(".")
    return parts[2], parts[-1] == "request"


def _keys_of(root: MessageType, class_name: str) -> set[str]:
    """The keys of the class with that name in a message, which may be nested."""
    if root.__name__ == class_name:
        return {key for key, _, _ in _plan(root).values()}
    keys: set[str] = set()
    for field in fields(root):
        for nested in _nested_types(field.type):
            keys |= _keys_of(nested, class_name)
    return keys


def _nested_types(annotation: Any) -> list[MessageType]:
    if hasattr(annotation, "__version__"):
        return [annotation]
    return [nested for part in get_args(annotation) for nested in _nested_types(part)]
