"""The glossary of CONTRIBUTING.md holds: its words are used, and words that it bans are not.

Decisions and the log of measurements tell what was once, and in the words of then.
"""

import ast
import functools
import re
from pathlib import Path

import pytest
from tests.sources import reads_sources, text_of, tree_of

pytestmark = reads_sources

ROOT = Path(__file__).resolve().parents[3]
PAGE = "CONTRIBUTING.md"
HISTORY = {ROOT / "CHANGELOG.md", *(ROOT / "docs/decisions").rglob("*.md")}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FEWEST_WORDS = 60


def table(heading: str) -> list[str]:
    """The first column of one of the glossary's two tables."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    rows = text[text.index(heading) + len(heading) :].lstrip().split("\n\n")[0].splitlines()
    return [row.split("|")[1].strip() for row in rows if not row.startswith("|--")]


def words() -> list[str]:
    return table("| word | what it is |")


def banned() -> list[str]:
    return table("| not | but |")


@functools.cache
def texts() -> list[tuple[str, str]]:
    """The texts that users and developers read: each page, and each docstring, by its place."""
    pages = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - HISTORY)
    found = [
        (str(path.relative_to(ROOT)), text_of(path).partition("\n| not | but |")[0])
        for path in pages
    ]
    for path in sorted((ROOT / "src").rglob("*.py")):
        found += [
            (f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text)
            for node in ast.walk(tree_of(path))
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node))
        ]
    return found


def pattern(word: str) -> re.Pattern[str]:
    """The word in the singular and the plural, and no part of a file's or a parameter's name."""
    stem = re.escape(word).removesuffix("y")
    return re.compile(rf"(?<![\w`./-]){stem}(?:s|es|y|ies|ed)?(?![\w`./]*[\w`/])", re.IGNORECASE)


def test_there_are_words_in_their_order() -> None:
    """Somebody who looks for a word finds none, or two of it."""
    found = [word.lower() for word in words()]
    assert len(found) >= FEWEST_WORDS
    assert found == sorted(set(found))


def test_every_word_is_used() -> None:
    """The glossary explains what nobody says: the code has another word for it."""
    sources = (ROOT / "src").rglob("*.py")
    said = " ".join(map(text_of, sources)).lower()
    said = said.replace("_", " ").replace("\n", " ")
    assert not [word for word in words() if word.lower() not in said]


@pytest.mark.parametrize("word", banned())
def test_no_banned_word_is_said(word: str) -> None:
    """A reader who knows Kafka has to learn a second word for something."""
    found = [
        f"{place}: {line.strip()}"
        for place, text in texts()
        for line in text.splitlines()
        if pattern(word).search(line)
    ]
    assert not found, "\n".join(found)


def test_a_banned_word_would_be_found() -> None:
    """The search has forgotten what it looks for."""
    for said in ("a wish that", "two wishes", "candidacies", "dice of its own", "Consignments."):
        assert any(pattern(word).search(said) for word in banned()), said
    assert not any(pattern(word).search("see `dice.py` and `dice`") for word in banned())
