"""Docstrings and their sentences begin with a subject or a verb, as a reader of English expects."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.sources import reads_sources, tree_of

pytestmark = reads_sources

ROOT = Path(__file__).parents[3]
FOLDERS = ("src", "tests", "tools", "benchmarks", "examples")
# A question, such as "What does a transaction cost a broker?", has a subject.
OPENINGS = re.compile(
    r"(What(?! do(es)?\b)|Has|Who|Whoever|Those|Whether it)\b|Nothing(?! is committed)\b"
)
SENTENCES = re.compile(r"(Whoever|Whom|Who|Nobody|(Those|One) (that|who|whose)|Those of)\b")
ENDS_OF_SENTENCES = re.compile(r"(?<=[.;:!?])\s+|\n\s*\n")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
MODULES = sorted(path for each in FOLDERS for path in (ROOT / each).rglob("*.py"))


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a module."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)) is not None:
            yield text


def openings(path: Path) -> list[str]:
    """The docstrings of a module that begin with a word of the list."""
    name = path.relative_to(ROOT)
    return [f"{name}: {each.splitlines()[0]}" for each in docstrings(path) if OPENINGS.match(each)]


def odd_sentences(text: str) -> list[str]:
    """The sentences of a docstring whose subject is a relative clause or nobody."""
    return [each for each in ENDS_OF_SENTENCES.split(text) if SENTENCES.match(each)]


def test_no_docstring_begins_with_a_bare_question_word() -> None:
    """A list of functions would have to be guessed: "What comes", "Has it done", "Those left"."""
    found = [line for path in MODULES for line in openings(path)]
    assert not found, "\n".join(found)


def test_no_sentence_of_a_docstring_begins_with_a_relative_clause() -> None:
    """A reader would have to look for the subject: "One that raises keeps none of the others"."""
    found = [
        f"{path.relative_to(ROOT)}: {sentence}"
        for path in MODULES
        for text in docstrings(path)
        for sentence in odd_sentences(text)
    ]
    assert not found, "\n".join(found)


def test_the_rule_sees_sentences_behind_others() -> None:
    """Only the first sentence of a docstring would be checked."""
    text = """Closes it. Whoever waits is answered; who does not, is not.

    One that raises is the last.
    """
    assert len(odd_sentences(text)) == 2


def test_errors_have_lines_of_their_own() -> None:
    """If this fails, an error hides in a sentence: "Raises: OSError: the disk failed"."""
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in MODULES
        for text in docstrings(path)
        for line in text.splitlines()
        if re.match(r"\s*Raises: *\S", line)
    ]
    assert not found, "\n".join(found)
