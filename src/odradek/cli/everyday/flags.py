"""The flags that these commands share, and the settings of their clients."""

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Final

from odradek.cli.knocking import tell_if_nobody_answers
from odradek.cli.tools.client_properties import refuse_unknown
from odradek.cli.tools.connection import client_config
from odradek.config.definition import Setting

SERVERS_VARIABLE: Final = "ODRADEK_BOOTSTRAP_SERVERS"
DEFAULT_SERVERS: Final = "localhost:9092"
# People wait in front of a screen: less than a program does.
_PATIENCE_MS: Final = 10_000


def default_servers() -> str:
    """The default brokers."""
    return os.environ.get(SERVERS_VARIABLE) or DEFAULT_SERVERS


def flags_first(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Moves all flags to the front: argparse takes no second topic or file after a flag."""
    flags: list[str] = []
    others: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            others += left
            break
        if not word.startswith("-") or word == "-":
            others.append(word)
            continue
        flags.append(word)
        action = parser._option_string_actions.get(word)
        if action is not None and action.nargs is None:
            flags += left[:1]
            del left[:1]
    return [*flags, "--", *others] if others else flags


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Adds `-b`, `-X` and `--command-config`; flags may stand anywhere."""
    parser.set_defaults(read_words=flags_first)
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        default=default_servers(),
        metavar="HOST:PORT[,..]",
        help=f"brokers to begin with (default: ${SERVERS_VARIABLE}, else {DEFAULT_SERVERS})",
    )
    parser.add_argument(
        "-X",
        "--command-property",
        action="append",
        default=[],
        metavar="K=V",
        help="a client setting by its Kafka name; may be repeated",
    )
    parser.add_argument("--command-config", metavar="FILE", help="a file of client settings")


def settings_of(arguments: argparse.Namespace, rows: Mapping[str, Setting]) -> dict[str, object]:
    """The client settings that the flags name.

    Raises:
        ValueError: one is illegal.
        OSError: the file cannot be read.
    """
    # A file may be for several programs, a flag is for this one.
    refuse_unknown(each.partition("=")[0].strip() for each in arguments.command_property)
    config = client_config(arguments, rows)
    if "default.api.timeout.ms" in rows:
        config.setdefault("default.api.timeout.ms", _PATIENCE_MS)
    tell_if_nobody_answers(config.get("bootstrap.servers", ""), config.get("security.protocol"))
    return config
