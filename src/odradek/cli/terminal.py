"""A terminal as live screens and coloured output need it.

Colours and progress are written to terminals only, and `NO_COLOR` switches colours off there too;
a terminal whose `TERM` is `dumb` gets neither colours nor a live screen.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final, TextIO

from odradek.log_limit import without_control

QUIT: Final = ("q", "\x04")
ESCAPE_SEQUENCE: Final = re.compile(r"\x1b(\[[0-9;]*[A-Za-z~]|O.)?")
RESET: Final = "\x1b[0m"
BOLD: Final = "\x1b[1m"
DIM: Final = "\x1b[2m"
YELLOW: Final = "\x1b[33m"
CYAN: Final = "\x1b[36m"
_OUR_COLOURS: Final = re.compile(f"({'|'.join(map(re.escape, (RESET, BOLD, DIM, YELLOW, CYAN)))})")
_KEPT: Final = "\n\t"


def takes_colours(stream: TextIO) -> bool:
    """Whether a stream is a terminal on which colours are allowed."""
    return stream.isatty() and not (os.environ.get("NO_COLOR") or _is_dumb())


def _is_dumb() -> bool:
    """Whether the terminal shows escape sequences as text, as that of an editor does."""
    return os.environ.get("TERM") == "dumb"


def tell(sentence: str) -> None:
    """Tells something beside the output, at once; it may quote somebody else."""
    print(f"odradek: {without_control(sentence, kept=_KEPT)}", file=sys.stderr, flush=True)


class PrintableOutput:
    """Standard output that is a terminal, as commands print to it.

    Names are a client's: of groups, of clients, of hosts. None of their control characters reaches
    the terminal, of all escape sequences only our colours do. What is written to `buffer` does:
    values of records, as `consume -f` and `console-consumer` have them, are as they are.
    """

    def __init__(self, terminal: TextIO) -> None:
        self.terminal: Final = terminal

    def write(self, text: str) -> int:
        """Writes the text with its control characters as escapes."""
        if not text.isprintable():
            pieces = _OUR_COLOURS.split(text)
            pieces[::2] = (without_control(each, kept=_KEPT) for each in pieces[::2])
            text = "".join(pieces)
        return self.terminal.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes all of them."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)


def screen() -> TextIO:
    """Standard output, as live screens draw on it."""
    output = sys.stdout
    return output.terminal if isinstance(output, PrintableOutput) else output


def is_live() -> bool:
    """Whether there is a screen to draw on, and a keyboard that can be read key by key."""
    if _is_dumb() or find_spec("termios") is None:
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


def painted(text: str, colour: str) -> str:
    """The text in a colour."""
    return f"{colour}{text}{RESET}"


def show_frame(lines: list[str]) -> None:
    """Draws a frame over the last one."""
    # Each line clears its rest and the last one what is below: no frame is ever half empty.
    text = "".join(f"{line}\x1b[K\n" for line in lines)
    screen().write(f"\x1b[H{text}\x1b[J")
    screen().flush()


def terminal_size() -> tuple[int, int]:
    """Returns columns and rows; 80 and 24 if the terminal does not know them."""
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    return columns or 80, rows or 24


@contextmanager
def keys_without_enter() -> Iterator[None]:
    """Lets single keys through while the block runs, then restores the terminal."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        screen().write("\x1b[?1049h\x1b[?25l")
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        screen().write("\x1b[?25h\x1b[?1049l")
        screen().flush()


@contextmanager
def size_changes() -> Iterator[int]:
    """Yields a descriptor that becomes readable when the terminal's size changes."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    handler = signal.signal(signal.SIGWINCH, lambda _number, _frame: None)  # the pipe tells
    wakeup = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    try:
        yield readable
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGWINCH, handler)
        os.close(readable)
        os.close(writable)
