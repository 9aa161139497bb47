"""Each `except Exception`, and each `suppress(Exception)`, says why it is one.

If this fails, a reader cannot tell a handler that has to outlive somebody else's code from one that
hides a fault of ours (CONTRIBUTING.md, house rules).
"""

import ast
import re

import pytest
from tests.sources import ROOT, reads_sources, text_of, tree_of

pytestmark = reads_sources
BROAD = re.compile("except|suppress")


def is_broad(handler: ast.ExceptHandler) -> bool:
    """Tells whether it takes every error, alone or beside others."""
    kind = handler.type
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(each is None or ast.unparse(each) == "Exception" for each in kinds)


def is_broad_suppression(call: ast.Call) -> bool:
    """Tells whether it is a `suppress` that takes every error."""
    names = [ast.unparse(each) for each in (call.func, *call.args)]
    return names[0].endswith("suppress") and "Exception" in names[1:]


def without_reason(tree: ast.AST, text: str) -> list[int]:
    """The lines of broad handlers with a comment neither on the line, nor before, nor after it."""
    lines = ["", *text.splitlines(), ""]
    broad = [
        each.lineno
        for each in ast.walk(tree)
        if (isinstance(each, ast.ExceptHandler) and is_broad(each))
        or (isinstance(each, ast.Call) and is_broad_suppression(each))
    ]
    return [line for line in broad if not any("#" in each for each in lines[line - 1 :][:3])]


def test_each_broad_handler_says_why_it_is_broad() -> None:
    bare = {
        path.relative_to(ROOT).as_posix(): found
        for path in sorted((ROOT / "src").rglob("*.py"))
        if BROAD.search(text_of(path)) and (found := without_reason(tree_of(path), text_of(path)))
    }
    assert bare == {}


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("except Exception:", True),
        ("except (OSError, Exception) as error:", True),
        ("except:", True),
        ("except Exception:  # a user's callback", False),
        ("except OSError:", False),
        ("except BaseException:", False),
        ("finally:\n  with suppress(Exception):", True),
        ("finally:\n  with contextlib.suppress(OSError, Exception):", True),
        ("finally:\n  with suppress(Exception):  # a user's callback", False),
        ("finally:\n  with suppress(OSError):", False),
    ],
)
def test_it_would_be_found(line: str, is_found: bool) -> None:
    """The search has forgotten what it looks for, or takes `suppress` for something else."""
    text = f"try:\n    call()\n{line}\n    give_up()\n"
    assert bool(without_reason(ast.parse(text), text)) == is_found
