"""`odradek log-dirs`: the contents of brokers' log directories, as `kafka-log-dirs.sh` prints
them."""

import argparse
import sys

from odradek.cli.tools.connection import (
    add_connection,
    client_config,
    print_json,
    require,
    run_async,
)
from odradek.cli.tools.replicas.reassignment_plan import joined
from odradek.cli.tools.wording.java_names import java_name
from odradek.cli.tools.wording.java_values import java_int
from odradek.client import Admin
from odradek.client.core.admin_types import LogDirDescription
from odradek.client.errors import KafkaError, error_for
from odradek.errors import text_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser, server_flags=("--bootstrap-server",))
    parser.add_argument("--describe", action="store_true")
    parser.add_argument("--topic-list", default="", metavar="T,T", help="only these topics")
    parser.add_argument("--broker-list", default="", metavar="N,N", help="only these brokers")
    parser.add_argument("--format", dest="output", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """Prints two lines and the description, which is JSON in Kafka too; with JSON, it alone."""
    require(arguments, "bootstrap-server", "describe")
    topics = {each for each in arguments.topic_list.split(",") if each}

    async def work() -> int:
        async with Admin(config=client_config(arguments)) as admin:
            present = {node.id for node in (await admin.describe_cluster()).nodes}
            listed = filter(None, arguments.broker_list.split(","))
            wanted = {java_int(each) for each in listed} or present
            if wanted - present:
                raise ValueError(
                    "ERROR: The given brokers do not exist from --broker-list: "
                    f"{joined(sorted(wanted - present))}. "
                    f"Current existent brokers: {joined(sorted(present))}"
                )
            if arguments.output == "text":
                print("Querying brokers for log directories information")
            found = await admin.describe_log_dirs(sorted(wanted))
        for each in found.values():
            if isinstance(each, KafkaError):
                raise each
        if arguments.output == "text":
            print(f"Received log directory information from brokers {joined(sorted(found))}")
        brokers = [
            {"broker": broker_id, "logDirs": [_shown(each, topics) for each in directories]}
            for broker_id, directories in found.items()
            if not isinstance(directories, KafkaError)
        ]
        print_json({"brokers": brokers, "version": 1})
        return 0

    return run_async(work, lambda error: print(text_of(error), file=sys.stderr))


def _shown(directory: LogDirDescription, topics: set[str]) -> dict[str, object]:
    error = directory.error_code
    return {
        "partitions": [
            {
                "partition": str(partition),
                "size": replica.size_bytes,
                "offsetLag": replica.offset_lag,
                "isFuture": replica.is_future,
            }
            for partition, replica in directory.replicas.items()
            if not topics or partition.topic in topics
        ],
        "error": java_name(error_for(error)) if error else None,
        "logDir": directory.path,
    }
