"""`odradek leader-election`: elects leaders, as `kafka-leader-election.sh` does."""

import argparse
import sys
from typing import Final

from odradek.cli.tools.connection import (
    CANNOT_BE_USED,
    HAS_BEEN_DEPRECATED,
    add_connection,
    client_config,
    is_given,
    print_json,
    run_async,
    take_old_flags,
)
from odradek.cli.tools.option_words import refuse_values
from odradek.cli.tools.replicas.reassignment_plan import joined, repeated
from odradek.cli.tools.wording.java_names import java_text
from odradek.cli.tools.wording.java_values import java_int
from odradek.cli.tools.wording.json_files import NoJson, field, read_json
from odradek.client import Admin
from odradek.client.core.admin_types import ElectionType
from odradek.client.errors import AuthorizationError, KafkaError
from odradek.errors import ErrorCode, text_of
from odradek.model import TopicPartition

_NEEDED: Final = ("bootstrap-server", "election-type")
# The flags that may select partitions.
_WHERE: Final = ("topic", "all-topic-partitions", "path-to-json-file")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(
        parser,
        old_config_flag="--admin.config",
        deprecation=HAS_BEEN_DEPRECATED,
        together=CANNOT_BE_USED,
    )
    parser.add_argument("--election-type", type=str.lower, metavar="{preferred,unclean}")
    parser.add_argument("--topic", metavar="NAME")
    parser.add_argument("--all-topic-partitions", action="store_true")
    parser.add_argument("--path-to-json-file", metavar="FILE")
    parser.add_argument("--partition", type=java_int, metavar="N")
    parser.add_argument("--format", dest="output", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """Elects leaders, and prints for which partitions."""
    kind = _checked_type(arguments)

    async def work() -> int:
        refuse_values(arguments)
        partitions = _partitions(arguments)
        async with Admin(config=client_config(arguments)) as admin:
            return _show(await admin.elect_leaders(kind, partitions), arguments)

    def say(error: Exception) -> None:
        text = text_of(error)
        if isinstance(error, AuthorizationError):
            text = "Not authorized to perform leader election"
            print(text)
        print(text, file=sys.stderr)

    return run_async(work, say)


def _checked_type(arguments: argparse.Namespace) -> ElectionType:
    """Reads the election type; ends with wrong usage where Kafka's tool does, in its words."""
    wrong = arguments.parser.error
    missing = [each for each in _NEEDED if not is_given(arguments, each)]
    if missing:
        wrong(f"Missing required option(s): {', '.join(missing)}")
    if sum(is_given(arguments, each) for each in _WHERE) != 1:
        wrong(f"One and only one of the following options is required: {', '.join(_WHERE)}")
    if arguments.topic is not None and arguments.partition is None:
        wrong("Missing required option(s): partition")
    if arguments.topic is None and arguments.partition is not None:
        wrong("Option partition is only allowed if topic is used")
    take_old_flags(arguments)
    try:
        return ElectionType[arguments.election_type.upper()]
    except KeyError:
        wrong(f"Cannot parse argument '{arguments.election_type}' of option election-type")
        raise AssertionError("the parser ends the command") from None


def _partitions(arguments: argparse.Namespace) -> list[TopicPartition] | None:
    if arguments.topic is not None:
        return [TopicPartition(arguments.topic, arguments.partition)]
    if arguments.path_to_json_file is None:
        return None
    try:
        data = read_json(arguments.path_to_json_file)
    except NoJson:
        raise ValueError("Replica election data is empty") from None
    found = [
        TopicPartition(field(row, "topic", str), field(row, "partition", int))
        for row in field(data, "partitions", list)
    ]
    if twice := repeated(found):
        raise ValueError(f"Replica election data contains duplicate partitions: [{joined(twice)}]")
    return found


def _show(results: dict[TopicPartition, KafkaError | None], arguments: argparse.Namespace) -> int:
    done = [each for each, error in results.items() if error is None]
    failed = {each: error for each, error in results.items() if error is not None}
    needless = [
        each for each, error in failed.items() if error.code == ErrorCode.ELECTION_NOT_NEEDED
    ]
    errors = {each: error for each, error in failed.items() if each not in needless}
    if arguments.output == "json":
        print_json({str(each): None if e is None else e.code.name for each, e in results.items()})
        return 1 if errors else 0
    if done:
        shown = ", ".join(map(str, done))
        kind = arguments.election_type.upper()
        print(f"Successfully completed leader election ({kind}) for partitions {shown}")
    if needless:
        print(f"Valid replica already elected for partitions {', '.join(map(str, needless))}")
    for partition, error in errors.items():
        kind = arguments.election_type.upper()
        print(
            f"Error completing leader election ({kind}) for partition: {partition}: "
            f"{java_text(error)}"
        )
    if errors:
        print(f"{len(errors)} replica(s) could not be elected", file=sys.stderr)
    return 1 if errors else 0
