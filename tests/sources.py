"""Files of the project as tests read them: each is read once, and parsed once.

Parsing all modules takes seconds, so the tests that do it run in one process: they are marked
`reads_sources`.
"""

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
reads_sources = pytest.mark.xdist_group("sources")


@functools.cache
def text_of(path: Path) -> str:
    """The text of a file."""
    return path.read_text(encoding="utf-8")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a module, which nobody changes."""
    return ast.parse(text_of(path))
