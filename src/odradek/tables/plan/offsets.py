"""Offsets as options and checkpoints write them: words, numbers, times, JSON.

A bound says where a read begins or ends before any partition is known; resolving it against
a topic gives one offset per partition. The JSON forms are those of Spark's Kafka connector,
so that its options and its checkpoints mean the same here. Pure: nothing is asked of a
broker or a file in this module.

A checkpoint has the ids of its topics too, since offsets mean nothing in a recreated topic of the
same name. The connector has no place for them and refuses unknown fields, but it ignores a topic
without partitions: so an id is the name of such a topic, `{"orders": {"0": 23},
"orders:Lb2x9S6qTsGBvCdLxkJp4w": {}}`. No topic's name has a colon.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.model import TopicPartition
from odradek.protocol.uuids import uuid_text
from odradek.storage.checkpoints import decode_uuid

LATEST: Final = -1
EARLIEST: Final = -2
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}

PartitionOffsets = dict[TopicPartition, int]
OffsetJson = dict[str, dict[str, int]]


@dataclass(frozen=True)
class EndOfLog:
    """The same end of every partition: `EARLIEST` or `LATEST`."""

    which: int


@dataclass(frozen=True)
class ExactOffsets:
    """An offset for every partition; `EARLIEST` and `LATEST` mean the ends."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class AtTime:
    """The first record at or after a time, in milliseconds, in every partition."""

    timestamp_ms: int


@dataclass(frozen=True)
class AtTimes:
    """The same with a time for every partition."""

    timestamps_ms: Mapping[TopicPartition, int]


OffsetBound = EndOfLog | ExactOffsets | AtTime | AtTimes


def parse_offset_bound(name: str, text: str) -> OffsetBound:
    """Reads `earliest`, `latest` or a JSON object of offsets.

    Raises:
        ValueError: the text of option `name` is neither.
    """
    word = text.strip().lower()
    if word in _WORDS:
        return EndOfLog(_WORDS[word])
    offsets = parse_partition_numbers(name, text)
    wrong = [partition for partition, offset in offsets.items() if offset < EARLIEST]
    if wrong:
        raise ValueError(f"{name}: {offsets[wrong[0]]} is no offset for {wrong[0]}")
    return ExactOffsets(offsets)


def parse_times(name: str, text: str) -> AtTimes:
    """Reads a JSON object of timestamps in milliseconds.

    Raises:
        ValueError: the text of option `name` is something else.
    """
    return AtTimes(parse_partition_numbers(name, text))


def parse_partition_numbers(name: str, text: str) -> PartitionOffsets:
    """Reads `{"topic": {"0": 23, "1": -2}}`.

    Raises:
        ValueError: the text of option `name` has another shape.
    """
    document = _parse_object(name, text)
    numbers: PartitionOffsets = {}
    for topic, partitions in document.items():
        if not isinstance(partitions, dict):
            raise ValueError(f'{name}: expected {{"{topic}": {{"0": number}}}}, got {text}')
        for partition, number in partitions.items():
            if not partition.isdecimal() or type(number) is not int:
                raise ValueError(f"{name}: {topic!r} has {partition!r}: {number!r}")
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers


def parse_assignment(name: str, text: str) -> tuple[TopicPartition, ...]:
    """Reads `{"topic": [0, 1]}`.

    Raises:
        ValueError: the text of option `name` has another shape.
    """
    assignment: list[TopicPartition] = []
    for topic, partitions in _parse_object(name, text).items():
        if not isinstance(partitions, list) or not all(type(p) is int for p in partitions):
            raise ValueError(f'{name}: expected {{"{topic}": [0, 1]}}, got {text}')
        assignment.extend(TopicPartition(topic, partition) for partition in partitions)
    if not assignment:
        raise ValueError(f"{name}: no partition is named")
    return tuple(sorted(set(assignment)))


def offsets_to_json(
    offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, UUID] | None = None
) -> OffsetJson:
    """The text a checkpoint stores: one past the last offset read, and the ids of these topics."""
    document: OffsetJson = {}
    for partition in sorted(offsets):
        document.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    for topic, topic_id in sorted((topic_ids or {}).items()):
        if topic in document:
            document[f"{topic}:{uuid_text(topic_id)}"] = {}
    return document


def with_reader(document: OffsetJson, servers: str, group: str) -> OffsetJson:
    """Offsets, where they were read and by which group, again as topics without partitions:
    `@h:9092` and `#spark.{}`.

    For what is shown, not for checkpoints.
    """
    return {**document, f"@{servers}": {}, f"#{group}": {}}


def reader_from_json(document: Mapping[str, object]) -> tuple[str, str] | None:
    """Servers and group from the result of `with_reader`; None of anything else."""
    servers = next((name[1:] for name in document if name.startswith("@")), None)
    group = next((name[1:] for name in document if name.startswith("#")), None)
    return None if servers is None or group is None else (servers, group)


def offsets_from_json(document: Mapping[str, Mapping[str, int]]) -> PartitionOffsets:
    """The offsets in JSON of `offsets_to_json`, or of the connector."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in document.items()
        for partition, offset in partitions.items()
    }


def topic_ids_from_json(document: Mapping[str, Mapping[str, int]]) -> dict[str, UUID]:
    """The ids in it; the connector's JSON has none.

    Raises:
        CorruptCheckpoint: an id is malformed.
    """
    named = (name.split(":", 1) for name in document if ":" in name)
    return {topic: decode_uuid(text) for topic, text in named}


def require_same_partitions(
    name: str, given: Iterable[TopicPartition], existing: Iterable[TopicPartition]
) -> None:
    """Checks that an option names every partition that is read, and no other.

    Raises:
        ValueError: it does not; the text names the difference.
    """
    missing = sorted(set(existing) - set(given))
    unknown = sorted(set(given) - set(existing))
    if missing or unknown:
        raise ValueError(
            f"{name} must name exactly the partitions that are read"
            + (f"; missing: {', '.join(map(str, missing))}" if missing else "")
            + (f"; not read: {', '.join(map(str, unknown))}" if unknown else "")
        )


def _parse_object(name: str, text: str) -> dict[str, object]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{name}: expected earliest, latest or JSON, got {text!r}") from error
    if not isinstance(document, dict):
        raise ValueError(f"{name}: expected a JSON object, got {text}")
    return document
