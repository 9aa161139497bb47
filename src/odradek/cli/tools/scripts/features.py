"""`kafka-features.sh describe`: the features of a cluster, as Kafka's tool prints them. Its other
commands are refused."""

import argparse
import sys
from typing import Final

from odradek.cli.tools.connection import (
    NO_ADMIN,
    NoAddress,
    add_connection,
    check_whom_to_ask,
    client_config,
    run_async,
)
from odradek.client import Admin
from odradek.config.features import METADATA_VERSION
from odradek.errors import text_of

_DESCRIBE: Final = "describe"
_OTHERS: Final = ("upgrade", "downgrade", "disable", "version-mapping", "feature-dependencies")
_FIRST_METADATA_VERSION: Final = 7
# From that one on, as Kafka names them.
_METADATA_VERSIONS: Final = (
    *("3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2"),
    *("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0"),
    *("4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(
        parser,
        server_flags=("--bootstrap-server",),
        controller_flags=("--bootstrap-controller",),
        reads_options=False,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser(_DESCRIBE, help="tell the versions of every feature")
    for name in _OTHERS:
        refused = actions.add_parser(name)
        refused.add_argument("words", nargs="*")
        for flag in ("--feature", "--metadata", "--release-version"):
            refused.add_argument(flag, action="append")


def run(arguments: argparse.Namespace) -> int:
    """Prints a line for each feature."""
    if arguments.action != _DESCRIBE:
        print(f"{arguments.action}: only `{_DESCRIBE}` is here", file=sys.stderr)
        return 1
    check_whom_to_ask(
        arguments,
        both="argument --bootstrap-controller: not allowed with argument --bootstrap-server",
        neither="You must specify either --bootstrap-controller or --bootstrap-server.",
    )

    def say(error: Exception) -> None:
        print(NO_ADMIN if isinstance(error, NoAddress) else text_of(error), file=sys.stderr)

    async def work() -> int:
        async with Admin(config=client_config(arguments)) as admin:
            epoch, features = await admin.describe_features()
        for name, each in sorted(features.items()):
            lowest, highest, finalized = (
                shown_level(name, level)
                for level in (each.min_version, each.max_version, each.finalized)
            )
            print(
                f"Feature: {name:<40}  SupportedMinVersion: {lowest:<15}  "
                f"SupportedMaxVersion: {highest:<15}  FinalizedVersionLevel: {finalized:<15}  "
                f"Epoch: {epoch if epoch >= 0 else '-'}"
            )
        return 0

    return run_async(work, say)


def shown_level(feature: str, level: int) -> str:
    """Returns the level of a feature as Kafka's tools print it: a metadata version by its name."""
    place = level - _FIRST_METADATA_VERSION
    if feature == METADATA_VERSION and 0 <= place < len(_METADATA_VERSIONS):
        return _METADATA_VERSIONS[place]
    return str(level)
