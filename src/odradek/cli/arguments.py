"""Flags and kinds of values that several commands share."""

import argparse
import os
import sys
from typing import Final

from odradek.suggestions import did_you_mean

MAX_PORT: Final = 65_535
_CLASSIC_COLUMNS: Final = 80
_MARGIN: Final = 2


class Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal.

    argparse asks `shutil` for the width at each added flag, and the compression libraries that
    `shutil` imports would cost 2 ms of a broker's start.
    """

    def __init__(self, prog: str) -> None:
        """Follows `COLUMNS`, as argparse does."""
        super().__init__(prog, width=_columns() - _MARGIN)


def _columns() -> int:
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _CLASSIC_COLUMNS
    except (AttributeError, ValueError, OSError):
        return _CLASSIC_COLUMNS  # no terminal, or none any more


class CommandParser(argparse.ArgumentParser):
    """A parser that suggests the word that was probably meant, as do those of its subcommands."""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += did_you_mean(str(value), map(str, action.choices or ()))
            raise


def add_format(parser: argparse.ArgumentParser, as_json: str) -> None:
    """Adds `--format`; `as_json` describes what it prints."""
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help=f"for people, or as JSON: {as_json} (default: text)",
    )


def natural_number(text: str) -> int:
    """Reads a number of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return int(text)


def positive_number(text: str) -> int:
    """Reads a number of at least 1."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def port(text: str) -> int:
    """Reads the number of a port; 0 takes a free one."""
    if not text.isdecimal() or int(text) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, a number from 0 to {MAX_PORT}")
    return int(text)
