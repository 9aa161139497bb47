"""`odradek top`: brokers, topics' rates, groups' lag and waiting operations, live in the terminal.

Without a terminal, or with `-n`, frames are printed one after the other.
"""

import argparse
import asyncio
import dataclasses
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from typing import Final

from odradek.cli.arguments import positive_number
from odradek.cli.everyday.flags import add_connection, settings_of
from odradek.cli.everyday.monitoring.cluster_view import Sample, View, take_sample, view_of
from odradek.cli.everyday.words import counted, number_words, size_words, table_lines
from odradek.cli.terminal import (
    BOLD,
    ESCAPE_SEQUENCE,
    QUIT,
    YELLOW,
    is_live,
    keys_without_enter,
    painted,
    show_frame,
    takes_colours,
    tell,
    terminal_size,
)
from odradek.cli.tools.connection import add_format, print_json, run_async
from odradek.client import Admin
from odradek.client.settings import ADMIN_SETTINGS
from odradek.errors import text_of
from odradek.log_limit import without_control

HELP: Final = "q quit   space pause   i internal topics"
_WAITING_SHOWN: Final = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser)
    add_format(parser, "for people")
    parser.add_argument(
        "--every", type=_seconds, default=2.0, metavar="SECONDS", help="between samples (2)"
    )
    parser.add_argument(
        "-n", "--count", type=positive_number, metavar="N", help="print N frames and end"
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Shows the cluster until `q`, or prints the number of frames asked for."""
    prints = arguments.count is not None or arguments.output == "json" or not is_live()

    async def work() -> int:
        async with Admin(config=settings_of(arguments, ADMIN_SETTINGS)) as admin:
            if prints:
                await _print_frames(admin, arguments)
            else:
                await TopScreen().play(_views(admin, arguments.every))
        return 0

    return run_async(work, lambda error: tell(text_of(error)))


async def _views(admin: Admin, every_s: float) -> AsyncIterator[View]:
    """Yields a view after each sample; the first one has no rates, so the second follows soon."""
    before: Sample | None = None
    while True:
        at_ms = time.monotonic_ns() // 1_000_000
        sample = await take_sample(admin, at_ms, time.time_ns() // 1_000_000)
        yield view_of(sample, before)
        wait_s = min(every_s, 0.5) if before is None else every_s
        before = sample
        await asyncio.sleep(wait_s)


async def _print_frames(admin: Admin, arguments: argparse.Namespace) -> None:
    left = arguments.count
    colours = takes_colours(sys.stdout)
    first = True
    async for view in _views(admin, arguments.every):
        if first:
            first = False  # it has no rates
            continue
        if arguments.output == "json":
            print_json(dataclasses.asdict(view))
        else:
            print("\n".join([*frame_lines(view, colours=colours), ""]))
        sys.stdout.flush()
        left = None if left is None else left - 1
        if left == 0:
            return


class TopScreen:
    """The live screen: takes views and keys, draws frames."""

    def __init__(self) -> None:
        self._view: View | None = None
        self._is_paused = False
        self._shows_internal = False
        self._ended = asyncio.Event()

    async def play(self, views: AsyncIterator[View]) -> None:
        """Draws, and handles keys until `q` or the end of input.

        Raises:
            KafkaError: the cluster does not answer.
        """
        loop = asyncio.get_running_loop()
        watching = asyncio.ensure_future(self._watch(views))
        ended = asyncio.ensure_future(self._ended.wait())
        with keys_without_enter():
            loop.add_reader(sys.stdin.fileno(), self._on_keys)
            loop.add_signal_handler(signal.SIGWINCH, self._draw)
            try:
                self._draw()
                await asyncio.wait({watching, ended}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                loop.remove_signal_handler(signal.SIGWINCH)
                loop.remove_reader(sys.stdin.fileno())
                for task in (watching, ended):
                    task.cancel()
                await asyncio.wait({watching, ended})
        with suppress(asyncio.CancelledError):
            watching.result()

    async def _watch(self, views: AsyncIterator[View]) -> None:
        async for view in views:
            if not self._is_paused:
                self._view = view
                self._draw()

    def _on_keys(self) -> None:
        pressed = os.read(sys.stdin.fileno(), 64).decode(errors="replace")
        for key in ESCAPE_SEQUENCE.sub("", pressed) if pressed else QUIT[0]:
            self.press(key)
        self._draw()

    def press(self, key: str) -> None:
        """Carries out a key's command; other keys do nothing."""
        if key in QUIT:
            self._ended.set()
        elif key == " ":
            self._is_paused = not self._is_paused
        elif key == "i":
            self._shows_internal = not self._shows_internal

    def show(self, view: View) -> None:
        """Takes a view as the latest sample."""
        self._view = view

    def frame(self, columns: int, rows: int, *, colours: bool = True) -> list[str]:
        """Returns the lines of the current frame."""
        if self._view is None:
            return ["asking the brokers ...", HELP]
        help_line = f"{HELP}   (paused)" if self._is_paused else HELP
        lines = frame_lines(
            self._view, rows=rows - 2, colours=colours, shows_internal=self._shows_internal
        )
        return [cut(line, columns) for line in (*lines[: rows - 2], help_line)]

    def _draw(self) -> None:
        show_frame(self.frame(*terminal_size(), colours=takes_colours(sys.stdout)))


def cut(line: str, columns: int) -> str:
    """Cuts a line to so many columns; colours do not count."""
    if len(ESCAPE_SEQUENCE.sub("", line)) <= columns:
        return line
    return ESCAPE_SEQUENCE.sub("", line)[:columns]


def frame_lines(
    view: View, *, rows: int = 1000, colours: bool = False, shows_internal: bool = True
) -> list[str]:
    """Returns a view as lines for so many rows: the longer a table, the more of it is left out."""
    moment = datetime.fromtimestamp(view.wall_ms / 1000).strftime("%H:%M:%S")
    rate = sum(each.records_per_s or 0 for each in view.brokers)
    head = (
        f"cluster {view.cluster_id}   {moment}   {counted(len(view.brokers), 'broker')}   "
        f"{number_words(rate)} records/s"
    )
    brokers = table_lines(
        ("BROKER", "#LEADS", "#REPLICAS", "#SIZE", "#RECORDS/S"),
        [
            (
                f"{each.node.id} {each.node.host}:{each.node.port}"
                + (" (controller)" if each.is_controller else ""),
                str(each.leads),
                str(each.replicas),
                size_words(each.size_bytes),
                number_words(each.records_per_s),
            )
            for each in view.brokers
        ],
        colours=colours,
    )
    topics = table_lines(
        ("TOPIC", "#PARTITIONS", "#SIZE", "#RECORDS/S", "#BYTES/S"),
        [
            (
                each.name,
                str(each.partitions),
                size_words(each.size_bytes),
                number_words(each.records_per_s),
                size_words(each.bytes_per_s),
            )
            for each in view.topics
            if shows_internal or not each.is_internal
        ],
        colours=colours,
    )
    groups = table_lines(
        ("GROUP", "STATE", "#MEMBERS", "#LAG", "#RECORDS/S"),
        [
            (
                each.name,
                each.state,
                str(each.members),
                number_words(each.lag),
                number_words(each.records_per_s),
            )
            for each in view.groups
        ],
        colours=colours,
    )
    waiting = _waiting_lines(view, colours=colours)
    tables = _fitting([brokers, topics, groups], rows - 2 - len(waiting))
    lines = [painted(head, BOLD) if colours else head]
    for table in (*tables, waiting):
        lines += ["", *table] if table else []
    return lines


def _waiting_lines(view: View, *, colours: bool) -> list[str]:
    if not view.waiting:
        return []
    shown = [without_control(each) for each in view.waiting[:_WAITING_SHOWN]]
    if len(view.waiting) > len(shown):
        shown.append(f"and {len(view.waiting) - len(shown)} more")
    title = painted("WAITING", BOLD) if colours else "WAITING"
    return [title, *(painted(each, YELLOW) if colours else each for each in shown)]


def _fitting(tables: list[list[str]], rows: int) -> list[list[str]]:
    """Returns the tables, the longest ones shortened until all fit; a blank line precedes each."""
    lengths = [len(table) for table in tables]
    while sum(lengths) + len(tables) > rows and max(lengths) > 2:
        lengths[lengths.index(max(lengths))] -= 1
    return [
        table
        if length == len(table)
        else [*table[: length - 1], f"and {len(table) - length + 1} more"]
        for table, length in zip(tables, lengths, strict=True)
    ]
