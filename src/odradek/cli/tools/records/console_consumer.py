"""`odradek console-consumer`: prints records, as `kafka-console-consumer.sh` does.

Keys and values are written as they are, bytes included. What went by is told on standard error.
"""

import argparse
import random
import sys
from collections.abc import Callable
from typing import Final

from odradek.cli.tools.connection import (
    add_connection,
    add_old_flag,
    client_config,
    java_pattern,
    reach_brokers,
    read_properties,
    require,
    require_one,
    run_async,
    take_old_flags,
    text_of,
)
from odradek.cli.tools.wording.java_values import java_int, java_long, text_reader
from odradek.client import Consumer
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.errors import BadRecord
from odradek.client.settings import CONSUMER_SETTINGS
from odradek.model import TopicPartition

_TIMESTAMP_TYPES: Final = {0: "CreateTime", 1: "LogAppendTime"}
_FORMATTERS: Final = (
    "DefaultMessageFormatter",
    "LoggingMessageFormatter",
    "NoOpMessageFormatter",
)
# How many records there is no end to.
_ALL: Final = -1
_POLL_MS: Final = 500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(
        parser,
        old_config_flag="--consumer.config",
        old_property_flag="--consumer-property",
    )
    parser.add_argument("--topic", metavar="NAME")
    parser.add_argument("--include", "--whitelist", metavar="PATTERN")
    parser.add_argument("--partition", type=java_int, metavar="N")
    parser.add_argument("--offset", type=str.lower, metavar="N|earliest|latest")
    parser.add_argument("--from-beginning", action="store_true")
    parser.add_argument("--max-messages", type=java_int, default=_ALL, metavar="N")
    parser.add_argument("--timeout-ms", type=java_long, default=-1, metavar="MS")
    parser.add_argument("--group", metavar="NAME")
    parser.add_argument(
        "--isolation-level", choices=("read_committed", "read_uncommitted"), default=None
    )
    parser.add_argument("--formatter", default=_FORMATTERS[0], metavar="CLASS")
    parser.add_argument("--formatter-property", action="append", default=[], metavar="K=V")
    add_old_flag(parser, "--property", "--formatter-property", action="append")
    parser.add_argument("--formatter-config", metavar="FILE")
    parser.add_argument("--key-deserializer", default="", metavar="CLASS")
    parser.add_argument("--value-deserializer", default="", metavar="CLASS")
    parser.add_argument("--skip-message-on-error", action="store_true")
    parser.add_argument("--enable-systest-events", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Prints until there is nothing more to print, or somebody stops it."""
    require_one(arguments, ("topic", "include"))
    if arguments.partition is None and arguments.offset is not None:
        arguments.parser.error("The partition is required when offset is specified.")
    if arguments.partition is not None and arguments.topic is None:
        arguments.parser.error("The topic is required when partition is specified.")
    if arguments.partition is not None and arguments.partition < 0:
        arguments.parser.error(f"'{arguments.partition}' is no partition")
    if arguments.from_beginning and arguments.offset is not None:
        arguments.parser.error("Options from-beginning and offset cannot be specified together.")
    require(arguments, "bootstrap-server")
    take_old_flags(arguments, "--command-property", "--command-config")
    if arguments.partition is not None and arguments.group is not None:
        arguments.parser.error("Options group and partition cannot be specified together.")
    if arguments.offset is not None and not _is_offset(arguments.offset):
        arguments.parser.error(
            f"The provided offset value '{arguments.offset}' is incorrect. Valid values are "
            "'earliest', 'latest', or a non-negative long."
        )
    if arguments.formatter.rpartition(".")[2] not in _FORMATTERS:
        arguments.parser.error(
            f"--formatter: there are no Java classes here, only {', '.join(_FORMATTERS)}"
        )
    take_old_flags(arguments, "--formatter-property")
    processed: int | None = None
    most: int = arguments.max_messages

    async def work() -> int:
        nonlocal processed
        write = _formatter(arguments)
        config = _config(arguments)
        processed = 0
        await reach_brokers(config)
        async with Consumer(config=config) as consumer:
            await _begin(consumer, arguments)
            while processed < most or most == _ALL:
                wait_ms = _POLL_MS if arguments.timeout_ms < 0 else max(1, arguments.timeout_ms)
                limit = None if most == _ALL else min(500, most - processed)
                try:
                    found = await consumer.getmany(timeout_ms=wait_ms, max_records=limit)
                except BadRecord as error:
                    if not arguments.skip_message_on_error:
                        raise
                    print(text_of(error), file=sys.stderr)
                    consumer.seek(error.partition, error.offset + 1)
                    continue
                for record in (each for records in found.values() for each in records):
                    processed += 1
                    try:
                        write(record)
                    except ValueError as error:
                        if not arguments.skip_message_on_error:
                            raise
                        print(text_of(error), file=sys.stderr)
                sys.stdout.flush()
                if not found and arguments.timeout_ms >= 0:
                    break
        return 0

    try:
        return run_async(work, lambda error: print(text_of(error), file=sys.stderr))
    finally:
        if processed is not None:
            print(f"Processed a total of {processed} messages", file=sys.stderr)


def _config(arguments: argparse.Namespace) -> dict[str, object]:
    config = client_config(arguments, CONSUMER_SETTINGS)
    group = arguments.group
    if group is not None and config.setdefault("group.id", group) != group:
        raise ValueError(
            "The group ids provided in different places (directly using '--group', via "
            "'--consumer-property', or via '--consumer.config') do not match. Detected group ids: "
            f"'{group}', '{config['group.id']}'"
        )
    if "group.id" not in config:
        # Kafka's tool makes up a group; nothing is committed for it.
        config["group.id"] = f"console-consumer-{random.randrange(100_000)}"
        config.setdefault("enable.auto.commit", "false")
    elif arguments.partition is not None:
        raise ValueError("Options group and partition cannot be specified together.")
    if arguments.isolation_level is not None:
        config["isolation.level"] = arguments.isolation_level
    beginning = "earliest" if arguments.from_beginning else "latest"
    reset = config.setdefault("auto.offset.reset", beginning)
    if arguments.from_beginning and reset != beginning:
        raise ValueError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', "
            "please remove one option"
        )
    config.setdefault("client.id", "console-consumer")
    return config


async def _begin(consumer: Consumer, arguments: argparse.Namespace) -> None:
    if arguments.partition is None:
        if arguments.topic is not None:
            consumer.subscribe([arguments.topic])
        else:
            consumer.subscribe(pattern=java_pattern(arguments.include).pattern)
        return
    partition = TopicPartition(arguments.topic, arguments.partition)
    consumer.assign([partition])
    offset = arguments.offset or ("earliest" if arguments.from_beginning else "latest")
    if offset == "earliest":
        await consumer.seek_to_beginning(partition)
    elif offset == "latest":
        await consumer.seek_to_end(partition)
    else:
        consumer.seek(partition, int(offset))


def _is_offset(text: str) -> bool:
    try:
        return text in ("earliest", "latest") or java_long(text) >= 0
    except ValueError:
        return False


# --- the shape of a record ----------------------------------------------------------------------


def _formatter(arguments: argparse.Namespace) -> Callable[[ConsumerRecord], None]:
    properties: dict[str, str] = {}
    if arguments.formatter_config:
        properties = read_properties(arguments.formatter_config)
    for each in arguments.formatter_property:
        name, _, value = each.partition("=")
        properties[name.strip()] = value
    if arguments.formatter.rpartition(".")[2] == "NoOpMessageFormatter":
        return lambda _: None
    return _Formatter(properties, arguments.key_deserializer, arguments.value_deserializer).write


class _Formatter:
    """Writes a record as Kafka's default formatter does."""

    def __init__(self, properties: dict[str, str], key_class: str, value_class: str) -> None:
        def flag(name: str, default: bool = False) -> bool:
            return properties.get(name, str(default)).strip().lower() == "true"

        def text(name: str, default: str) -> bytes:
            return properties.get(name, default).encode()

        self._prints = {
            part: flag(f"print.{part}", part == "value")
            for part in ("timestamp", "partition", "offset", "epoch", "headers", "key", "value")
        }
        self._key_separator = text("key.separator", "\t")
        self._line_separator = text("line.separator", "\n")
        self._headers_separator = text("headers.separator", ",")
        self._null = text("null.literal", "null")
        self._key = text_reader(properties.get("key.deserializer", key_class))
        self._value = text_reader(properties.get("value.deserializer", value_class))
        self._header = text_reader(properties.get("headers.deserializer", ""))

    def write(self, record: ConsumerRecord) -> None:
        """Writes one record."""
        parts: list[bytes] = []
        if self._prints["timestamp"]:
            kind = _TIMESTAMP_TYPES.get(record.timestamp_type)
            shown = "NO_TIMESTAMP" if record.timestamp < 0 else f"{kind}:{record.timestamp}"
            parts.append(shown.encode())
        if self._prints["partition"]:
            parts.append(b"Partition:%d" % record.partition)
        if self._prints["offset"]:
            parts.append(b"Offset:%d" % record.offset)
        if self._prints["epoch"]:
            # As Kafka's tool has it, which does not hand the epoch of a record to its formatter.
            parts.append(b"Epoch:NOT_PRESENT")
        if self._prints["headers"]:
            parts.append(self._headers(record))
        if self._prints["key"]:
            parts.append(self._null if record.key is None else self._key(record.key))
        if self._prints["value"]:
            parts.append(self._null if record.value is None else self._value(record.value))
        sys.stdout.buffer.write(self._key_separator.join(parts) + self._line_separator)

    def _headers(self, record: ConsumerRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self._headers_separator.join(
            name.encode() + b":" + (self._null if value is None else self._header(value))
            for name, value in record.headers
        )
