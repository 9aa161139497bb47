"""The parts that both verifiable tools share: how they read words, print events, and end.

An event is one line of JSON on standard output, flushed at once: a test reads it while the tool
runs, and ends the tool by SIGTERM or Ctrl-C. The last lines are printed then, too; the exit status
is that of a JVM, 128 plus the number of the signal.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from odradek.cli.tools.connection import (
    HAS_BEEN_DEPRECATED,
    add_old_flag,
    print_json,
    take_old_flags,
)
from odradek.cli.tools.wording.java_values import converted
from odradek.event_loop import on_end_signals

_SIGNALLED: Final = 128
_TOGETHER: Final = "Options --{} and --{} are mutually exclusive."


def add_shared_arguments(parser: argparse.ArgumentParser, old_config_flag: str) -> None:
    """Adds the flags of both tools; without arguments they print their help."""
    parser.set_defaults(read_words=_words_or_help, command_property=[])
    parser.add_argument("--topic", metavar="NAME")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT[,..]")
    parser.add_argument(
        "--max-messages", type=converted("Integer"), default=-1, metavar="N", help="-1: no end"
    )
    parser.add_argument("--command-config", metavar="FILE", help="a file of client settings")
    add_old_flag(
        parser,
        old_config_flag,
        "--command-config",
        text=HAS_BEEN_DEPRECATED,
        together=_TOGETHER,
    )


def _words_or_help(_parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    return list(words) or ["--help"]


def check_arguments(arguments: argparse.Namespace, *required: str) -> None:
    """Ends with wrong usage where Kafka's tools do, in their words."""
    for option in required:
        if getattr(arguments, option.replace("-", "_")) is None:
            arguments.parser.error(f"argument --{option} is required")
    if arguments.bootstrap_server is None:
        arguments.parser.error("one of the arguments --bootstrap-server is required")
    take_old_flags(arguments)


def tell(name: str, **facts: object) -> None:
    """Prints an event."""
    print_json({"timestamp": time.time_ns() // 1_000_000, "name": name, **facts})
    sys.stdout.flush()


class Ending:
    """Tells whether a tool was asked to end; `on_signal` is called if a signal asked."""

    def __init__(self, on_signal: Callable[[], None] = lambda: None) -> None:
        """Begins to handle signals, on the running loop."""
        loop = asyncio.get_running_loop()
        self._on_signal = on_signal
        self._asked: asyncio.Future[int] = loop.create_future()
        on_end_signals(loop, self._signalled)

    def _signalled(self, number: int) -> None:
        if not self._asked.done():
            self.ask(_SIGNALLED + number)
            self._on_signal()

    def ask(self, status: int) -> None:
        """Asks it to end with a status; the first one counts."""
        if not self._asked.done():
            self._asked.set_result(status)

    @property
    def is_asked(self) -> bool:
        """Whether the tool was asked to end."""
        return self._asked.done()

    @property
    def status(self) -> int:
        """The exit status of the tool."""
        return self._asked.result() if self.is_asked else 0

    async def cut_short(self, work: Coroutine[None, None, None]) -> None:
        """Runs `work` until it is done, or until the tool is asked to end."""
        task = asyncio.ensure_future(work)
        either: set[asyncio.Future[Any]] = {task, self._asked}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
