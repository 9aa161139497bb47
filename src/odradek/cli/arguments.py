"""Flags and kinds of values that several commands share."""

import argparse
from typing import Final

MAX_PORT: Final = 65_535


def add_format(parser: argparse.ArgumentParser, as_json: str) -> None:
    """Adds `--format`; `as_json` says what is printed then."""
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
