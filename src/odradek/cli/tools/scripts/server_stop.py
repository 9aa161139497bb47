"""`kafka-server-stop.sh`: stops brokers of this machine in order: all that `kafka-server-start.sh`
or the container image started, or the one with a node id. A broker of the image has its id from the
environment, not from its arguments, so it is stopped only together with all.
"""

import argparse
import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from typing import Final

from odradek.cli import container
from odradek.cli.main import AS_KAFKA
from odradek.cli.start import DEFAULT_BROKER_ID, key_value, read_properties
from odradek.cli.terminal import tell
from odradek.cli.tools.scripts import server_start
from odradek.config import ConfigError
from odradek.errors import reason_of
from odradek.server.errors import StartError
from odradek.system_calls import processes, working_directory

# The interpreter, its flags, and then these; `-daemon` is gone once the broker has begun.
_BEGUN: Final = ("-m", "odradek", AS_KAFKA, server_start.NAME)
_BEGUN_BY_IMAGE: Final = ("-m", container.__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("--process-role", choices=("broker", "controller"), default="broker")
    parser.add_argument("--node-id", metavar="ID", help="goes before --process-role, as in Kafka")


def run(arguments: argparse.Namespace) -> int:
    """Signals the brokers; 1 if there is none, or one belongs to another user."""
    name = os.environ.get("SIGNAL") or "TERM"  # as Kafka's script has it
    number = signal_of(name)
    if number is None:
        tell(f"SIGNAL={name} is no signal")
        return 1
    brokers = list(_chosen(arguments.node_id, arguments.process_role))
    if not brokers:
        print("No kafka server to stop")  # on the stream that scripts read
        return 1
    return max(_stop(each, number) for each in brokers)


def signal_of(name: str) -> signal.Signals | None:
    """Returns the signal of a name, with or without `SIG`, or of a number, as `kill -s` does."""
    names = signal.Signals.__members__
    found = names.get(name) or names.get(f"SIG{name}")
    if found is None and name.isdecimal():
        with contextlib.suppress(ValueError):
            return signal.Signals(int(name))
    return found


def _chosen(node_id: str | None, role: str) -> Iterator[int]:
    for process, words in running_brokers():
        if node_id is None:
            is_meant = role == "broker"
        else:
            is_meant = node_id == node_id_of(process, words)
        if is_meant:
            yield process


def running_brokers() -> Iterator[tuple[int, list[str]]]:
    """Returns the process ids of running brokers, and the arguments that `kafka-server-start.sh`
    got.
    """
    for process, words in processes():
        given = [] if _words_behind(_BEGUN_BY_IMAGE, words) else words_of_start(words)
        if given is not None:
            yield process, given


def words_of_start(words: Sequence[str]) -> list[str] | None:
    """Returns a broker's arguments after the name of the script; None for another process."""
    return _words_behind(_BEGUN, words)


def _words_behind(begun: tuple[str, ...], words: Sequence[str]) -> list[str] | None:
    for place in range(len(words) - len(begun) + 1):
        end = place + len(begun)
        if tuple(words[place:end]) == begun:
            return [word for word in words[end:] if word]
    return None


def node_id_of(process: int, words: Sequence[str]) -> str | None:
    """Returns the node id of a broker from its settings file; None if the file is gone."""
    parser = argparse.ArgumentParser()
    server_start.add_arguments(parser)
    given, _ = parser.parse_known_args(words)
    if given.file is None:
        return None
    with contextlib.suppress(ConfigError, StartError, OSError, argparse.ArgumentTypeError):
        path: str = given.file
        if not os.path.isabs(path):
            path = os.path.join(working_directory(process), path)
        settings = read_properties(path)
        settings.update(map(key_value, given.override))
        number = settings.get("node.id", settings.get("broker.id"))
        if number is not None:
            return number.strip()
        # ZooKeeper gives a number to one that has none.
        return None if "zookeeper.connect" in settings else DEFAULT_BROKER_ID
    return None


def _stop(process: int, number: signal.Signals) -> int:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return 0
    except PermissionError as error:
        tell(f"process {process}: {reason_of(error)}")
        return 1
    return 0
