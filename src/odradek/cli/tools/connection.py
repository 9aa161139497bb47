"""The flags by which every tool finds its brokers, and how a tool runs.

`--bootstrap-server`, `--command-config FILE`, `--command-property K=V` (which wins over the file).
Settings of the file that our client does not have are passed over, as Kafka's clients do it.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from odradek.client.settings import ADMIN_SETTINGS
from odradek.config.definition import ConfigError, Setting
from odradek.config.properties import parse_properties


def add_connection(
    parser: argparse.ArgumentParser,
    *,
    server_flags: Sequence[str] = ("--bootstrap-server", "--broker-list"),
    config_flags: Sequence[str] = ("--command-config",),
    property_flags: Sequence[str] = ("--command-property",),
    needs_servers: bool = True,
) -> None:
    """Adds the flags, in the spellings of a tool."""
    parser.add_argument(
        *server_flags,
        dest="bootstrap_server",
        required=needs_servers,
        metavar="HOST:PORT[,..]",
        help="brokers to begin with",
    )
    parser.add_argument(
        *config_flags, dest="command_config", metavar="FILE", help="a file of client settings"
    )
    parser.add_argument(
        *property_flags,
        dest="command_property",
        action="append",
        default=[],
        metavar="K=V",
        help="a client setting; wins over the file",
    )


def add_format(parser: argparse.ArgumentParser) -> None:
    """Adds `--format`."""
    parser.add_argument(
        "--format",
        dest="output",
        choices=("text", "json"),
        default="text",
        help="as Kafka's tool prints it, or as JSON (default: text)",
    )


def client_config(
    arguments: argparse.Namespace, rows: Mapping[str, Setting] = ADMIN_SETTINGS
) -> dict[str, object]:
    """The settings that the flags name, as far as a client has them.

    Raises:
        ConfigError: a security protocol that is not there yet.
        OSError: the file cannot be read.
    """
    given: dict[str, str] = {}
    if arguments.command_config:
        with open(arguments.command_config, encoding="utf-8") as file:
            given = parse_properties(file.read())
    for each in arguments.command_property:
        for pair in each.split(","):
            name, _, value = pair.partition("=")
            given[name.strip()] = value
    protocol = given.get("security.protocol", "PLAINTEXT")
    if protocol.upper() != "PLAINTEXT":
        raise ConfigError("security.protocol", protocol, "only PLAINTEXT is there yet")
    config: dict[str, object] = {name: value for name, value in given.items() if name in rows}
    config["bootstrap.servers"] = arguments.bootstrap_server
    return config


def run_async(work: Callable[[], Awaitable[int]], on_error: Callable[[Exception], None]) -> int:
    """Runs a tool: its exit status, or 1 when a broker, a setting or a file is at fault."""
    from odradek.errors import BrokerError

    try:
        return asyncio.run(_awaited(work()))
    except (BrokerError, ConfigError, OSError, ValueError) as error:
        on_error(error)
        return 1


async def _awaited(work: Awaitable[int]) -> int:
    return await work


def text_of(error: Exception) -> str:
    """What an error says, without its code."""
    return str(getattr(error, "message", error))


def print_json(value: Any) -> None:
    """Prints one JSON value on one line."""
    json.dump(value, sys.stdout, separators=(",", ":"))
    print()
