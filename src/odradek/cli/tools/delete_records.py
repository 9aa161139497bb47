"""`odradek delete-records`: deletes records before offsets, as `kafka-delete-records.sh` does."""

import argparse
import sys

from odradek.cli.tools.connection import (
    add_connection,
    add_format,
    client_config,
    print_json,
    require,
    run_async,
)
from odradek.cli.tools.replicas.reassignment_plan import joined, repeated
from odradek.cli.tools.wording.java_names import java_text
from odradek.cli.tools.wording.json_files import NoJson, field, read_json, rows
from odradek.client import Admin
from odradek.client.errors import KafkaError
from odradek.errors import text_of
from odradek.model import TopicPartition


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser)
    add_format(parser)
    parser.add_argument(
        "--offset-json-file",
        metavar="FILE",
        help='{"partitions":[{"topic":"t","partition":0,"offset":1}],"version":1}',
    )


def run(arguments: argparse.Namespace) -> int:
    """Deletes, and prints the new start of each partition."""
    require(arguments, "bootstrap-server", "offset-json-file")

    async def work() -> int:
        config = client_config(arguments)
        wanted = _offsets(arguments.offset_json_file)
        is_text = arguments.output == "text"
        if is_text:
            print("Executing records delete operation")
        async with Admin(config=config) as admin:
            results = await admin.delete_records(wanted)
        if is_text:
            print("Records delete operation completed:")
            for partition, result in results.items():
                shown = (
                    f"error: {java_text(result)}"
                    if isinstance(result, KafkaError)
                    else f"low_watermark: {result}"
                )
                print(f"partition: {partition}\t{shown}")
        else:
            print_json([_as_json(each, result) for each, result in results.items()])
        return 0

    return run_async(work, lambda error: print(text_of(error), file=sys.stderr))


def _offsets(path: str) -> dict[TopicPartition, int]:
    try:
        listed = rows(read_json(path), "partitions")
    except NoJson:
        raise ValueError("The input string is not a valid JSON") from None
    found = [
        (
            TopicPartition(field(row, "topic", str), field(row, "partition", int)),
            field(row, "offset", int),
        )
        for row in listed
    ]
    if twice := repeated(partition for partition, _ in found):
        shown = joined(twice)
        raise ValueError(f"Offset json file contains duplicate topic partitions: {shown}")
    return dict(found)


def _as_json(partition: TopicPartition, result: int | KafkaError) -> dict[str, object]:
    shown: dict[str, object] = {"topic": partition.topic, "partition": partition.partition}
    if isinstance(result, KafkaError):
        return shown | {"error": result.code.name}
    return shown | {"low_watermark": result}
