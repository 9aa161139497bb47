"""`odradek console-share-consumer`: prints the records that a share group acquires, as
`kafka-console-share-consumer.sh` does.

Every record is accepted once it is printed, or released or rejected instead. The number of records
is printed on standard error.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Final

from odradek.cli.tools.connection import (
    add_connection,
    client_config,
    reach_brokers,
    require,
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
from odradek.client import AcknowledgeType, ShareConsumer
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.errors import BadRecord
from odradek.client.settings import SHARE_CONSUMER_SETTINGS
from odradek.errors import text_of

_GROUP: Final = "console-share-consumer"
_MOST_AT_ONCE: Final = 500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(
        parser,
        old_config_flag="--consumer-config",
        old_property_flag="--consumer-property",
    )
    parser.add_argument("--topic", metavar="NAME")
    parser.add_argument("--group", metavar="NAME", help=f"(default: {_GROUP})")
    parser.add_argument("--max-messages", type=java_int, default=ALL, metavar="N")
    parser.add_argument("--timeout-ms", type=java_long, default=-1, metavar="MS")
    parser.add_argument("--reject", action="store_true", help="reject records as they are printed")
    parser.add_argument(
        "--release", action="store_true", help="release records as they are printed"
    )
    parser.add_argument("--reject-message-on-error", action="store_true")
    add_formatter(parser)
    add_events(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints until there is nothing more to print, or until it is stopped."""
    require(arguments, "topic", "bootstrap-server")
    if arguments.reject and arguments.release:
        arguments.parser.error("At most one of --reject and --release may be specified.")
    take_old_flags(arguments, "--command-property", "--command-config")
    check_formatter(arguments)
    take_old_flags(arguments, "--formatter-property")
    printed = Printed(arguments)

    async def work() -> int:
        write = formatter_of(arguments)
        config = client_config(arguments, SHARE_CONSUMER_SETTINGS)
        group = named_group(arguments, config, "--consumer-config")
        config["group.id"] = _GROUP if group is None else group
        config["share.acknowledgement.mode"] = "explicit"
        config.setdefault("client.id", _GROUP)
        async with ShareConsumer(config=config, topics=[arguments.topic]) as consumer:
            printed.has_begun = True
            await reach_brokers(config)
            await _print(consumer, arguments, write, printed)
        return 0

    return run_printing(work, printed)


async def _print(
    consumer: ShareConsumer,
    arguments: argparse.Namespace,
    write: Callable[[ConsumerRecord], None],
    printed: Printed,
) -> None:
    said = AcknowledgeType.ACCEPT
    if arguments.reject:
        said = AcknowledgeType.REJECT
    elif arguments.release:
        said = AcknowledgeType.RELEASE
    while not printed.is_enough:
        limit = printed.left or _MOST_AT_ONCE
        try:
            found = await consumer.getmany(timeout_ms=printed.wait_ms, max_records=limit)
        except BadRecord as error:
            if not arguments.reject_message_on_error:
                raise
            print(text_of(error), file=sys.stderr)
            continue
        for record in (each for records in found.values() for each in records):
            printed.count += 1
            try:
                write(record)
                consumer.acknowledge(record, said)
            except ValueError as error:
                if not arguments.reject_message_on_error:
                    raise
                print(text_of(error), file=sys.stderr)
                consumer.acknowledge(record, AcknowledgeType.REJECT)
        sys.stdout.flush()
        if not (found or printed.is_patient):
            break
