"""Each `except Exception` says why it is one.

If this fails, a reader cannot tell a handler that has to outlive somebody else's code from one that
hides a fault of ours (CONTRIBUTING.md, house rules).
"""

import ast

import pytest
from tests.sources import ROOT, reads_sources, text_of, tree_of

pytestmark = reads_sources


def is_broad(handler: ast.ExceptHandler) -> bool:
    """Tells whether it takes every error, alone or beside others."""
    kind = handler.type
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(each is None or ast.unparse(each) == "Exception" for each in kinds)


def without_reason(tree: ast.AST, text: str) -> list[int]:
    """The lines of broad handlers with a comment neither on the line, nor before, nor after it."""
    lines = ["", *text.splitlines(), ""]
    handlers = [each for each in ast.walk(tree) if isinstance(each, ast.ExceptHandler)]
    return [
        each.lineno
        for each in handlers
        if is_broad(each) and not any("#" in line for line in lines[each.lineno - 1 :][:3])
    ]


def test_each_broad_handler_says_why_it_is_broad() -> None:
    bare = {
        path.relative_to(ROOT).as_posix(): found
        for path in sorted((ROOT / "src").rglob("*.py"))
        if "except" in text_of(path) and (found := without_reason(tree_of(path), text_of(path)))
    }
    assert bare == {}


@pytest.mark.parametrize(
    ("clause", "is_found"),
    [
        ("except Exception:", True),
        ("except (OSError, Exception) as error:", True),
        ("except:", True),
        ("except Exception:  # a user's callback", False),
        ("except OSError:", False),
        ("except BaseException:", False),
    ],
)
def test_it_would_be_found(clause: str, is_found: bool) -> None:
    """The search has forgotten what it looks for."""
    text = f"try:\n    call()\n{clause}\n    give_up()\n"
    assert without_reason(ast.parse(text), text) == ([3] if is_found else [])
