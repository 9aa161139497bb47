"""Groups of every kind, as `kafka-groups.sh` lists them."""

import argparse
import sys
from typing import Final

from odradek.cli.tools.connection import (
    CANNOT_BE_USED,
    NO_ADMIN,
    NoAddress,
    NoFile,
    add_connection,
    client_config,
    is_given,
    run_async,
)
from odradek.cli.tools.groups.tables import is_of_consumers
from odradek.client import Admin
from odradek.client.core.admin_types import GroupListing
from odradek.errors import text_of

_TYPES: Final = ("consumer", "classic", "share", "streams")
_KINDS: Final = ("consumer", "share", "streams")
_WIDTH: Final = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser, server_flags=("--bootstrap-server",))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--group-type", metavar="TYPE", help=", ".join(_TYPES))
    parser.add_argument("--protocol", metavar="NAME")
    parser.add_argument("--consumer", action="store_true", help="groups that consumers know")
    parser.add_argument("--share", action="store_true", help="share groups")
    parser.add_argument("--streams", action="store_true", help="streams groups")


def run(arguments: argparse.Namespace) -> int:
    """Prints a table of the selected groups."""
    if not arguments.list:
        arguments.parser.error("Command must include exactly one action: --list.")
    if arguments.bootstrap_server is None:
        arguments.parser.error("Missing required option(s) [bootstrap-server]")
    for kind in _KINDS:
        others = [each for each in (*_KINDS, "group-type", "protocol") if each != kind]
        for other in others if is_given(arguments, kind) else ():
            if is_given(arguments, other):
                arguments.parser.error(CANNOT_BE_USED.format(kind, other))
    if arguments.group_type is not None and arguments.group_type.lower() not in _TYPES:
        print("--group-type must be a valid group type.", file=sys.stderr)
        return 1

    async def work() -> int:
        async with Admin(config=client_config(arguments)) as admin:
            groups = await admin.list_groups()
        _print([each for each in groups if _is_wanted(each, arguments)])
        return 0

    return run_async(work, _tell)


def _tell(error: Exception) -> None:
    if isinstance(error, NoFile):
        print(error, file=sys.stderr)
        return
    reason = NO_ADMIN if isinstance(error, NoAddress) else text_of(error)
    print(f"Error while executing groups command : {reason}")


def _is_wanted(group: GroupListing, arguments: argparse.Namespace) -> bool:
    kind = group.type.lower()
    if arguments.consumer:
        return kind == "consumer" or is_of_consumers(group)
    if arguments.share or arguments.streams:
        return kind == ("share" if arguments.share else "streams")
    of_type = arguments.group_type is None or kind == arguments.group_type.lower()
    return of_type and arguments.protocol in (None, group.protocol_type)


def _print(groups: list[GroupListing]) -> None:
    header = ("GROUP", "TYPE", "PROTOCOL")
    rows = [(each.group_id, each.type.capitalize(), each.protocol_type) for each in groups]
    width = max(_WIDTH, *(len(cell) for row in (header, *rows) for cell in row))
    print(*(cell.ljust(width) for cell in header))
    for row in rows:
        print(*(cell.ljust(width) for cell in row), "")  # with a blank at its end, as in Kafka
