"""`odradek wheel`: a live timing wheel in the terminal, to show how it works.

The wheel is the broker's own, over a clock that the keys move. With `--do` it carries out commands
instead and prints the wheel after each, as text, as JSON, or as SVG files; the pictures of
docs/concepts are made this way. Without a terminal it plays the worked example.
"""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from pathlib import Path
from typing import Final

from odradek.cli.arguments import add_format
from odradek.cli.terminal import is_live, tell
from odradek.cli.wheel.drawing import draw_svg, draw_text
from odradek.cli.wheel.screen import Screen
from odradek.cli.wheel.show import CommandError, Snapshot, WheelShow

WORKED_EXAMPLE: Final = (
    "add a350 350; add b450 450; add c446 446; add d455 455; add e473 473; "
    "next; next; next; next; next; next; next; next; next"
)
BIGGEST_WHEEL: Final = 40
BIGGEST_TICK_MS: Final = 86_400_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `odradek wheel`."""
    parser.add_argument(
        "--tick-ms", type=int, default=1, metavar="N", help="width of a bucket of level 1 (1)"
    )
    parser.add_argument(
        "--wheel-size", type=int, default=20, metavar="N", help="buckets of each level (20)"
    )
    parser.add_argument(
        "--do",
        metavar="COMMANDS",
        help="commands apart by `;`: add NAME MS, cancel NAME, step MS, next (due bucket)",
    )
    parser.add_argument(
        "--svg", metavar="DIR", help="with --do: a picture 1.svg, 2.svg, ... after each command"
    )
    add_format(parser, "with --do: an object after each command")


def run(arguments: argparse.Namespace) -> int:
    """Shows the wheel until `q`, or carries out the commands.

    Raises:
        OSError: a picture cannot be written.
    """
    size_fits = 2 <= arguments.wheel_size <= BIGGEST_WHEEL
    if not size_fits or not 1 <= arguments.tick_ms <= BIGGEST_TICK_MS:
        limits = f"a tick is 1 ms to 1 day, and a wheel shown has 2 to {BIGGEST_WHEEL} buckets"
        tell(limits)
        return 2
    show = WheelShow(arguments.tick_ms, arguments.wheel_size)
    live = arguments.do is None and is_live()
    if live:
        with suppress(KeyboardInterrupt):
            Screen(arguments.tick_ms, arguments.wheel_size).play()
        return 0
    try:
        carry_out(show, arguments.do or WORKED_EXAMPLE, arguments.format, arguments.svg)
    except CommandError as error:
        tell(str(error))
        return 2
    return 0


def carry_out(show: WheelShow, commands: str, output: str, svg_dir: str | None) -> None:
    """Runs one command after the other and shows the wheel after each.

    Raises:
        CommandError: a command cannot be carried out.
    """
    for position, command in enumerate(filter(None, map(str.strip, commands.split(";"))), 1):
        show.do(command)
        snapshot = show.snapshot()
        if svg_dir is not None:
            directory = Path(svg_dir)
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"{position}.svg").write_text(draw_svg(snapshot), encoding="utf-8")
        elif output == "json":
            print(json.dumps({"command": command, **as_json(snapshot)}))
        else:
            print(f"> {command}\n{draw_text(snapshot)}")


def as_json(snapshot: Snapshot) -> dict[str, object]:
    """A snapshot in plain values."""
    return {
        "now_ms": snapshot.now_ms,
        "next_due_ms": snapshot.next_due_ms,
        "levels": [level._asdict() for level in snapshot.levels],
        "tasks": [task._asdict() for task in snapshot.tasks],
        "events": list(snapshot.events),
    }
