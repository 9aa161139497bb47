"""How console consumers print: until there is nothing more, or until they are stopped. Then they
print the number of records on standard error and, for Kafka's system tests, a line on standard
output.
"""

import argparse
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from odradek.cli.tools.connection import run_async
from odradek.errors import text_of

# How many records there is no end to.
ALL: Final = -1
_POLL_MS: Final = 500
_MOST_AT_ONCE: Final = 500


def add_events(parser: argparse.ArgumentParser) -> None:
    """Adds the flag by which Kafka's system tests ask for a line at the end."""
    parser.add_argument("--enable-systest-events", action="store_true", help=argparse.SUPPRESS)


class Printed:
    """Counts the printed records; the count is printed only if the command `has_begun`."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.has_begun = False
        self.tells_its_end: bool = arguments.enable_systest_events
        self.count = 0
        self._most: int = arguments.max_messages
        self._timeout_ms: int = arguments.timeout_ms

    @property
    def is_enough(self) -> bool:
        """Whether the requested number of records was printed."""
        return self.count >= self._most != ALL

    @property
    def left(self) -> int | None:
        """The largest number of records to read next; None where there is no limit."""
        return None if self._most == ALL else min(_MOST_AT_ONCE, self._most - self.count)

    @property
    def wait_ms(self) -> int:
        """How long to wait for the next records."""
        return _POLL_MS if self._timeout_ms < 0 else max(1, self._timeout_ms)

    @property
    def is_patient(self) -> bool:
        """Whether to continue if no record has come."""
        return self._timeout_ms < 0


def run_printing(work: Callable[[], Awaitable[int]], printed: Printed) -> int:
    """Runs a console consumer, and prints the count however it ends."""
    try:
        return run_async(work, lambda error: print(text_of(error), file=sys.stderr), shows_log=True)
    finally:
        if printed.has_begun:
            print(f"Processed a total of {printed.count} messages", file=sys.stderr)
            if printed.tells_its_end:
                print("shutdown_complete")
