"""`kafka-server-start.sh server.properties`: `odradek start` with the script's arguments."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from odradek import __version__
from odradek.cli.main import AS_KAFKA, COMMAND, run_command

NAME: Final = "server-start"
_USAGE: Final = (
    "USAGE: kafka-server-start.sh [-daemon] server.properties [--override property=value]*"
)
# The file for the output of a broker in the background, as with Kafka's script, under $LOG_DIR or
# here.
_LOG_DIR: Final = "logs"
OUTPUT: Final = "kafkaServer.out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.set_defaults(read_words=_read_words)
    parser.add_argument("--version", action="version", version=f"odradek {__version__}")
    parser.add_argument("-daemon", action="store_true", help="run it in the background")
    parser.add_argument("-loggc", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-name", help=argparse.SUPPRESS)
    parser.add_argument("file", nargs="?", metavar="server.properties")
    parser.add_argument("--override", action="append", default=[], metavar="property=value")


def _read_words(_parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    return list(words)


def run(arguments: argparse.Namespace) -> int:
    """Runs the broker until it gets a signal to stop, or starts one in the background."""
    if arguments.file is None:
        print(_USAGE, file=sys.stderr)
        return 1
    if arguments.daemon:
        return _in_background(arguments)
    overrides = [word for each in arguments.override for word in ("--set", each)]
    return run_command(["start", "--config", arguments.file, *overrides])


def _in_background(arguments: argparse.Namespace) -> int:
    overrides = [word for each in arguments.override for word in ("--override", each)]
    command = [sys.executable, *COMMAND, AS_KAFKA, NAME, arguments.file, *overrides]
    folder = os.environ.get("LOG_DIR", _LOG_DIR)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, OUTPUT), "ab") as output:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return 0
