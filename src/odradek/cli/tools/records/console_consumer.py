"""`odradek console-consumer`: prints records, as `kafka-console-consumer.sh` does.

Keys and values are written as they are, bytes included. The number of records is printed on
standard error.
"""

import argparse
import random
import sys

from odradek.cli.tools.connection import (
    add_connection,
    client_config,
    name_pattern,
    reach_brokers,
    require,
    require_one,
    take_old_flags,
)
from odradek.cli.tools.records.group_ids import named_group
from odradek.cli.tools.records.message_formatter import (
    add_formatter,
    check_formatter,
    formatter_of,
)
from odradek.cli.tools.records.printing import ALL, Printed, add_events, run_printing
from odradek.cli.tools.wording.java_values import java_int, java_long
from odradek.client import Consumer
from odradek.client.errors import BadRecord
from odradek.client.settings import CONSUMER_SETTINGS
from odradek.errors import text_of
from odradek.model import TopicPartition


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
    parser.add_argument("--max-messages", type=java_int, default=ALL, metavar="N")
    parser.add_argument("--timeout-ms", type=java_long, default=-1, metavar="MS")
    parser.add_argument("--group", metavar="NAME")
    parser.add_argument(
        "--isolation-level", choices=("read_committed", "read_uncommitted"), default=None
    )
    add_formatter(parser)
    parser.add_argument("--skip-message-on-error", action="store_true")
    add_events(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints until there is nothing more to print, or until it is stopped."""
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
    check_formatter(arguments)
    take_old_flags(arguments, "--formatter-property")
    printed = Printed(arguments)

    async def work() -> int:
        write = formatter_of(arguments)
        config = _config(arguments)
        async with Consumer(config=config) as consumer:
            printed.has_begun = True
            await reach_brokers(config)
            await _begin(consumer, arguments)
            while not printed.is_enough:
                try:
                    found = await consumer.getmany(
                        timeout_ms=printed.wait_ms, max_records=printed.left
                    )
                except BadRecord as error:
                    if not arguments.skip_message_on_error:
                        raise
                    print(text_of(error), file=sys.stderr)
                    consumer.seek(error.partition, error.offset + 1)
                    continue
                for record in (each for records in found.values() for each in records):
                    printed.count += 1
                    try:
                        write(record)
                    except ValueError as error:
                        if not arguments.skip_message_on_error:
                            raise
                        print(text_of(error), file=sys.stderr)
                sys.stdout.flush()
                if not (found or printed.is_patient):
                    break
        return 0

    return run_printing(work, printed)


def _config(arguments: argparse.Namespace) -> dict[str, object]:
    config = client_config(arguments, CONSUMER_SETTINGS)
    group = named_group(arguments, config, "--consumer.config")
    if group is None:
        # Kafka's tool makes up a group; nothing is committed for it.
        config["group.id"] = f"console-consumer-{random.randrange(100_000)}"
        config.setdefault("enable.auto.commit", "false")
    elif arguments.partition is not None:
        raise ValueError("Options group and partition cannot be specified together.")
    else:
        config["group.id"] = group
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
            name_pattern(arguments.include)
            consumer.subscribe(pattern=arguments.include)
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
