"""Commands that run in a terminal of the test's own."""

import os
import select

# The environment of a terminal that shows all, whichever this process is started in.
TERMINAL = {**os.environ, "TERM": "xterm"}


def read_until(terminal: int, words: str, patience_s: float) -> None:
    """Reads what the command shows until the words are there; the end of it is an error."""
    seen = ""
    while words not in seen:
        ready, _, _ = select.select([terminal], [], [], patience_s)
        assert ready, f"{words!r} was never shown: {seen!r}"
        seen += os.read(terminal, 4096).decode(errors="replace")
