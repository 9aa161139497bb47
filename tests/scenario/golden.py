"""Golden stories: blocks of commands, and after `----` what they caused, compared to the letter.

A command is a verb, names, and `key=value` words; it is a method of the story. Lines that begin
with `#` are comments. `ODRADEK_REWRITE=1` writes the outcomes into the files: read the
difference before keeping it.
"""

import os
from pathlib import Path

RULE = "----"


class Story:
    """The system that a file tells about; `lines` is what has happened since the last block."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def do(self, command: str) -> None:
        """Carries one line out."""
        verb, *words = command.split()
        names = [word for word in words if "=" not in word]
        values = dict(word.split("=", 1) for word in words if "=" in word)
        getattr(self, verb)(*names, **values)


def stories(test_file: str, name: str) -> list[Path]:
    """The files of `testdata/<name>` beside a test."""
    found = sorted((Path(test_file).parent / "testdata" / name).glob("*.txt"))
    assert found, f"there is no story of {name}"
    return found


def check(path: Path, story: Story) -> None:
    """Holds a file against what its story comes to today."""
    expected = path.read_text(encoding="utf-8")
    told = tell(expected, story)
    if os.environ.get("ODRADEK_REWRITE"):
        path.write_text(told, encoding="utf-8")
    assert told == expected


def tell(text: str, story: Story) -> str:
    """The text with the outcomes that it has today."""
    told: list[str] = []
    in_outcome = False
    for line in text.rstrip("\n").split("\n"):
        if line == RULE:
            told += [RULE, *story.lines]
            story.lines = []
            in_outcome = True
        elif not line:
            told.append("")
            in_outcome = False
        elif not in_outcome:
            told.append(line)
            if not line.startswith("#"):
                story.do(line)
    return "\n".join(told) + "\n"
