"""`kafka-server-stop.sh`: tells all brokers that `kafka-server-start.sh` has begun on this machine
to end, in order."""

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence

from odradek.cli.main import AS_KAFKA
from odradek.cli.tools.scripts import server_start
from odradek.system_calls import processes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("--process-role", choices=("broker", "controller"), default="broker")


def run(arguments: argparse.Namespace) -> int:
    """Signals them; 1 where there is none, or one that belongs to somebody else."""
    brokers = list(running_brokers()) if arguments.process_role == "broker" else []
    if not brokers:
        print("No kafka server to stop", file=sys.stderr)
        return 1
    return max(map(_stop, brokers))


def running_brokers() -> Iterator[int]:
    """The numbers of their processes."""
    return (number for number, words in processes() if is_broker(words))


def is_broker(words: Sequence[str]) -> bool:
    """Whether the words of a process are those of such a broker."""
    begun = ["-m", "odradek", AS_KAFKA, server_start.NAME]
    # The interpreter, its flags, and then these; `-daemon` is gone once the broker has begun.
    places = [place for place, word in enumerate(words) if word == begun[0]]
    return any(list(words[place : place + len(begun)]) == begun for place in places)


def _stop(number: int) -> int:
    try:
        os.kill(number, signal.SIGTERM)
    except ProcessLookupError:
        return 0
    except PermissionError as error:
        print(f"odradek: process {number}: {error.strerror}", file=sys.stderr)
        return 1
    return 0
