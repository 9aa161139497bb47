"""`odradek help`: the help of a command, and of the settings, which are too many for one text.

`odradek help start` is `odradek start --help`; `odradek help settings retention` explains the
settings whose names contain that word.
"""

import argparse
import sys
import textwrap
from collections.abc import Mapping
from typing import Final

from odradek.cli.main import COMMANDS, run_command
from odradek.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, Setting
from odradek.suggestions import did_you_mean

SETTINGS: Final = "settings"
TABLES: Final[tuple[tuple[str, Mapping[str, Setting]], ...]] = (
    ("of a broker (odradek start --set NAME=VALUE, or a line in --config)", BROKER_SETTINGS),
    ("of a topic (odradek configs --entity-type topics)", TOPIC_SETTINGS),
    ("of a group (odradek configs --entity-type groups)", GROUP_SETTINGS),
)
WIDTH: Final = 90


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Defines the arguments of `odradek help`."""
    parser.add_argument("about", nargs="?", help=f"a command, or `{SETTINGS}`", metavar="COMMAND")
    parser.add_argument("word", nargs="?", default="", help="only settings whose name has this")


def run(arguments: argparse.Namespace) -> int:
    """Prints what was asked for; returns the exit status."""
    about: str | None = arguments.about
    if about is None:
        return run_command([])
    if about == SETTINGS:
        return explain_settings(arguments.word)
    names = [command.name for command in COMMANDS]
    if about not in names:
        meant = did_you_mean(about, [*names, SETTINGS])
        print(f"odradek help: there is no help about {about!r}{meant}", file=sys.stderr)
        return 2
    return run_command([about, "--help"])


def explain_settings(word: str) -> int:
    """Prints the settings whose names contain the word; returns the exit status."""
    found = False
    for title, table in TABLES:
        rows = [describe_setting(row) for row in table.values() if word in row.name]
        if rows:
            print(f"Settings {title}:\n", *rows, sep="\n", end="\n\n")
            found = True
    if found:
        return 0
    meant = did_you_mean(word, [name for _, table in TABLES for name in table])
    print(f"odradek help: no setting's name has {word!r}{meant}", file=sys.stderr)
    return 1


def describe_setting(row: Setting) -> str:
    """Formats a setting like argparse's own help."""
    default = "unset" if row.default is None else row.render(row.default) or "empty"
    head = f"  {row.name}  ({row.type.name.lower()}, default {default})"
    return head + "\n" + textwrap.indent(textwrap.fill(row.text, WIDTH), " " * 6)
