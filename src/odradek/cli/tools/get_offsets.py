"""`odradek get-offsets`: offsets for a time or an end, as `kafka-get-offsets.sh` prints them."""

import argparse
import re
import sys
from typing import Final

from odradek.cli.tools.connection import (
    add_connection,
    add_format,
    check_host_and_port,
    client_config,
    name_pattern,
    print_json,
    require,
    run_async,
)
from odradek.cli.tools.wording.java_names import java_text
from odradek.cli.tools.wording.java_values import java_int, java_long
from odradek.client import Admin
from odradek.client.core.consuming.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from odradek.client.errors import KafkaError
from odradek.errors import text_of
from odradek.expressions import Match
from odradek.model import TopicPartition

_WORDS: Final = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
    "earliest-pending-upload": EARLIEST_PENDING_UPLOAD,
}
_EVERYTHING: Final = (0, 1 << 31)
_RULE: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser)
    add_format(parser)
    parser.add_argument("--topic", metavar="PATTERN", help="the topics whose names match")
    parser.add_argument("--partitions", metavar="P,P", help="only these partitions")
    parser.add_argument(
        "--topic-partitions", metavar="TOPIC:P-P,..", help="patterns with partitions or ranges"
    )
    parser.add_argument(
        "--time", default="latest", metavar="MS", help="a timestamp, -1 to -6, or its word"
    )
    parser.add_argument("--exclude-internal-topics", "--exclude-internal", action="store_true")


def run(arguments: argparse.Namespace) -> int:
    """Prints the offsets."""
    require(arguments, "bootstrap-server")
    check_host_and_port(arguments)
    if arguments.topic_partitions and (arguments.topic or arguments.partitions):
        arguments.parser.error("--topic-partitions cannot be used with --topic or --partitions")

    async def work() -> int:
        question = _time(arguments.time)
        async with Admin(config=client_config(arguments)) as admin:
            wanted = await _selected(admin, arguments)
            if not wanted:
                raise ValueError("Could not match any topic-partitions with the specified filters")
            answers = await admin.list_offsets(dict.fromkeys(wanted, question))
        rows = []
        for (topic, index), answer in sorted(answers.items(), key=lambda each: str(each[0][0])):
            if isinstance(answer, KafkaError):
                print(
                    f"Skip getting offsets for topic-partition {topic}-{index} due to error: "
                    f"{java_text(answer)}",
                    file=sys.stderr,
                )
            elif answer.offset >= 0:
                rows.append((topic, index, answer.offset))
        if arguments.output == "json":
            keys = ("topic", "partition", "offset")
            print_json([dict(zip(keys, row, strict=True)) for row in rows])
        else:
            for row in rows:
                print(":".join(map(str, row)))
        return 0

    def say(error: Exception) -> None:
        print(f"Error occurred: {text_of(error)}", file=sys.stderr)

    return run_async(work, say)


def _time(text: str) -> int:
    if text in _WORDS:
        return _WORDS[text]
    try:
        return java_long(text)
    except ValueError:
        raise ValueError(
            f"Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or "
            "max-timestamp / -4 or earliest-local / -5 or latest-tiered / -6 or "
            "earliest-pending-upload, or a specified long format timestamp"
        ) from None


async def _selected(admin: Admin, arguments: argparse.Namespace) -> list[TopicPartition]:
    filters = _filters(arguments)
    return sorted(
        (
            partition
            for topic in (await admin.list_topics()).values()
            if not (topic.is_internal and arguments.exclude_internal_topics)
            for partition in topic.partitions
            if any(
                match(topic.name) and low <= partition.partition < high
                for match, ranges in filters
                for low, high in ranges
            )
        ),
        key=lambda each: (each.topic, each.partition),
    )


def _filters(
    arguments: argparse.Namespace,
) -> list[tuple[Match, list[tuple[int, int]]]]:
    if arguments.topic_partitions:
        return [_rule(each) for each in arguments.topic_partitions.rstrip(",").split(",")]
    ranges = [_EVERYTHING]
    if arguments.partitions:
        ranges = _listed(arguments.partitions)
    return [(name_pattern((arguments.topic or ".*").replace(",", "|")), ranges)]


def _rule(text: str) -> tuple[Match, list[tuple[int, int]]]:
    """Reads a topic pattern, followed by `3`, `3-5` (without 5), `3-`, `-5` or nothing."""
    found = _RULE.fullmatch(text)
    if found is None:
        raise ValueError(
            f"org.apache.kafka.tools.TerseException: Invalid rule specification: {text}"
        )
    name, index, low, high = found.groups()
    match = name_pattern(name or ".*")
    if index:
        return match, [(int(index), int(index) + 1)]
    return match, [(int(low or _EVERYTHING[0]), int(high or _EVERYTHING[1]))]


def _listed(text: str) -> list[tuple[int, int]]:
    try:
        found = [java_int(each.strip()) for each in text.split(",") if each]
    except ValueError:
        raise ValueError(
            "--partitions expects a comma separated list of numeric partition ids, but received: "
            + text
        ) from None
    return [(each, each + 1) for each in found]
