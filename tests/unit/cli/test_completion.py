"""Completion scripts, in the shells that they are for."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.deadlines import deadline_s
from tests.terminals import read_until
from tools import peers

from odradek.cli.main import COMMANDS, main

PATIENCE_S = deadline_s(60)
COMPLETED = [
    ("", {command.name for command in COMMANDS} | {"--help", "--version"}),
    ("topi", {"topics"}),
    ("start --da", {"--data-dir"}),
    ("topics --format ", {"text", "json"}),
    ("transactions find", {"find-hanging"}),
    ("leader-election --election-type ", {"preferred", "unclean"}),
    ("help topi", {"topics"}),
    ("completion ", {"bash", "zsh", "--help"}),
    ("start --config ", set()),  # a file: the shell's own
]


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == 0
    path = folder / f"odradek.{shell}"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    return path


def run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=deadline_s(60), check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize(("typed", "offered"), COMPLETED, ids=[typed for typed, _ in COMPLETED])
def test_bash(
    typed: str, offered: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tabulator key offers what the command does not take, or not what it takes."""
    words = ["odradek", *typed.split(" ")]
    shown = run(
        "bash",
        "--norc",
        "-c",
        f"source {script('bash', tmp_path, capsys)}; COMP_WORDS=({shlex.join(words)});"
        f'COMP_CWORD={len(words) - 1}; _odradek; printf "%s\\n" "${{COMPREPLY[@]}}"',
    )
    assert set(shown.split()) == offered


def test_bash_completes_what_somebody_types(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The function would be right, and the tabulator key do nothing."""
    path = script("bash", tmp_path, capsys)
    terminal, inside = os.openpty()
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"], stdin=inside, stdout=inside, stderr=inside
    )
    os.close(inside)
    try:
        os.write(terminal, f"source {shlex.quote(str(path))}; echo rea''dy\n".encode())
        read_until(terminal, "ready", PATIENCE_S)
        os.write(terminal, b"odradek topi\t--form\tj\t")
        read_until(terminal, "odradek topics --format json", PATIENCE_S)
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)


@pytest.fixture(scope="session")
def zsh() -> str:
    """The shell, fetched where it is missing."""
    try:
        return peers.zsh()
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", "topics:list, describe, create, alter, delete topics"),
        ("topics --format ", "json"),
        ("start --da", "--data-dir:the data directory"),
        ("transactions find", "find-hanging"),
        ("start --config ", "FILES"),
    ],
)
def test_zsh(
    zsh: str, typed: str, offered: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Words come without their meaning, or the function's text is no zsh."""
    path = script("zsh", tmp_path, capsys)
    words = ["odradek", *typed.split(" ")]
    shown = run(
        zsh,
        "-f",
        "-c",
        'compdef() { }; _files() { print FILES }; compadd() { print -l -- "${@[2,-1]}" };'
        '_describe() { print -l -- "${(@P)@[-1]}" };'
        f"source {path}; words=({shlex.join(words)}); CURRENT={len(words)}; _odradek",
    )
    assert offered in shown.splitlines()
