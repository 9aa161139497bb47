"""Every message that is not hot, by kio's generated classes.

kio has one immutable class per message and version, generated from Kafka's own definitions.
A message is read into such a class (`message_reader`), whose attributes are then as untyped
as they differ between versions; it is written from plain names and values
(`message_writer`), so that who answers states everything once, for all versions.

kio knows what Kafka 4 serves. Versions that Kafka has dropped are not there, and are not advertised
by us either; the three hot APIs, which go further back, do not come by here. The requests of a
Kafka 3 controller to its brokers are declared by us (`message_classes`).

kio, and the modules that read and write its classes, are imported with the first message: a broker
is ready before.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from odradek._lazy import LazyModule

__all__ = [
    "Message",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "epoch_milliseconds",
    "has_throttle_time",
    "is_flexible",
    "milliseconds",
    "name_of",
    "request_type",
    "response_type",
    "versions",
]

# A message, whose attributes depend on its API and version.
Message = Any

_classes: Final[Any] = LazyModule("odradek.protocol.schemas.message_classes")
_reader: Final[Any] = LazyModule("odradek.protocol.schemas.message_reader")
_writer: Final[Any] = LazyModule("odradek.protocol.schemas.message_writer")


def request_type(api_key: int, version: int) -> Any:
    """The class of a request.

    Raises:
        LookupError: there is no such message.
    """
    return _classes.request_type(api_key, version)


def response_type(api_key: int, version: int) -> Any:
    """The class of a response.

    Raises:
        LookupError: there is no such message.
    """
    return _classes.response_type(api_key, version)


def versions(api_key: int) -> list[int]:
    """The versions of an API that can be read and written here, in order; empty if none can."""
    found: list[int] = _classes.versions(api_key)
    return found


def name_of(api_key: int) -> str | None:
    """The name of an API in Kafka's definitions, in words with hyphens between."""
    name: str | None = _classes.name_of(api_key)
    return name


def is_flexible(api_key: int, version: int) -> bool:
    """Whether a version has compact lengths and tagged fields."""
    return bool(request_type(api_key, version).__flexible__)


def decode_request(api_key: int, version: int, frame: memoryview, position: int) -> Message:
    """Reads the body of a request. Bytes behind it are ignored, as Kafka does.

    Raises:
        ProtocolError: the body is malformed.
    """
    return _reader.read_message(request_type(api_key, version), frame, position)


def decode_response(api_key: int, version: int, frame: memoryview, position: int) -> Message:
    """Reads the body of a response.

    Raises:
        ProtocolError: the body is malformed.
    """
    return _reader.read_message(response_type(api_key, version), frame, position)


def encode_request(api_key: int, version: int, values: Mapping[str, object]) -> bytes:
    """Writes the body of a request; `message_writer` describes the values.

    Raises:
        AssertionError: a name is in no version of this message.
    """
    data: bytes = _writer.write_message(request_type(api_key, version), values)
    return data


def encode_response(api_key: int, version: int, values: Mapping[str, object]) -> bytes:
    """Writes the body of a response; `message_writer` describes the values.

    Raises:
        AssertionError: a name is in no version of this message.
    """
    data: bytes = _writer.write_message(response_type(api_key, version), values)
    return data


@lru_cache(maxsize=1024)
def has_throttle_time(api_key: int) -> bool:
    """Whether the responses of an API have a throttle time, in their newest version."""
    newest = versions(api_key)[-1]
    return "throttle_time" in response_type(api_key, newest).__dataclass_fields__


def milliseconds(duration: timedelta) -> int:
    """A duration of kio's in whole milliseconds."""
    return duration // timedelta(milliseconds=1)


def epoch_milliseconds(moment: datetime | None) -> int:
    """A moment of kio's in whole milliseconds since 1970; -1 of none."""
    if moment is None:
        return -1
    return milliseconds(moment - datetime(1970, 1, 1, tzinfo=UTC))
