"""`odradek delete-records`: deletes what lies before offsets, as `kafka-delete-records.sh` does."""

import argparse
import json
import sys

from odradek.cli.tools.connection import (
    add_connection,
    add_format,
    client_config,
    print_json,
    run_async,
    text_of,
)
from odradek.cli.tools.java_names import java_text
from odradek.client import Admin
from odradek.client.errors import KafkaError
from odradek.model import TopicPartition


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser)
    add_format(parser)
    parser.add_argument(
        "--offset-json-file",
        required=True,
        metavar="FILE",
        help='{"partitions":[{"topic":"t","partition":0,"offset":1}],"version":1}',
    )


def run(arguments: argparse.Namespace) -> int:
    """Deletes, and prints where each partition begins now."""

    async def work() -> int:
        with open(arguments.offset_json_file, encoding="utf-8") as file:
            wanted = _offsets(file.read())
        is_text = arguments.output == "text"
        if is_text:
            print("Executing records delete operation")
        async with Admin(config=client_config(arguments)) as admin:
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


def _offsets(text: str) -> dict[TopicPartition, int]:
    try:
        plan = json.loads(text)
        if plan.get("version", 1) != 1:
            raise ValueError(f"Not supported version field value {plan['version']}")
        found: dict[TopicPartition, int] = {}
        for each in plan["partitions"]:
            partition = TopicPartition(str(each["topic"]), int(each["partition"]))
            if partition in found:
                raise ValueError(
                    f"Offset json file contains duplicate topic partitions: {partition}"
                )
            found[partition] = int(each["offset"])
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"The offset json file is not well-formed: {error}") from error
    return found


def _as_json(partition: TopicPartition, result: int | KafkaError) -> dict[str, object]:
    shown: dict[str, object] = {"topic": partition.topic, "partition": partition.partition}
    if isinstance(result, KafkaError):
        return shown | {"error": result.code.name}
    return shown | {"low_watermark": result}
