"""Colours and live screens of terminals. If these fail, somebody reads escape sequences."""

import io
import sys

import pytest

from odradek.cli.terminal import is_live, takes_colours


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


@pytest.mark.parametrize(
    ("variables", "colours", "live"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False, True),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_a_terminal_gets_what_it_can_show(
    variables: dict[str, str], colours: bool, live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell in an editor is a dumb terminal."""
    pytest.importorskip("termios")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert (takes_colours(sys.stdout), is_live()) == (colours, live)


def test_a_pipe_gets_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert (takes_colours(sys.stdout), is_live()) == (False, False)
