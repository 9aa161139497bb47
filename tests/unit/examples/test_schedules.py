"""The week of retries, as docs/concepts/scheduled-delivery.md shows it."""

import subprocess
import sys
from pathlib import Path

import pytest
from examples.schedules import retries
from examples.schedules.__main__ import main

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/concepts/scheduled-delivery.md").read_text()


def test_the_page_shows_what_happens(capsys):
    """Fails when retries come at other times than the documentation says, or are lost."""
    main()
    printed = capsys.readouterr().out
    assert printed.count("fails") == 1 + len(retries.DELAYS)
    assert f"```text\n{printed}```" in PAGE


def test_the_page_shows_the_program():
    """Fails when the program in the documentation is another than the one that is run."""
    assert f"```python\n{Path(retries.__file__).read_text()}```" in PAGE


@pytest.mark.parametrize("words", [["examples.schedules"], ["examples.replication", "/dev/null"]])
def test_an_example_prints_nothing_but_what_its_page_shows(words: list[str]) -> None:
    """librdkafka writes lines about a broker that ends before its client, and frightens readers.
    It writes past Python, so that this needs a process."""
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == ""
