"""The new offsets of `consumer-groups --reset-offsets`: one flag selects the position, topics
select the partitions.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from odradek.cli.tools.option_words import TakesFirst
from odradek.cli.tools.wording.java_names import execution_exception
from odradek.cli.tools.wording.java_values import java_long
from odradek.client import Admin
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.consuming.list_offsets import EARLIEST, LATEST
from odradek.client.core.consuming.reset_policy import duration_ms
from odradek.client.core.metadata import TopicMetadata
from odradek.client.errors import KafkaError
from odradek.model import TopicPartition

# In the order in which Kafka's tool looks for two of them.
RESETS: Final = (
    "to-offset",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "shift-by",
    "from-file",
)
_CLOCK: Final = re.compile(r"\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:?\d\d)")
Offsets = dict[TopicPartition, int]


class WrongUsage(ValueError):
    """The flags contradict each other; the message goes to standard error."""


def add_reset_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of a reset."""
    for name in ("to-earliest", "to-latest", "to-current"):
        parser.add_argument(f"--{name}", action="store_const", const=True)
    parser.add_argument("--to-offset", action=TakesFirst, type=java_long, metavar="N")
    parser.add_argument("--to-datetime", metavar="YYYY-MM-DDTHH:mm:SS.sss")
    parser.add_argument("--by-duration", metavar="PnDTnHnMnS")
    parser.add_argument("--shift-by", type=java_long, metavar="N")
    parser.add_argument("--from-file", metavar="FILE")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--execute", action="store_true")
    parser.add_argument("--export", action="store_true")


async def planned_offsets(admin: Admin, group_id: str, arguments: argparse.Namespace) -> Offsets:
    """The group's new offsets, by partition.

    Raises:
        WrongUsage: the request makes no sense. ValueError: a time or a file cannot be read, or a
            broker refuses. KafkaError: no broker answers.
    """
    if arguments.from_file is not None:
        wanted = _read_file(arguments.from_file, group_id)
        return await _within(admin, wanted)
    committed: Mapping[TopicPartition, CommittedOffset] = {}
    if arguments.all_topics or arguments.to_current or arguments.shift_by is not None:
        committed = await _committed(admin, group_id)
    partitions = (
        sorted(committed)
        if arguments.all_topics
        else await named_partitions(admin, arguments.topic)
    )
    await check_partitions(admin, partitions)
    if arguments.to_offset is not None:
        return await _within(admin, dict.fromkeys(partitions, arguments.to_offset))
    if arguments.shift_by is not None:
        return await _within(admin, _shifted(partitions, committed, arguments.shift_by))
    if arguments.by_duration is not None:
        try:
            ago_ms = duration_ms(arguments.by_duration)
        except ValueError:
            raise ValueError("Text cannot be parsed to a Duration") from None
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        time_ms = now_ms - ago_ms
        return await _at_time(admin, partitions, time_ms, says=arguments.output == "text")
    if arguments.to_current:
        return await _current(admin, partitions, committed)
    return await offsets_there(admin, partitions, arguments)


async def offsets_there(
    admin: Admin, partitions: list[TopicPartition], arguments: argparse.Namespace
) -> Offsets:
    """Returns the earliest or latest offsets of partitions, or those of a time.

    Raises:
        ValueError: the time cannot be read, or a broker refuses.
    """
    if arguments.to_earliest:
        return await ask_offsets(admin, partitions, EARLIEST)
    if arguments.to_latest:
        return await ask_offsets(admin, partitions, LATEST)
    time_ms = _milliseconds(arguments.to_datetime)
    return await _at_time(admin, partitions, time_ms, says=arguments.output == "text")


async def _committed(admin: Admin, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    found = (await admin.list_group_offsets([group_id]))[group_id]
    if isinstance(found, KafkaError):
        raise execution_exception(found)
    return found


async def named_partitions(admin: Admin, topics: Iterable[str]) -> list[TopicPartition]:
    """Returns the partitions of topics; each topic may name some of its partitions.

    Raises:
        WrongUsage: a partition is not a number.
        ValueError: a topic does not exist.
    """
    known = await admin.list_topics()
    found: list[TopicPartition] = []
    for text in topics:
        name, indexes = topic_argument(text)
        if indexes is not None:
            found += [TopicPartition(name, each) for each in indexes]
        elif name in known:
            found += known[name].partitions
        else:
            raise ValueError("This server does not host this topic-partition.")
    return found


async def check_partitions(admin: Admin, partitions: list[TopicPartition]) -> None:
    """Refuses partitions that do not exist or have no leader, in Kafka's words.

    Raises:
        ValueError: there is such a partition.
    """
    topics = await described_topics(admin, partitions)
    missing = [each for each in partitions if each not in topics[each.topic].partitions]
    if missing:
        raise ValueError(f'The partitions "{",".join(map(str, missing))}" do not exist')
    led = {name: topic.led_partitions for name, topic in topics.items()}
    leaderless = [each for each in partitions if each.partition not in led[each.topic]]
    if leaderless:
        raise ValueError(f'The partitions "{",".join(map(str, leaderless))}" have no leader')


def topic_argument(text: str) -> tuple[str, list[int] | None]:
    """Reads the name in `topic` or `topic:0,1`, and the partitions if some are named.

    Raises:
        WrongUsage: a partition is not a number.
    """
    name, colon, indexes = text.partition(":")
    if not colon:
        return name, None
    if not indexes or ":" in indexes:
        raise WrongUsage(f"Invalid topic arg '{text}', expected topic name and partitions")
    for each in indexes.split(","):
        if not each.isdecimal():
            raise WrongUsage(f"Invalid partition '{each}' specified in topic arg '{text}''")
    return name, [int(each) for each in indexes.split(",")]


async def described_topics(
    admin: Admin, partitions: Iterable[TopicPartition]
) -> dict[str, TopicMetadata]:
    """Describes the topics of partitions.

    Raises:
        ValueError: one does not exist, or may not be described.
    """
    found = {}
    for name, topic in (await admin.describe_topics({each.topic for each in partitions})).items():
        if isinstance(topic, KafkaError):
            raise execution_exception(topic)
        found[name] = topic
    return found


async def ask_offsets(admin: Admin, partitions: Iterable[TopicPartition], position: int) -> Offsets:
    """Asks for the offsets of partitions at a position.

    Raises:
        ValueError: a broker refuses one of them.
    """
    answers = await admin.list_offsets(dict.fromkeys(partitions, position))
    offsets = {}
    for partition, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise execution_exception(answer)
        offsets[partition] = answer.offset
    return offsets


async def _at_time(
    admin: Admin, partitions: list[TopicPartition], time_ms: int, *, says: bool
) -> Offsets:
    """The offset of the first record at or after a time; the end where there is none, with Kafka's
    message.
    """
    found = await ask_offsets(admin, partitions, time_ms)
    empty = [each for each, offset in found.items() if offset < 0]
    if says:
        for topic, index in empty:
            print(
                f"\nWarn: Partition {index} from topic {topic} is empty. "
                "Falling back to latest known offset."
            )
    return found | await ask_offsets(admin, empty, LATEST)


async def _within(admin: Admin, wanted: Offsets) -> Offsets:
    """Replaces offsets outside of a partition by its nearest end, with a warning, as in Kafka."""
    first = await ask_offsets(admin, wanted, EARLIEST)
    last = await ask_offsets(admin, wanted, LATEST)
    return {
        partition: min(max(offset, first[partition]), last[partition])
        for partition, offset in wanted.items()
    }


def _shifted(
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    shift: int,
) -> Offsets:
    for partition in partitions:
        if partition not in committed:
            raise WrongUsage(
                f"Cannot shift offset for partition {partition} since there is no current "
                "committed offset"
            )
    return {partition: committed[partition].offset + shift for partition in partitions}


async def _current(
    admin: Admin,
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
) -> Offsets:
    """The committed offset; the end of the partition where nothing is committed."""
    known = {each: committed[each].offset for each in partitions if each in committed}
    return known | await ask_offsets(
        admin, [each for each in partitions if each not in known], LATEST
    )


def _milliseconds(text: str) -> int:
    """Reads a date and time into milliseconds; UTC unless it names another zone."""
    date, letter, clock = text.partition("T")
    if not letter:
        raise ValueError(
            "java.text.ParseException: Error parsing timestamp. It does not contain a 'T' "
            "according to ISO8601 format"
        )
    zoned = text if re.search("[Z+-]", clock) else f"{text}Z"
    try:
        if not _CLOCK.fullmatch(zoned[len(date) + 1 :]):
            raise ValueError(text)
        return int(datetime.fromisoformat(zoned).timestamp() * 1000)
    except ValueError:
        raise ValueError(f'java.text.ParseException: Unparseable date: "{zoned}"') from None


def _read_file(path: str, group_id: str) -> Offsets:
    """Reads lines of `topic,partition,offset`, or with the group in front; returns nothing, with
    the reason on standard error, when a line is malformed.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = list(filter(None, map(str.strip, file)))
    except OSError:
        raise ValueError(f"java.io.IOException: Unable to read file {path}") from None
    offsets: Offsets = {}
    for line in lines:
        cells = [cell.strip().strip('"') for cell in line.split(",")]
        if len(cells) == 4 and cells.pop(0) != group_id:
            continue
        try:
            topic, index, offset = cells
            offsets[TopicPartition(topic, int(index))] = int(offset)
        except ValueError:
            print(f"{path}: {line!r} is no [group,]topic,partition,offset", file=sys.stderr)
            return {}
    return offsets
