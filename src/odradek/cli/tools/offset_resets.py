"""Where `consumer-groups --reset-offsets` takes a group: one flag says how, topics say what."""

import argparse
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from odradek.client import Admin
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.list_offsets import EARLIEST, LATEST
from odradek.client.core.reset_policy import duration_ms
from odradek.client.errors import KafkaError
from odradek.model import TopicPartition

RESETS: Final = (
    "to-earliest",
    "to-latest",
    "to-current",
    "to-offset",
    "to-datetime",
    "by-duration",
    "shift-by",
    "from-file",
)
Offsets = dict[TopicPartition, int]


class ResetRefused(ValueError):
    """The tool itself refuses."""


def add_reset_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of a reset."""
    for name in ("to-earliest", "to-latest", "to-current"):
        parser.add_argument(f"--{name}", action="store_const", const=True)
    parser.add_argument("--to-offset", type=int, metavar="N")
    parser.add_argument("--to-datetime", metavar="YYYY-MM-DDTHH:mm:SS.sss")
    parser.add_argument("--by-duration", metavar="PnDTnHnMnS")
    parser.add_argument("--shift-by", type=int, metavar="N")
    parser.add_argument("--from-file", metavar="FILE")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--dry-run", action="store_true")
    mode.add_argument("--execute", action="store_true")
    parser.add_argument("--export", action="store_true")


async def planned_offsets(admin: Admin, group_id: str, arguments: argparse.Namespace) -> Offsets:
    """Where the group goes, by partition.

    Raises:
        ResetRefused: what was asked for makes no sense.
        KafkaError: a partition cannot be asked.
    """
    committed = (await admin.list_group_offsets([group_id]))[group_id]
    if isinstance(committed, KafkaError):
        raise committed
    if arguments.from_file is not None:
        wanted = _read_file(arguments.from_file, group_id)
        return await _within(admin, wanted)
    partitions = await _partitions(admin, arguments, committed)
    if arguments.to_earliest:
        return await _ask(admin, partitions, EARLIEST)
    if arguments.to_latest:
        return await _ask(admin, partitions, LATEST)
    if arguments.to_offset is not None:
        return await _within(admin, dict.fromkeys(partitions, arguments.to_offset))
    if arguments.shift_by is not None:
        return await _within(admin, _shifted(partitions, committed, arguments.shift_by))
    if arguments.to_datetime is not None:
        time_ms = _milliseconds(arguments.to_datetime)
        return await _at_time(admin, partitions, time_ms, says=arguments.output == "text")
    if arguments.by_duration is not None:
        ago_ms = duration_ms(arguments.by_duration)
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        time_ms = now_ms - ago_ms
        return await _at_time(admin, partitions, time_ms, says=arguments.output == "text")
    if arguments.to_current:
        return await _current(admin, partitions, committed)
    raise ResetRefused(
        "Option '[reset-offsets]' requires one of the following scenarios: "
        + ", ".join(f"[{each}]" for each in RESETS)
    )


async def _partitions(
    admin: Admin,
    arguments: argparse.Namespace,
    committed: Mapping[TopicPartition, CommittedOffset],
) -> list[TopicPartition]:
    if arguments.all_topics:
        return sorted(committed)
    if not arguments.topic:
        raise ResetRefused("One of the reset scopes should be defined: --all-topics, --topic.")
    known = await admin.list_topics()
    found: list[TopicPartition] = []
    for text in arguments.topic:
        name, _, indexes = text.partition(":")
        if indexes:
            found += [TopicPartition(name, int(each)) for each in indexes.split(",")]
        elif name in known:
            found += known[name].partitions
        else:
            raise ResetRefused(f"topic {name} does not exist")
    return found


async def _ask(admin: Admin, partitions: Iterable[TopicPartition], position: int) -> Offsets:
    answers = await admin.list_offsets(dict.fromkeys(partitions, position))
    offsets = {}
    for partition, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise answer
        offsets[partition] = answer.offset
    return offsets


async def _at_time(
    admin: Admin, partitions: list[TopicPartition], time_ms: int, *, says: bool
) -> Offsets:
    """The first record at or after a time; the end where there is none, in Kafka's words."""
    found = await _ask(admin, partitions, time_ms)
    empty = [each for each, offset in found.items() if offset < 0]
    if says:
        for topic, index in empty:
            print(
                f"\nWarn: Partition {index} from topic {topic} is empty. "
                "Falling back to latest known offset."
            )
    return found | await _ask(admin, empty, LATEST)


async def _within(admin: Admin, wanted: Offsets) -> Offsets:
    """Offsets outside of a partition become its nearest end, with a warning, as in Kafka."""
    first = await _ask(admin, wanted, EARLIEST)
    last = await _ask(admin, wanted, LATEST)
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
            raise ResetRefused(
                f"Cannot shift offset for partition {partition} since there is no current "
                "committed offset"
            )
    return {partition: committed[partition].offset + shift for partition in partitions}


async def _current(
    admin: Admin,
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
) -> Offsets:
    """What is committed; the end where nothing is."""
    known = {each: committed[each].offset for each in partitions if each in committed}
    return known | await _ask(admin, [each for each in partitions if each not in known], LATEST)


def _milliseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ResetRefused(f"{text!r} is no YYYY-MM-DDTHH:mm:SS.sss") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _read_file(path: str, group_id: str) -> Offsets:
    """Lines of `topic,partition,offset`, or with the group in front."""
    offsets: Offsets = {}
    with open(path, encoding="utf-8") as file:
        for line in filter(None, map(str.strip, file)):
            cells = [cell.strip().strip('"') for cell in line.split(",")]
            if len(cells) == 4:
                if cells.pop(0) != group_id:
                    continue
            elif len(cells) != 3:
                raise ResetRefused(f"{line!r} is no topic,partition,offset")
            offsets[TopicPartition(cells[0], int(cells[1]))] = int(cells[2])
    return offsets
