"""`odradek kafka-bin DIR`: writes `kafka-topics.sh` and its like, each two lines over this command.

Scripts that call Kafka's tools then need another PATH and nothing else, and no JVM. Under these
names wrong usage ends with 1, as Kafka's does.
"""

import argparse
import os
import shlex
import sys
from typing import Final

from odradek.cli.main import AS_KAFKA

TOOLS: Final = (
    "topics",
    "configs",
    "console-producer",
    "console-consumer",
    "console-share-consumer",
    "consumer-groups",
    "share-groups",
    "get-offsets",
    "delete-records",
    "transactions",
    "acls",
    "delegation-tokens",
    "log-dirs",
    "leader-election",
    "reassign-partitions",
    "cluster",
    "producer-perf-test",
    "consumer-perf-test",
    "dump-log",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("directory", metavar="DIR", help="made if it is not there")


def run(arguments: argparse.Namespace) -> int:
    """Writes the scripts, and says how many."""
    try:
        os.makedirs(arguments.directory, exist_ok=True)
        for tool in TOOLS:
            path = os.path.join(arguments.directory, f"kafka-{tool}.sh")
            with open(path, "w", encoding="utf-8") as script:
                script.write(
                    f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -m odradek {AS_KAFKA} {tool} "
                    '"$@"\n'
                )
            os.chmod(path, 0o755)
    except OSError as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    print(f"{len(TOOLS)} scripts are in {arguments.directory}")
    return 0
