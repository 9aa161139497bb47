"""`kafka-storage.sh`: assigns new log directories to a cluster, and prints the cluster that
directories belong to.

Our brokers need no formatting: they generate a cluster id at their first start. If a script formats
the directory, the cluster gets the id that the script has chosen.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from odradek.cli import start
from odradek.cli.data_directory.formatting import give, properties_of
from odradek.cli.tools.scripts.features import shown_level
from odradek.config import BrokerConfig, ConfigError
from odradek.config.features import DEFAULT_LEVELS, METADATA_VERSION
from odradek.errors import text_of
from odradek.metadata.store import MetadataStoreError
from odradek.protocol.uuids import uuid_text
from odradek.server.errors import StartError
from odradek.storage import names

_OF_THIS_VERSION: Final = "the features of a new cluster are those of this version"
# Actions, and choices, that our broker does not have, with their messages.
_LOOK_UPS: Final = ("version-mapping", "feature-dependencies")
_REFUSED: Final = {
    "--initial-controllers": "there is no quorum of controllers",
    "--release-version": _OF_THIS_VERSION,
    "--feature": _OF_THIS_VERSION,
    "--add-scram": "say it to `odradek start --add-scram`",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("random-uuid", help="print an id for a cluster")
    info = actions.add_parser("info", help="tell what the log directories are")
    to_format = actions.add_parser("format", help="give the log directories to a cluster")
    for each in (info, to_format):
        each.add_argument("-c", "--config", required=True, metavar="FILE")
    to_format.add_argument("-t", "--cluster-id", required=True, metavar="ID")
    to_format.add_argument("-g", "--ignore-formatted", action="store_true")
    # Flags about a quorum of controllers: there is none, with or without them.
    of_quorum = to_format.add_mutually_exclusive_group()
    for flags in (("-s", "--standalone"), ("-N", "--no-initial-controllers")):
        of_quorum.add_argument(*flags, action="store_true", help=argparse.SUPPRESS)
    of_quorum.add_argument("-I", "--initial-controllers", help=argparse.SUPPRESS)
    for letter, flag in (("-r", "--release-version"), ("-f", "--feature"), ("-S", "--add-scram")):
        to_format.add_argument(letter, flag, help=argparse.SUPPRESS)
    for name in _LOOK_UPS:
        refused = actions.add_parser(name)
        for flag in ("--release-version", "--feature"):
            refused.add_argument(flag, action="append")


def run(arguments: argparse.Namespace) -> int:
    """Runs the action; 1 with the reason if it fails."""
    if arguments.action == "random-uuid":
        print(uuid_text(uuid4()))
        return 0
    if arguments.action in _LOOK_UPS:
        print(f"{arguments.action}: {_OF_THIS_VERSION}", file=sys.stderr)
        return 1
    try:
        config = _config(arguments.config)
        if arguments.action == "info":
            return _tell(config.log_dirs)
        _refuse(arguments)
        return _format(config, arguments)
    except (ConfigError, MetadataStoreError, OSError, StartError, ValueError) as error:
        print(text_of(error), file=sys.stderr)
        return 1


def _config(path: str) -> BrokerConfig:
    """Returns the settings that `odradek start --config` would use."""
    parser = argparse.ArgumentParser()
    start.add_arguments(parser)
    return start.configure(start.collect_settings(parser.parse_args(["--config", path])))


def _refuse(arguments: argparse.Namespace) -> None:
    for flag, reason in _REFUSED.items():
        if getattr(arguments, flag[2:].replace("-", "_")) is not None:
            raise ValueError(f"{flag}: {reason}")


def _tell(directories: tuple[str, ...]) -> int:
    there = [each for each in directories if os.path.isdir(each)]
    _list("Found log directory:", "Found log directories:", there)
    known = [found for each in there if (found := properties_of(each))]
    if known:
        listed = ", ".join(f"{name}={value}" for name, value in sorted(known[0].items()))
        print(f"Found metadata: {{{listed}}}\n")
    problems = [f"{each} {problem}" for each in directories if (problem := _problem(each))]
    _list("Found problem:", "Found problems:", problems)
    return 1 if problems else 0


def _problem(directory: str) -> str | None:
    if not os.path.lexists(directory):
        return "does not exist"
    if not os.path.isdir(directory):
        return "is not a directory"
    return None if properties_of(directory) else "is not formatted."


def _list(title_of_one: str, title: str, items: Sequence[str]) -> None:
    if items:
        lines = (f"  {each}" for each in items)
        print(title_of_one if len(items) == 1 else title, *lines, "", sep="\n")


def _format(config: BrokerConfig, arguments: argparse.Namespace) -> int:
    if config["zookeeper.connect"]:
        raise ValueError("a cluster on ZooKeeper has its id there")
    # Kafka takes an empty one: a script's variable was unset.
    cluster_id: str = arguments.cluster_id or _held_id(config.log_dirs) or uuid_text(uuid4())
    new = []
    for directory in config.log_dirs:
        held = properties_of(directory).get("cluster.id")
        if held is None:
            new.append(directory)
        elif not arguments.ignore_formatted:
            raise ValueError(
                f"Log directory {directory} is already formatted. Use --ignore-formatted to "
                "ignore this directory and format the others."
            )
        elif held != cluster_id:
            raise ValueError(
                f"Invalid cluster.id in: {directory}/{names.META_PROPERTIES}. Expected "
                f"{cluster_id}, but read {held}"
            )
    if not new:
        print("All of the log directories are already formatted.")
    of_metadata = "dynamic metadata voter" if arguments.standalone else "metadata"
    level = shown_level(METADATA_VERSION, DEFAULT_LEVELS[METADATA_VERSION])
    for directory in new:
        is_first = directory == config.log_dirs[0]
        kind = of_metadata if is_first else "data"
        print(f"Formatting {kind} directory {directory} with {METADATA_VERSION} {level}.")
        give(directory, cluster_id, config.broker_id, is_first=is_first)
    return 0


def _held_id(directories: tuple[str, ...]) -> str | None:
    held = (properties_of(each).get("cluster.id") for each in directories)
    return next(filter(None, held), None)
