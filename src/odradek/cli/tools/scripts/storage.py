"""`kafka-storage.sh`: assigns new log directories to a cluster, and prints the cluster that
directories belong to.

Our brokers need no formatting: they generate a cluster id at their first start. If a script formats
the directory, the cluster gets the id that the script has chosen.
"""

import argparse
import os
import sys
from typing import Final
from uuid import uuid4

from odradek.cli import start
from odradek.cli.data_directory.formatting import give, properties_of
from odradek.config import BrokerConfig, ConfigError
from odradek.metadata.store import MetadataStoreError
from odradek.protocol.uuids import uuid_text
from odradek.server.errors import StartError
from odradek.storage import names

# Choices that our broker does not have, with their messages.
_REFUSED: Final = {
    "--initial-controllers": "there is no quorum of controllers",
    "--release-version": "the features of a new cluster are those of this version",
    "--feature": "the features of a new cluster are those of this version",
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
    for flags in (("-s", "--standalone"), ("-N", "--no-initial-controllers")):
        to_format.add_argument(*flags, action="store_true", help=argparse.SUPPRESS)
    short = {"--initial-controllers": "-I", "--release-version": "-r", "--feature": "-f"}
    for flag in _REFUSED:
        to_format.add_argument(short.get(flag, "-S"), flag, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Runs the action; 1 with the reason if it fails."""
    if arguments.action == "random-uuid":
        print(uuid_text(uuid4()))
        return 0
    try:
        config = _config(arguments.config)
        if arguments.action == "info":
            return _tell(config.log_dirs)
        _refuse(arguments)
        return _format(config, arguments.cluster_id, ignores=arguments.ignore_formatted)
    except (ConfigError, MetadataStoreError, OSError, StartError, ValueError) as error:
        print(error, file=sys.stderr)
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
    missing = [each for each in directories if not os.path.isdir(each)]
    if len(missing) < len(directories):
        there = [each for each in directories if each not in missing]
        print("Found log directories:", *(f"  {each}" for each in there), "", sep="\n")
    known = [found for each in directories if (found := properties_of(each))]
    if known:
        listed = ", ".join(f"{name}={value}" for name, value in sorted(known[0].items()))
        print(f"Found metadata: {{{listed}}}\n")
    problems = [f"{each} does not exist" for each in missing]
    problems += [
        f"{each} is not formatted."
        for each in directories
        if each not in missing and not properties_of(each)
    ]
    if problems:
        print("Found problems:", *(f"  {each}" for each in problems), "", sep="\n")
    return 1 if problems else 0


def _format(config: BrokerConfig, cluster_id: str, *, ignores: bool) -> int:
    if config["zookeeper.connect"]:
        raise ValueError("a cluster on ZooKeeper has its id there")
    # Kafka takes an empty one: a script's variable was unset.
    cluster_id = cluster_id or _held_id(config.log_dirs) or uuid_text(uuid4())
    new = []
    for directory in config.log_dirs:
        held = properties_of(directory).get("cluster.id")
        if held is None:
            new.append(directory)
        elif not ignores:
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
    for directory in new:
        is_first = directory == config.log_dirs[0]
        print(f"Formatting {'metadata' if is_first else 'data'} directory {directory}.")
        give(directory, cluster_id, config.broker_id, is_first=is_first)
    return 0


def _held_id(directories: tuple[str, ...]) -> str | None:
    held = (properties_of(each).get("cluster.id") for each in directories)
    return next(filter(None, held), None)
