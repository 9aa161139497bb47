"""The texts that a user reads never speak of our own rows, notes and machines.

A user reads README and docs, what commands print, and what `help()` shows: the texts in `src`.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
INTERNAL = re.compile(
    r"\b[RN]\d{1,2}\b"  # rows of a plan
    r"|\bissues? #?\d+|\bfault \d|(?<![\w&])#\d{1,3}\b"
    r"|/work/|/root/|\bfarm-\w+"
)
# zsh, the shell of macOS, takes brackets for a pattern of file names.
UNQUOTED = re.compile(r"pip install (?:-\S+ )*[\w.]+\[")
KINDS = ("*.py", "*.md", "*.toml", "*.yml", "*.html")
FOLDERS = ("src", "docs", "examples", "benchmarks")


def what_users_read() -> list[Path]:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "setup.py"]
    pages += [path for folder in FOLDERS for kind in KINDS for path in (ROOT / folder).rglob(kind)]
    return sorted(pages)


def lines_with(pattern: re.Pattern[str]) -> str:
    """The lines that users read and that hold the pattern, with their places."""
    return "\n".join(
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in what_users_read()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    )


def test_there_are_no_internal_numbers() -> None:
    """`help(odradek.Broker)` ends with a number that only its authors can look up."""
    assert lines_with(INTERNAL) == ""


def test_an_extra_is_quoted() -> None:
    """A user of zsh who types what an error says would read `no matches found`."""
    assert lines_with(UNQUOTED) == ""
    assert UNQUOTED.search("pip install odradek[security]")


@pytest.mark.parametrize("text", ["for tests (R40).", "see issue 11", "(R7, R21)", "fault 5"])
def test_it_would_be_found(text: str) -> None:
    """The search has forgotten what it looks for."""
    assert INTERNAL.search(text)
