"""How `dump-log` shows a key and a value: as text, as numbers, or as records of Kafka's internal
topics.

A decoder takes a record and returns the texts of its key and its value, None for a missing one. A
decoding error is printed in place of the key, as Kafka's tool does.
"""

import base64
import json
import struct
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias
from uuid import UUID

from odradek.coordinator.records.record_schemas import (
    CONSUMER_ASSIGNMENT,
    CONSUMER_SUBSCRIPTION,
    RecordSchemas,
)
from odradek.protocol.primitives import ProtocolError
from odradek.protocol.schema import Json, Schema, decode
from odradek.records.record import Record

Texts: TypeAlias = tuple[str | None, str | None]
RecordDecoder: TypeAlias = Callable[[Record], Texts]
BytesDecoder: TypeAlias = Callable[[bytes], str]

_INT16: Final = struct.Struct(">h")


def _number(form: str) -> BytesDecoder:
    layout = struct.Struct(form)

    def show(data: bytes) -> str:
        if len(data) != layout.size:
            return f"{len(data)} bytes are not a number of {layout.size} bytes: {data.hex()}"
        return str(layout.unpack(data)[0])

    return show


def _uuid(data: bytes) -> str:
    return str(UUID(bytes=data)) if len(data) == 16 else data.decode("utf-8", "replace")


DECODERS: Final[dict[str, BytesDecoder]] = {
    "string": lambda data: data.decode("utf-8", "replace"),
    "short": _number(">h"),
    "integer": _number(">i"),
    "long": _number(">q"),
    "float": _number(">f"),
    "double": _number(">d"),
    "uuid": _uuid,
    "default": bytes.hex,
}


def decoder_named(name: str) -> BytesDecoder:
    """Returns the decoder of a class name, `org.apache.kafka.tools.api.LongDecoder`, or just
    `long`.

    Raises:
        ValueError: there is none; Java classes of other people cannot be loaded here.
    """
    simple = name.rpartition(".")[2].lower()
    for ending in ("decoder", "deserializer"):
        simple = simple.removesuffix(ending)
    decoder = DECODERS.get({"int": "integer", "bytes": "default", "bytearray": "default"}.get(
        simple, simple
    ))  # fmt: skip
    if decoder is None:
        raise ValueError(f"there is no decoder {name!r}; there are {', '.join(DECODERS)}")
    return decoder


def plain_decoder(key: BytesDecoder, value: BytesDecoder) -> RecordDecoder:
    """Shows keys by one decoder and values by another."""

    def show(record: Record) -> Texts:
        return (
            None if record.key is None else key(record.key),
            None if record.value is None else value(record.value),
        )

    return show


def coordinator_decoder(kinds: Mapping[int, RecordSchemas]) -> RecordDecoder:
    """Shows the records of an internal topic as Kafka's tool does: as JSON."""

    def show(record: Record) -> Texts:
        key = record.key
        if key is None:
            return f"Error at offset {record.offset}, skipping. The key is missing", None
        try:
            return _show_coordinator_record(kinds, record, key)
        except ProtocolError as error:
            return f"Error at offset {record.offset}, skipping. {error}", None
        except struct.error:
            why = "The key or the value is too short for a version"
            return f"Error at offset {record.offset}, skipping. {why}", None

    return show


def _show_coordinator_record(
    kinds: Mapping[int, RecordSchemas], record: Record, key: bytes
) -> Texts:
    number: int = _INT16.unpack_from(key)[0]
    schemas = kinds.get(number)
    if schemas is None:
        return f"Unknown record type {number} at offset {record.offset}, skipping.", None
    shown_key = to_json({"type": str(number), "data": decode(schemas.key, 0, key, 2)})
    if record.value is None:
        return shown_key, "<DELETE>"
    version: int = _INT16.unpack_from(record.value)[0]
    value = decode(schemas.value, version, record.value, 2)
    if value.get("protocolType") == "consumer":
        _open_members(value)
    return shown_key, to_json({"version": str(version), "data": value})


def _open_members(group: dict[str, Json]) -> None:
    """Decodes the metadata that members of a classic consumer group sent, each a record again."""
    members = group["members"]
    assert isinstance(members, list), "the schema makes members an array"
    for member in members:
        assert isinstance(member, dict), "the schema makes a member an object"
        _open(member, "subscription", CONSUMER_SUBSCRIPTION)
        _open(member, "assignment", CONSUMER_ASSIGNMENT)


def _open(member: dict[str, Json], name: str, schema: Schema) -> None:
    data = base64.b64decode(str(member[name]))
    if len(data) >= _INT16.size:
        # A newer version begins with the fields of the last one that is known.
        version = min(_INT16.unpack_from(data)[0], schema.last_version)
        member[name] = decode(schema, version, data, 2)


def to_json(value: Json) -> str:
    """JSON as Kafka's tools print it: on one line, without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
