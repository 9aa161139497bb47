"""The week of retries, as docs/concepts/scheduled-delivery.md shows it."""

from pathlib import Path

from examples.schedules import retries
from examples.schedules.__main__ import main

PAGE = (Path(__file__).parents[3] / "docs/concepts/scheduled-delivery.md").read_text()


def test_the_page_shows_what_happens(capsys):
    """Fails when retries come at other times than the documentation says, or are lost."""
    main()
    printed = capsys.readouterr().out
    assert printed.count("fails") == 1 + len(retries.DELAYS)
    assert f"```text\n{printed}```" in PAGE


def test_the_page_shows_the_program():
    """Fails when the program in the documentation is another than the one that is run."""
    assert f"```python\n{Path(retries.__file__).read_text()}```" in PAGE
