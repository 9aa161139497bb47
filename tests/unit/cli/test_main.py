"""The table of commands: every row leads to a module that can parse and run."""

import os
import shlex
import subprocess
import sys
from importlib import import_module
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from tests.deadlines import deadline_s

import odradek
from odradek import __version__
from odradek.cli.main import COMMANDS, INTERRUPTED, OF_OTHERS, READER_GONE, Command, main
from odradek.cli.wheel import command as wheel


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


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["start", "--help"], 0),  # the parser's own printing passes over it
        (["wheel", "--do", "step 1"], READER_GONE),
        (["wheel", "--do", "step 1;" * 500], READER_GONE),
    ],
    ids=["help", "little", "much"],
)
def test_a_reader_may_go_away(words: list[str], status: int) -> None:
    """Goal: `odradek ... | head` shows what was asked for and no traceback behind it."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "odradek", *words],
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
            timeout=deadline_s(120),
            check=False,
        )
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (status, "")


def test_a_command_may_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: Ctrl-C ends any command without a traceback, and its status tells of it."""

    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(wheel, "run", interrupt)
    assert main(["wheel"]) == INTERRUPTED


def test_a_terminal_may_lack_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no traceback where a group or a client has a name that the terminal cannot show."""
    printed = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(printed, "latin-1"))
    monkeypatch.setattr(wheel, "run", lambda _: print("gr\xfc\u20ac") or 0)
    assert main(["wheel"]) == 0
    assert printed.getvalue() == b"gr\xfc\\u20ac\n"


def test_an_argument_may_be_no_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: no traceback where a terminal sends another encoding than Python reads."""
    monkeypatch.setattr(wheel, "run", lambda _: len("gr\udcfc".encode()))
    assert main(["wheel"]) == 1
    told = r"odradek: '\udcfc' cannot be written in utf-8; is LANG a locale of UTF-8?"
    assert capsys.readouterr().err == f"{told}\n"


@pytest.mark.parametrize(
    ("streams", "status", "said"),
    [
        (">/dev/full", 1, "odradek: No space left on device\n"),
        (">&-", 0, ""),
        ("<&-", 0, ""),
    ],
)
def test_a_full_disk_is_told_and_streams_may_be_closed(
    streams: str, status: int, said: str
) -> None:
    """Goal: no traceback or warning, and no file descriptor of a stream goes to a connection."""
    python = f"{shlex.quote(sys.executable)} -W error"
    done = subprocess.run(
        ["sh", "-c", f"exec {python} -m odradek completion bash {streams}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (status, said)


def test_an_unknown_flag_is_answered_with_the_commands_own_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Goal: who mistypes a flag sees those that there are."""
    with pytest.raises(SystemExit) as ended:
        main(["fsck", "--deeep", "data"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "usage: odradek fsck" in error
    assert error.endswith("unrecognized arguments: --deeep (did you mean --deep?)\n")


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The first thing that a new user types would be answered with an error."""
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert "usage: odradek" in out
    assert "run a broker in the foreground" in out
    assert err == ""


def test_words_of_other_tools_stand_for_commands_of_ours() -> None:
    """A new user would be sent to what is not there, or a command could not be reached."""
    known = {command.name for command in COMMANDS}
    assert not known & OF_OTHERS.keys()
    meant = {text.split()[0] for text in OF_OTHERS.values()}
    assert meant <= known | {"--version"}


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["strat"], "there is no command 'strat' (did you mean start?)"),
        (["cluster", "strat"], "(did you mean start?)"),
        (["topic", "--list"], "there is no command 'topic' (did you mean topics?)"),
        (["xyzzy"], "there is no command 'xyzzy'; "),
        (["stop"], "there is no command 'stop' (did you mean cluster stop?)"),
        (["create-topic", "t"], "no command 'create-topic' (did you mean topics --create?)"),
        (["--versoin"], "unrecognized arguments: --versoin (did you mean --version?)"),
        (["--port", "1"], "unrecognized arguments: --port\n"),
        (
            ["start", "--lisener=:1"],
            "unrecognized arguments: --lisener=:1 (did you mean --listener?)",
        ),
        (["start", "--data_dir", "d"], "arguments: --data_dir d (did you mean --data-dir?)"),
        (["top", "--interval", "x"], "unrecognized arguments: --interval x\n"),
        (["start", "--xyzzy"], "unrecognized arguments: --xyzzy\n"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_one_that_was_meant(
    words: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a typing error one would have to look for the word in a list of twenty."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert answer in capsys.readouterr().err


def test_a_file_that_is_not_there_is_told_without_a_number(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`[Errno 2]` is nothing to a reader."""
    with odradek.Broker() as broker:
        broker.create_topic("orders")
        missing = str(tmp_path / "nowhere")
        words = ["produce", "orders", missing, "-b", broker.bootstrap_servers]
        assert main(words) == 1
    assert capsys.readouterr().err == f"odradek: {missing}: No such file or directory\n"
