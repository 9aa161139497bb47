"""`kafka-verifiable-consumer.sh`: reads a topic as a member of a group, and prints what it was
assigned, read and committed, an event each."""

import argparse
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from odradek.cli.tools.connection import client_config, run_async
from odradek.cli.tools.verifiable.events import (
    Ending,
    add_shared_arguments,
    check_arguments,
    tell,
)
from odradek.cli.tools.wording.java_names import java_sentence
from odradek.cli.tools.wording.java_values import converted
from odradek.client import Consumer
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.errors import FencedInstance, KafkaError, WokenUp
from odradek.client.settings import CONSUMER_SETTINGS
from odradek.errors import text_of
from odradek.model import TopicPartition

_CLASSIC: Final = "classic"
_PROTOCOLS: Final = (_CLASSIC, "consumer")
_RANGE: Final = "org.apache.kafka.clients.consumer.RangeAssignor"
# How long to wait for records at a time; there is no end to it.
_POLL_MS: Final = 60_000

_Records = Mapping[TopicPartition, Sequence[ConsumerRecord]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_shared_arguments(parser, "--consumer.config")
    parser.add_argument("--group-protocol", default=_CLASSIC, metavar="|".join(_PROTOCOLS))
    parser.add_argument(
        "--group-remote-assignor", metavar="NAME", help="with the consumer protocol"
    )
    parser.add_argument("--group-id", metavar="NAME")
    parser.add_argument("--group-instance-id", metavar="ID")
    parser.add_argument("--session-timeout", type=converted("Integer"), metavar="MS")
    parser.add_argument("--verbose", action="store_true", help="print every record")
    parser.add_argument("--enable-autocommit", action="store_true")
    parser.add_argument("--reset-policy", default="earliest", metavar="earliest|latest|none")
    parser.add_argument(
        "--assignment-strategy",
        default=_RANGE,
        metavar="CLASS",
        help=f"with the classic protocol (default: {_RANGE})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Reads until it has enough records, or until it is stopped."""
    arguments.command_property = [f"{name}={value}" for name, value in _flags(arguments).items()]
    check_arguments(arguments, "topic", "group-id")
    return run_async(
        partial(_work, arguments),
        lambda error: print(text_of(error), file=sys.stderr),
        shows_log=True,
    )


def _flags(arguments: argparse.Namespace) -> dict[str, object]:
    """Returns the settings of flags; each overrides the file's, even if only by its default."""
    flags = {
        "group.protocol": arguments.group_protocol,
        "group.id": arguments.group_id,
        "group.instance.id": arguments.group_instance_id,
        "session.timeout.ms": arguments.session_timeout,
        "enable.auto.commit": str(arguments.enable_autocommit).lower(),
        "auto.offset.reset": arguments.reset_policy,
    }
    if arguments.group_protocol.lower() == _CLASSIC:
        flags["partition.assignment.strategy"] = arguments.assignment_strategy
    else:
        flags["group.remote.assignor"] = arguments.group_remote_assignor
    return {name: value for name, value in flags.items() if value is not None}


async def _work(arguments: argparse.Namespace) -> int:
    consumer = Consumer(config=client_config(arguments, CONSUMER_SETTINGS))

    def stop() -> None:
        consumer.wakeup()
        tell("shutdown_requested")

    ending = Ending(stop)
    try:
        await _Reading(consumer, arguments).run()
    finally:
        await consumer.close()
        tell("shutdown_complete")
        if not ending.is_asked:
            tell("shutdown_requested")  # as Kafka's tool also reports at its own end
    return ending.status


class _Reading:
    """One run: reads, commits, and follows rebalances."""

    def __init__(self, consumer: Consumer, arguments: argparse.Namespace) -> None:
        self._consumer = consumer
        self._topic: str = arguments.topic
        self._most: int = arguments.max_messages
        self._commits: bool = not arguments.enable_autocommit
        self._is_verbose: bool = arguments.verbose
        self._count = 0

    async def run(self) -> None:
        """Reads until it has enough records. An error is printed on standard error and ends the
        tool as usual, as in Kafka's tool.
        """
        tell("startup_complete")
        self._consumer.subscribe([self._topic], listener=self)
        try:
            while not self._is_enough:
                found = await self._consumer.getmany(timeout_ms=_POLL_MS)
                if found:
                    await self._take(found)
        except WokenUp:
            pass  # somebody wants it to end
        except KafkaError as error:
            print(text_of(error), file=sys.stderr)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Prints the assigned partitions."""
        tell("partitions_assigned", partitions=[_place(each) for each in partitions])

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Prints the revoked partitions."""
        tell("partitions_revoked", partitions=[_place(each) for each in partitions])

    on_partitions_lost = on_partitions_revoked

    @property
    def _is_enough(self) -> bool:
        return 0 <= self._most <= self._count

    async def _take(self, found: _Records) -> None:
        wanted = self._as_many_as_wanted(found)
        if self._is_verbose:
            for record in (each for records in wanted.values() for each in records):
                _tell_record(record)
        tell(
            "records_consumed",
            count=sum(map(len, found.values())),
            partitions=[_summary(*each) for each in wanted.items()],
        )
        if self._commits:
            await self._commit({each: records[-1].offset + 1 for each, records in wanted.items()})

    def _as_many_as_wanted(self, found: _Records) -> _Records:
        wanted: dict[TopicPartition, Sequence[ConsumerRecord]] = {}
        for partition, records in found.items():
            left = len(records) if self._most < 0 else self._most - self._count
            if left:
                wanted[partition] = records[:left]
                self._count += len(wanted[partition])
        return wanted

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        tell_commit: Callable[..., None] = partial(
            tell,
            "offsets_committed",
            offsets=[{**_place(each), "offset": offset} for each, offset in offsets.items()],
        )
        try:
            await self._consumer.commit(offsets)
        except WokenUp:
            await self._commit(offsets)  # nobody wakes it a second time
            raise
        except FencedInstance:
            raise
        except KafkaError as error:
            tell_commit(error=java_sentence(error), success=False)
        else:
            tell_commit(success=True)


def _place(partition: TopicPartition) -> dict[str, object]:
    return {"topic": partition.topic, "partition": partition.partition}


def _summary(partition: TopicPartition, records: Sequence[ConsumerRecord]) -> dict[str, object]:
    ends = {"minOffset": records[0].offset, "maxOffset": records[-1].offset}
    return {**_place(partition), "count": len(records), **ends}


def _tell_record(record: ConsumerRecord) -> None:
    place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    tell("record_data", key=_text(record.key), value=_text(record.value), **place)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
