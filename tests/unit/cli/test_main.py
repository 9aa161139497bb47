"""The table of commands: every row leads to a module that can parse and run."""

from importlib import import_module

import pytest

from odradek import __version__
from odradek.cli.main import COMMANDS, Command, main


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_a_module_and_help(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: nothing is listed that does not exist."""
    module = import_module(command.module)
    assert callable(module.run)
    with pytest.raises(SystemExit) as ended:
        main([command.name, "--help"])
    assert ended.value.code == 0
    assert f"odradek {command.name}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: a bug report can name the version."""
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"odradek {__version__}\n"
