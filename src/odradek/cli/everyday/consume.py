"""`odradek consume`: prints records of topics between two positions, filtered by conditions.

Without `--follow` it prints the records that exist when it begins, and ends. Records of a partition
are printed in order. With `-g` it reads as a member of a group and commits the offsets of printed
records.
"""

import argparse
import re
import sys
import time
from collections.abc import Iterable
from typing import Final

from odradek.cli.arguments import natural_number, positive_number
from odradek.cli.everyday import record_formats
from odradek.cli.everyday.conditions import Condition, parse_condition
from odradek.cli.everyday.flags import add_connection, settings_of
from odradek.cli.everyday.places import Base, Place, offsets_at, parse_place
from odradek.cli.everyday.record_formats import RecordFormat
from odradek.cli.everyday.words import counted, size_words
from odradek.cli.terminal import takes_colours, tell
from odradek.cli.tools.connection import (
    name_pattern,
    reach_brokers,
    run_async,
    silent_clients,
    topic_names,
)
from odradek.client import Consumer
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.errors import BadRecord, StaleMetadata
from odradek.client.settings import CONSUMER_SETTINGS
from odradek.errors import text_of
from odradek.model import TopicPartition
from odradek.suggestions import no_topic

_POLL_MS: Final = 250
_PROGRESS_S: Final = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser)
    parser.add_argument("topic", nargs="+", metavar="TOPIC")
    parser.add_argument(
        "-o",
        "--offset",
        metavar="PLACE",
        help="begin at: start, end, N, -N (before the end), +N, @TIME (default: start, "
        "with --follow end); TIME is 2024-05-01T12:00, milliseconds, or -1h30m for ago",
    )
    parser.add_argument("--until", metavar="PLACE", help="end before this place")
    parser.add_argument(
        "-p", "--partition", type=natural_number, action="append", metavar="N", help="only this one"
    )
    parser.add_argument("-n", "--count", type=positive_number, metavar="N", help="at most so many")
    parser.add_argument(
        "-w",
        "--where",
        action="append",
        default=[],
        metavar="CONDITION",
        help="only such as: key=abc, value.user.id>7, header.trace~^a; may be repeated",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("-f", dest="line_format", metavar="FORMAT", help="see below")
    shape.add_argument(
        "--format", choices=("text", "json"), default="text", help="lines, or an object a record"
    )
    parser.add_argument("--follow", action="store_true", help="continue with new records")
    parser.add_argument("-g", "--group", metavar="NAME", help="as a member of a group")
    parser.add_argument(
        "--read-committed", action="store_true", help="nothing of transactions that are not ended"
    )


def epilog() -> str:
    """Returns the end of the `--help` text."""
    fields = (record_formats.__doc__ or "").partition("\n\n")[2]
    return f"FORMAT: {fields}"


def run(arguments: argparse.Namespace) -> int:
    """Prints the records; 1 when some cannot be read, or a broker refuses."""
    now_ms = time.time_ns() // 1_000_000
    try:
        conditions = [parse_condition(each) for each in arguments.where]
        show = _record_format(arguments)
        begin = parse_place(arguments.offset or ("end" if arguments.follow else "start"), now_ms)
        until = None if arguments.until is None else parse_place(arguments.until, now_ms)
    except ValueError as error:
        arguments.parser.error(str(error))
    if arguments.group and (arguments.partition or until is not None):
        arguments.parser.error("a member of a group cannot choose partitions nor where it ends")
    if arguments.group and arguments.offset and begin not in (Place(Base.START, 0), _END):
        arguments.parser.error("a group begins where it stands, else at start or end")
    output = _Output(show, conditions, arguments.count)

    async def work() -> int:
        config = _config(arguments, begin)
        if arguments.group:
            with silent_clients():
                await reach_brokers(config)
        async with Consumer(config=config) as consumer:
            if arguments.group:
                await _read_as_member(consumer, arguments, output)
            else:
                await _read(consumer, arguments, begin, until, output)
        return 1 if output.unreadable else 0

    try:
        return run_async(
            work,
            lambda error: tell(text_of(error)),
            shows_log=arguments.follow or arguments.group is not None,
        )
    finally:
        output.end()


_END: Final = Place(Base.END, 0)


def _record_format(arguments: argparse.Namespace) -> RecordFormat:
    if arguments.format == "json":
        return record_formats.json_line
    if arguments.line_format is not None:
        return record_formats.parse_format(arguments.line_format)
    return record_formats.line_for_people(
        shows_topic=len(arguments.topic) > 1, colours=takes_colours(sys.stdout)
    )


def _config(arguments: argparse.Namespace, begin: Place) -> dict[str, object]:
    config = settings_of(arguments, CONSUMER_SETTINGS)
    config.setdefault("client.id", "odradek-consume")
    if arguments.group:
        config["group.id"] = arguments.group
        config["auto.offset.reset"] = "latest" if begin == _END else "earliest"
    if arguments.read_committed:
        config["isolation.level"] = "read_committed"
    return config


class _Output:
    """Writes the selected records; shows progress if the terminal does not show the records."""

    def __init__(
        self, show: RecordFormat, conditions: Iterable[Condition], count: int | None
    ) -> None:
        self._show = show
        self._conditions = list(conditions)
        self._left = count
        self._tells = sys.stderr.isatty() and not sys.stdout.isatty()
        self._told_s = 0.0
        self._records = self._bytes = 0
        self.unreadable = 0

    @property
    def is_full(self) -> bool:
        """Whether the requested number of records was written."""
        return self._left == 0

    def most(self) -> int | None:
        """How many more records may be taken."""
        return None if self._left is None else min(self._left, 500)

    def write(self, records: Iterable[ConsumerRecord]) -> None:
        """Writes those of the records that are selected."""
        for record in records:
            if self.is_full:
                break
            if all(condition(record) for condition in self._conditions):
                self._bytes += sys.stdout.buffer.write(self._show(record))
                self._records += 1
                if self._left is not None:
                    self._left -= 1
        sys.stdout.flush()
        now_s = time.monotonic()
        if self._tells and now_s - self._told_s > _PROGRESS_S:
            self._told_s = now_s
            self._tell()

    def skip(self, error: BadRecord, consumer: Consumer) -> None:
        """Reports that a record cannot be read, and goes on after it."""
        self.unreadable += 1
        tell(text_of(error))
        consumer.seek(error.partition, error.offset + 1)

    def end(self) -> None:
        """Prints the last line of the progress."""
        if self._tells:
            self._tell()
            print(file=sys.stderr)

    def _tell(self) -> None:
        text = f"\r{counted(self._records, 'record')}, {size_words(self._bytes)}\x1b[K"
        print(text, end="", file=sys.stderr, flush=True)


async def _read(
    consumer: Consumer,
    arguments: argparse.Namespace,
    begin: Place,
    until: Place | None,
    output: _Output,
) -> None:
    with silent_clients():
        partitions = await _partitions(consumer, arguments)
    if until is None:
        until = None if arguments.follow else _END
    starts = await offsets_at(begin, consumer, partitions)
    stops = {} if until is None else await offsets_at(until, consumer, partitions)
    pending = {each for each in partitions if each not in stops or starts[each] < stops[each]}
    consumer.assign(pending)
    for partition in pending:
        consumer.seek(partition, starts[partition])
    while pending and not output.is_full:
        try:
            found = await consumer.getmany(timeout_ms=_POLL_MS)
        except BadRecord as error:
            output.skip(error, consumer)
            found = {}
        for partition, records in found.items():
            stop = stops.get(partition)
            output.write(each for each in records if stop is None or each.offset < stop)
        for partition in [each for each in pending if each in stops]:
            # Offsets at the end without records, after compaction or aborts, are skipped.
            if await consumer.position(partition) >= stops[partition]:
                pending.discard(partition)
                consumer.pause(partition)


async def _partitions(consumer: Consumer, arguments: argparse.Namespace) -> list[TopicPartition]:
    """The partitions to read.

    Raises:
        ValueError: a topic does not exist, or does not have the named partition. KafkaError: it
            cannot be asked.
    """
    found: list[TopicPartition] = []
    for name in dict.fromkeys(arguments.topic):
        try:
            topic = await consumer.partitions_for(name)
        except StaleMetadata as error:
            known = await topic_names(_config(arguments, _END))
            raise ValueError(no_topic(name, known)) from error
        wanted = list(topic.partitions)
        if arguments.partition:
            chosen = {TopicPartition(name, index) for index in arguments.partition}
            missing = sorted(each.partition for each in chosen.difference(wanted))
            if missing:
                raise ValueError(f"{name} has no partition {missing[0]}, but {len(wanted)} of them")
            wanted = sorted(chosen)
        found.extend(wanted)
    return found


async def _read_as_member(
    consumer: Consumer, arguments: argparse.Namespace, output: _Output
) -> None:
    if len(arguments.topic) == 1 and arguments.topic[0].startswith("^"):
        expression = re.sub(r"^\^|\$$", "", arguments.topic[0])
        name_pattern(expression)
        consumer.subscribe(pattern=expression)
    else:
        consumer.subscribe(arguments.topic)
    ends: dict[TopicPartition, int] = {}
    while not output.is_full:
        try:
            found = await consumer.getmany(timeout_ms=_POLL_MS, max_records=output.most())
        except BadRecord as error:
            output.skip(error, consumer)
            continue
        for records in found.values():
            output.write(records)
        assigned = consumer.assignment()
        if not arguments.follow and assigned:
            if ends.keys() != assigned:
                ends = await consumer.end_offsets(assigned)
            positions = {each: await consumer.position(each) for each in assigned}
            if all(positions[each] >= end for each, end in ends.items()):
                return
