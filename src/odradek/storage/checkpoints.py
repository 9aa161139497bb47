"""The small text files of a log directory, in Kafka's formats: text in, values out. Pure.

    offsets                    leader epochs           partition.metadata
    0                          0                       version: 0
    2                          2                       topic_id: q3Jr2b5iS4Gz0VqlzZ7x6g
    orders 0 4711              0 0
    orders 1 815               3 170

First the version, then the number of lines that follow; a file cut short contradicts its count. An
unreadable file raises `CorruptCheckpoint`; the caller knows what can be rebuilt.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final
from uuid import UUID

from odradek.model import TopicPartition
from odradek.protocol.uuids import uuid_of, uuid_text

_VERSION: Final = "0"
_META_VERSIONS: Final = (0, 1)


class CorruptCheckpoint(ValueError):
    """A file that is not in the format of its name; the text says where."""


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """An offset checkpoint: one line per partition, in order."""
    lines = [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())]
    return _encode(lines)


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint.

    Raises:
        CorruptCheckpoint: the file is cut short or not in this format.
    """
    offsets: dict[TopicPartition, int] = {}
    for topic, partition, offset in _parse(data, 3):
        offsets[TopicPartition(topic, _number(partition))] = _number(offset)
    return offsets


def encode_epochs(epochs: Sequence[tuple[int, int]]) -> bytes:
    """A leader epoch checkpoint of (epoch, start offset) pairs."""
    return _encode([f"{epoch} {start_offset}" for epoch, start_offset in epochs])


def parse_epochs(data: bytes) -> list[tuple[int, int]]:
    """The (epoch, start offset) pairs, both rising.

    Raises:
        CorruptCheckpoint: the file is cut short, not in this format, or does not rise.
    """
    epochs = [(_number(epoch), _number(start)) for epoch, start in _parse(data, 2)]
    for before, after in pairwise(epochs):
        if after[0] <= before[0] or after[1] < before[1]:
            raise CorruptCheckpoint(f"epoch {after} follows {before}")
    return epochs


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """The `partition.metadata` of a topic."""
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> UUID:
    """The topic's id.

    Raises:
        CorruptCheckpoint: the file is not in this format.
    """
    fields = _properties(data, ":")
    if fields.get("version") != _VERSION or "topic_id" not in fields:
        raise CorruptCheckpoint("partition.metadata has no version 0 and topic id")
    return decode_uuid(fields["topic_id"])


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """The marker that a directory was closed in order, with the epoch of its broker."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def encode_meta_properties(cluster_id: str, node_id: int, directory_id: UUID) -> bytes:
    """The `meta.properties` of a log directory, version 1."""
    lines = [
        "version=1",
        f"cluster.id={cluster_id}",
        f"node.id={node_id}",
        f"directory.id={uuid_text(directory_id)}",
    ]
    return ("\n".join(lines) + "\n").encode()


def parse_meta_properties(data: bytes) -> dict[str, str]:
    """The properties by name; comments and empty lines are left out. Without a version it is 0.

    Raises:
        CorruptCheckpoint: it is no text, or has a version that Kafka does not know either.
    """
    fields = _properties(data, "=")
    if _number(fields.get("version", _VERSION)) not in _META_VERSIONS:
        raise CorruptCheckpoint(f"version {fields['version']} of meta.properties is unknown")
    return fields


def decode_uuid(text: str) -> UUID:
    """Decodes an id in Kafka's form.

    Raises:
        CorruptCheckpoint: the text is no id.
    """
    try:
        return uuid_of(text)
    except ValueError as error:
        raise CorruptCheckpoint(f"{text!r} is not an id") from error


def _encode(lines: list[str]) -> bytes:
    return ("\n".join([_VERSION, str(len(lines)), *lines]) + "\n").encode()


def _parse(data: bytes, field_count: int) -> list[list[str]]:
    lines = _text(data).splitlines()
    if len(lines) < 2 or lines[0] != _VERSION:
        raise CorruptCheckpoint("it does not begin with version 0 and a count")
    rows = [line.split() for line in lines[2:] if line]
    if len(rows) != _number(lines[1]) or not data.endswith(b"\n"):
        raise CorruptCheckpoint(f"it has {len(rows)} lines and says {lines[1]}")
    for number, row in enumerate(rows, start=3):
        if len(row) != field_count:
            raise CorruptCheckpoint(f"line {number} has {len(row)} fields, not {field_count}")
    return rows


def _properties(data: bytes, separator: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in _text(data).splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, value = line.partition(separator)
            fields[name.strip()] = value.strip()
    return fields


def _number(text: str) -> int:
    if not text.isascii() or not text.removeprefix("-").isdecimal():
        raise CorruptCheckpoint(f"{text!r} is not a number")
    return int(text)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(f"byte {error.start} is not text") from error
