"""`odradek schedules`: lists what is pending in a schedule topic, cancels schedules, runs them now,
and pauses topics.

It reads the topic's log from its start and replays it, as the topic's leader does.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from odradek.cli.everyday.flags import add_connection, settings_of
from odradek.cli.everyday.words import NOTHING, duration_words, table_lines
from odradek.cli.terminal import takes_colours, tell
from odradek.cli.tools.connection import add_format, print_json, run_async
from odradek.client import Admin, ConfigChange, ConfigOperation, ConfigResource, Producer
from odradek.client.core.consuming.list_offsets import EARLIEST
from odradek.client.security import client_security
from odradek.client.settings import ADMIN_SETTINGS, PRODUCER_SETTINGS, ClientSettings
from odradek.client.sync import Cluster, PartitionReader
from odradek.client.sync.partition_reader import LATEST
from odradek.errors import BrokerError, ErrorCode, text_of
from odradek.log_limit import without_control
from odradek.model import TopicPartition
from odradek.records.reader import iter_records
from odradek.records.record import Record
from odradek.replication.schedule.instructions import DELIVER_AFTER, DELIVER_AT
from odradek.replication.schedule.listing import PENDING, Schedule, schedules_in
from odradek.replication.schedule.state import Release, ScheduleListener, ScheduleState
from odradek.suggestions import no_topic

_ENABLE: Final = "schedule.enable"
_TARGET: Final = "schedule.target.topic"
_RATE: Final = "schedule.release.max.rate"
_OF_ONE: Final = ("describe", "cancel", "run-now")


class NoSchedule(ValueError):
    """There is no such schedule or topic, or the action does not apply to it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser)
    add_format(parser, "for people")
    parser.add_argument("action", choices=("list", *_OF_ONE, "pause", "resume"))
    parser.add_argument("topic", metavar="TOPIC", help="a schedule topic")
    parser.add_argument("id", nargs="?", metavar="ID", help="the key of a schedule")
    parser.add_argument("--to", metavar="TOPIC", help="list those that go there")
    parser.add_argument("--rate", metavar="N", help="resume with N records a second and partition")


def run(arguments: argparse.Namespace) -> int:
    """Runs the action; 1 when there is no such topic or schedule."""
    if (arguments.id is None) == (arguments.action in _OF_ONE):
        needs = "needs" if arguments.id is None else "takes no"
        arguments.parser.error(f"{arguments.action} {needs} ID")

    async def work() -> int:
        config = settings_of(arguments, ADMIN_SETTINGS)
        async with Admin(config=config) as admin:
            target = await _target(admin, arguments.topic)
            if arguments.action in ("pause", "resume"):
                await _set_rate(admin, arguments)
                return 0
        with _Reader(config, arguments.topic, target) as reader:
            if arguments.action == "list":
                _print_list(reader.schedules(), arguments)
            elif arguments.action == "describe":
                _describe(reader, arguments)
            else:
                await _send(reader, arguments)
        return 0

    return run_async(work, lambda error: tell(text_of(error)))


async def _target(admin: Admin, topic: str) -> str | None:
    """Returns the target of the topic.

    Raises:
        NoSchedule: it is not a schedule topic, or not there.
        KafkaError: it cannot be asked.
    """
    resource = ConfigResource.topic(topic)
    found = (await admin.describe_configs([resource]))[resource]
    if isinstance(found, BrokerError) and found.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise NoSchedule(no_topic(topic, await admin.list_topics())) from found
    if isinstance(found, Exception):
        raise found
    settings = {name: entry.value for name, entry in found.items()}
    target = settings.get(_TARGET) or None
    if target is None and settings.get(_ENABLE) != "true":
        raise NoSchedule(f"{topic} is no schedule topic")
    return target


async def _set_rate(admin: Admin, arguments: argparse.Namespace) -> None:
    if arguments.action == "pause":
        change = ConfigChange(_RATE, "0")
    elif arguments.rate is not None:
        change = ConfigChange(_RATE, arguments.rate)
    else:
        change = ConfigChange(_RATE, None, ConfigOperation.DELETE)
    resource = ConfigResource.topic(arguments.topic)
    error = (await admin.alter_configs({resource: [change]}))[resource]
    if error is not None:
        raise error


async def _send(reader: "_Reader", arguments: argparse.Namespace) -> None:
    """Cancels a schedule or runs it now, and reports whether it had been released before."""
    schedule = reader.pending(arguments.id)
    config = settings_of(arguments, PRODUCER_SETTINGS)
    async with Producer(config=config) as producer:
        if arguments.action == "cancel":
            await producer.send_and_wait(
                arguments.topic, None, key=schedule.key, partition=schedule.partition
            )
        else:
            record = reader.record(schedule)
            headers = [
                each for each in record.headers if each[0] not in (DELIVER_AT, DELIVER_AFTER)
            ]
            await producer.send_and_wait(
                arguments.topic,
                record.value,
                key=schedule.key,
                partition=schedule.partition,
                headers=[*headers, (DELIVER_AFTER, b"0")],
            )
    if reader.was_released(schedule):
        raise NoSchedule(f"too late: {arguments.id} has been released")


def _print_list(schedules: list[Schedule], arguments: argparse.Namespace) -> None:
    shown = [each for each in schedules if arguments.to in (None, each.target)]
    if arguments.output == "json":
        print_json([_as_json(each) for each in shown])
        return
    now_ms = time.time_ns() // 1_000_000
    rows = [
        (
            _id(each) or NOTHING,
            str(each.partition),
            str(each.offset),
            _moment(each.due_ms),
            duration_words(max(0, each.due_ms - now_ms)),
            each.target or NOTHING,
            each.state + (", repeats" if each.repeats else ""),
        )
        for each in shown
    ]
    titles = ("ID", "#PARTITION", "#OFFSET", "DUE", "#IN", "TARGET", "STATE")
    print("\n".join(table_lines(titles, rows, colours=takes_colours(sys.stdout))))


def _describe(reader: "_Reader", arguments: argparse.Namespace) -> None:
    schedule = reader.pending(arguments.id)
    record = reader.record(schedule)
    facts = {
        **_as_json(schedule),
        "headers": {name: _text(content) for name, content in record.headers},
        "value": _text(record.value),
    }
    if arguments.output == "json":
        print_json(facts)
    else:
        print(
            "\n".join(
                f"{name}: {NOTHING if each is None else without_control(str(each))}"
                for name, each in facts.items()
            )
        )


def _as_json(schedule: Schedule) -> dict[str, object]:
    facts: dict[str, object] = {**schedule._asdict(), "id": _id(schedule)}
    del facts["key"]
    facts["due"] = _moment(schedule.due_ms)
    facts["expires_ms"] = None if schedule.expires_ms < 0 else schedule.expires_ms
    return facts


def _id(schedule: Schedule) -> str | None:
    return _text(schedule.key)


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "replace")


def _moment(time_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)  # beyond the calendar
    return f"{moment.isoformat()}.{time_ms % 1000:03}Z"


class _Released(ScheduleListener):
    """Remembers what has been released."""

    def __init__(self) -> None:
        self.offsets: set[int] = set()

    def on_release(self, release: Release) -> None:
        """See `ScheduleListener`."""
        self.offsets.update(pending.offset for pending, _ in release.items)


class _Reader:
    """Reads the log of a schedule topic."""

    def __init__(self, config: dict[str, object], topic: str, target: str | None) -> None:
        security = client_security(ClientSettings(ADMIN_SETTINGS, config, {}))
        self._cluster = Cluster(str(config["bootstrap.servers"]), security=security, limited_by="")
        self._topic = topic
        self._target = target

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    def schedules(self) -> list[Schedule]:
        """Returns all pending schedules, in the order of their due times."""
        found: list[Schedule] = []
        for where in self._partitions():
            state = ScheduleState(ScheduleListener())
            self._replay(where, state)
            found += schedules_in(where, state, self._target)
        return sorted(found, key=lambda each: (each.due_ms, each.partition, each.offset))

    def pending(self, name: str) -> Schedule:
        """Returns the schedule of an id.

        Raises:
            NoSchedule: none is pending, or several partitions have one.
        """
        found = [each for each in self.schedules() if _id(each) == name and each.state == PENDING]
        if len(found) != 1:
            where = ", ".join(f"{each.topic}-{each.partition}" for each in found)
            raise NoSchedule(
                f"{name!r} is pending in {where}" if found else f"no schedule {name!r} is pending"
            )
        return found[0]

    def record(self, schedule: Schedule) -> Record:
        """Returns the record that made a schedule."""
        where, offset = TopicPartition(*schedule[:2]), schedule.offset
        for chunk in PartitionReader(self._cluster, where).read(offset, offset + 1):
            for record in iter_records(chunk.records, drop_partial_tail=True):
                if record.offset == offset:
                    return record
        raise NoSchedule(f"the record at offset {offset} of {where} is gone")

    def was_released(self, schedule: Schedule) -> bool:
        """Whether a schedule went to its target before it was cancelled or run by this command."""
        released = _Released()
        self._replay(TopicPartition(*schedule[:2]), ScheduleState(released))
        return schedule.offset in released.offsets

    def _partitions(self) -> Iterator[TopicPartition]:
        count = len(self._cluster.topics([self._topic])[self._topic].partitions)
        return (TopicPartition(self._topic, index) for index in range(count))

    def _replay(self, where: TopicPartition, state: ScheduleState) -> None:
        start = self._cluster.list_offsets({where: EARLIEST})[where] or 0
        end = self._cluster.list_offsets({where: LATEST})[where] or 0
        state.position = start
        for chunk in PartitionReader(self._cluster, where).read(start, end):
            state.replay(bytes(chunk.records))
