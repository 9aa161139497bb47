"""`odradek wheel`: a live timing wheel in the terminal, for who wants to see how it works.

The wheel is the broker's own, over a clock that the keys move. With `--do` it carries out
commands instead and prints the wheel after each, as text, as JSON, or as SVG files; so do
the pictures of docs/concepts come about. Without a terminal it plays the worked example.
"""

from __future__ import annotations

import argparse
import json
import select
import shutil
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from odradek.cli.wheel_drawing import draw_svg, draw_text
from odradek.cli.wheel_show import CommandError, Snapshot, WheelShow

WORKED_EXAMPLE: Final = (
    "add a350 350; add b450 450; add c446 446; add d455 455; add e473 473; "
    "next; next; next; next; next; next; next; next; next"
)
BIGGEST_WHEEL: Final = 40
FRAME_S: Final = 0.1

HELP_LINE: Final = (
    "space run/pause   n +1 ms   t +10 ms   b next bucket   a add   l add far   c cancel   "
    "r restart   q quit"
)
NEAR_MS: Final = (2, 8, 13, 19, 37, 90, 150, 350)
FAR_MS: Final = (450, 473, 1200, 7900, 9000, 40_000)


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
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """Shows the wheel until `q`, or carries out the commands."""
    if not 2 <= arguments.wheel_size <= BIGGEST_WHEEL or arguments.tick_ms < 1:
        limits = f"a tick is 1 ms at least, and a wheel shown has 2 to {BIGGEST_WHEEL} buckets"
        print(f"odradek: {limits}", file=sys.stderr)
        return 2
    show = WheelShow(arguments.tick_ms, arguments.wheel_size)
    live = arguments.do is None and sys.stdin.isatty() and sys.stdout.isatty()
    if live:
        with suppress(KeyboardInterrupt):
            Screen(arguments.tick_ms, arguments.wheel_size).play()
        return 0
    try:
        carry_out(show, arguments.do or WORKED_EXAMPLE, arguments.format, arguments.svg)
    except CommandError as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"odradek: cannot write pictures: {error}", file=sys.stderr)
        return 1
    return 0


def carry_out(show: WheelShow, commands: str, output: str, svg_dir: str | None) -> None:
    """Does one command after the other and shows the wheel after each.

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


class Screen:
    """The live wheel: keys in, frames out. While it runs, a second of it takes ten of ours."""

    def __init__(self, tick_ms: int, wheel_size: int) -> None:
        self._tick_ms = tick_ms
        self._wheel_size = wheel_size
        self._show = WheelShow(tick_ms, wheel_size)
        self._added = 0
        self._running = False

    def play(self) -> None:
        """Draws and obeys until `q` or the end of input."""
        with keys_without_enter():
            self._draw()
            while (key := self._wait_for_key()) not in ("q", "\x04"):
                self.press(key)
                self._draw()

    def _wait_for_key(self) -> str:
        """A key, or nothing ("") when a running wheel has to go on."""
        ready, _, _ = select.select([sys.stdin], [], [], FRAME_S if self._running else None)
        return sys.stdin.read(1) or "q" if ready else ""

    def press(self, key: str) -> None:
        """Does what a key stands for; keys without a meaning do nothing."""
        if key == "":
            self._show.step(10)
        elif key == " ":
            self._running = not self._running
        elif key == "n":
            self._show.step(1)
        elif key == "t":
            self._show.step(10)
        elif key == "b":
            self._show.next_bucket()
        elif key == "a":
            self._add(NEAR_MS)
        elif key == "l":
            self._add(FAR_MS)
        elif key == "c" and self._show.names:
            self._show.cancel(self._show.names[0])
        elif key == "r":
            self._show = WheelShow(self._tick_ms, self._wheel_size)

    def _add(self, delays_ms: tuple[int, ...]) -> None:
        delay_ms = delays_ms[self._added % len(delays_ms)]
        self._added += 1
        self._show.add(f"t{self._added}", delay_ms)

    def frame(self, colour: bool = True) -> str:
        """What the screen shows now."""
        state = "running, ten times slower than life" if self._running else "paused"
        return f"{draw_text(self._show.snapshot(), colour)}\n{HELP_LINE}\n({state})\n"

    def _draw(self) -> None:
        rows = shutil.get_terminal_size().lines
        lines = self.frame().splitlines()[: rows - 1]
        sys.stdout.write("\x1b[H\x1b[2J" + "\r\n".join(lines) + "\r\n")
        sys.stdout.flush()


@contextmanager
def keys_without_enter() -> Iterator[None]:
    """Lets single keys through while the block runs; the terminal is as before after it."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        sys.stdout.write("\x1b[?1049h\x1b[?25l")
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()
