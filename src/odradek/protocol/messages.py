"""Every message that is not hot, by kio's generated classes.

kio has one immutable class per message and version, generated from Kafka's own definitions.
A message is read into such a class (`message_reader`), whose attributes are then as untyped
as they differ between versions; it is written from plain names and values
(`message_writer`), so that who answers states everything once, for all versions.

kio knows what Kafka 4 serves. Versions that Kafka has dropped are not there, and are not
advertised by us either; the three hot APIs, which go further back, do not come by here.
"""

from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map

from odradek.protocol.message_reader import read_message
from odradek.protocol.message_writer import write_message

# A message of kio, and its class: attributes depend on API and version, so both are untyped.
Message = Any
MessageType = Any


@lru_cache(maxsize=1024)
def request_type(api_key: int, version: int) -> MessageType:
    """The class of a request.

    Raises:
        LookupError: there is no such message.
    """
    _check_known(api_key, version)
    return load_request_schema(api_key, version)


@lru_cache(maxsize=1024)
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


def name_of(api_key: int) -> str | None:
    """What an API is called in Kafka's definitions, in words with lines between."""
    name = api_key_map.get(api_key)
    return None if name is None else str(name)


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


def encode_request(api_key: int, version: int, values: Mapping[str, object]) -> bytes:
    """Writes the body of a request; see `message_writer` for what the values are.

    Raises:
        AssertionError: a name is in no version of this message.
    """
    return write_message(request_type(api_key, version), values)


def encode_response(api_key: int, version: int, values: Mapping[str, object]) -> bytes:
    """Writes the body of a response; see `message_writer` for what the values are.

    Raises:
        AssertionError: a name is in no version of this message.
    """
    return write_message(response_type(api_key, version), values)


@lru_cache(maxsize=1024)
def has_throttle_time(api_key: int) -> bool:
    """Whether the responses of an API can tell of a throttle time, in their newest version."""
    newest = versions(api_key)[-1]
    return "throttle_time" in response_type(api_key, newest).__dataclass_fields__


def milliseconds(duration: timedelta) -> int:
    """A duration of kio's in whole milliseconds."""
    return duration // timedelta(milliseconds=1)
