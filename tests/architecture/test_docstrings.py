"""Docstrings begin with a verb or a noun, as a reader of English expects."""

import ast
import re
from pathlib import Path

from tests.sources import reads_sources, tree_of

pytestmark = reads_sources

SOURCES = Path(__file__).parents[2] / "src"
OPENINGS = re.compile(r"(What|Has|Who|Whoever|Those)\b|Nothing(?! is committed)\b")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def openings(path: Path) -> list[str]:
    """The docstrings of a module that begin with a word of the list."""
    return [
        f"{path.relative_to(SOURCES)}: {text.splitlines()[0]}"
        for node in ast.walk(tree_of(path))
        if isinstance(node, DOCUMENTED)
        and (text := ast.get_docstring(node)) is not None
        and OPENINGS.match(text)
    ]


def test_no_docstring_begins_with_a_bare_question_word() -> None:
    """A list of functions would have to be guessed: "What comes", "Has it done", "Those left"."""
    found = [line for path in sorted(SOURCES.rglob("*.py")) for line in openings(path)]
    assert not found, "\n".join(found)
