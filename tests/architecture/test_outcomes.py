"""No callback looks away from the outcome of what was begun.

If this fails, an append, a delayed operation or a question can be refused without anybody
noticing: an id stays in PREPARE, a member that has left stays in its group. `ignore` takes no
argument, so mypy refuses it wherever an outcome comes; here are the other ways to look away.
"""

import ast
import inspect
import re

import pytest
from tests.sources import ROOT, reads_sources, text_of, tree_of

from odradek.background import ignore

pytestmark = reads_sources
Function = ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef
OUTCOME = re.compile("_(outcome|error|failure|refusal|answer|result|code)s?")
OUTCOME_TYPE = re.compile(r"\b(BrokerError|Refusal|Failure|\w*Result|\w*Outcome|\w*Exception)\b")
CALLBACK_TYPE = re.compile(r"\b(Callable|On\w+)\b")


def does_nothing(function: Function) -> bool:
    """Tells whether it has no statement but a docstring, `pass`, `...` or a plain `return`."""
    if isinstance(function, ast.Lambda):
        return isinstance(function.body, ast.Constant)
    return all(
        isinstance(each, ast.Pass)
        or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        or (isinstance(each, ast.Return) and each.value is None)
        for each in function.body
    )


def parameters(function: Function) -> list[ast.arg]:
    """Its parameters, without those that can only be named."""
    given = function.args
    rest = [] if given.vararg is None else [given.vararg]
    return [*given.posonlyargs, *given.args, *rest]


def takes_outcome(parameter: ast.arg) -> bool:
    """Tells whether its type is that of an outcome, and not of a callback for one."""
    kind = "" if parameter.annotation is None else ast.unparse(parameter.annotation)
    return OUTCOME_TYPE.search(kind) is not None and not CALLBACK_TYPE.search(kind)


def is_promise(function: Function) -> bool:
    """Tells whether it is a method that others implement: abstract, or `...` of a protocol."""
    statements = [] if isinstance(function, ast.Lambda) else function.body
    decorators = [] if isinstance(function, ast.Lambda) else function.decorator_list
    return "abstractmethod" in map(ast.unparse, decorators) or (
        len(statements) > 1 and ast.unparse(statements[-1]) == "..."
    )


def looks_away(function: Function) -> bool:
    """Tells whether it gets an outcome, or may get one, and does not read it."""
    read = {each.id for each in ast.walk(function) if isinstance(each, ast.Name)}
    unread = [each for each in parameters(function) if each.arg not in read]
    if isinstance(function, ast.Lambda) and does_nothing(function):
        return bool(unread) and function.body.value is None  # type: ignore[attr-defined]
    if any(OUTCOME.fullmatch(each.arg) for each in unread):
        return True
    return does_nothing(function) and not is_promise(function) and any(map(takes_outcome, unread))


def unexplained(tree: ast.AST, text: str) -> list[int]:
    """The lines of functions that look away, with a comment neither there, nor before."""
    lines = ["", *text.splitlines()]
    found = [
        each.lineno for each in ast.walk(tree) if isinstance(each, Function) and looks_away(each)
    ]
    return sorted(line for line in found if not any("#" in each for each in lines[line - 1 :][:2]))


def test_whoever_looks_away_from_an_outcome_says_why() -> None:
    bare = {
        path.relative_to(ROOT).as_posix(): found
        for path in sorted((ROOT / "src/odradek").rglob("*.py"))
        if (found := unexplained(tree_of(path), text_of(path)))
    }
    assert bare == {}


def test_what_ignores_takes_no_outcome() -> None:
    assert not inspect.signature(ignore).parameters


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("ask(lambda _: None)", True),
        ("ask(lambda *_outcome: None)", True),
        ("def ask(then=lambda _: None): then(1)", True),
        ("ask(lambda _outcome: go_on())", True),
        ("def f(self, _error): self.go_on()", True),
        ("def f(outcome: BrokerError | None):\n  ...", True),
        ("def f(results: list[AppendResult]):\n  'Text.'", True),
        ("def f(result: AppendResult):\n  'Text.'\n  ...", False),
        ("@abstractmethod\ndef f(result: AppendResult): 'Text.'", False),
        ("def f(on_done: Callable[[BrokerError], None]): ...", False),
        ("ask(lambda _: None)  # the next round tries it again", False),
        ("# the next round tries it again\ndef f(_error): go_on()", False),
        ("ask(lambda outcome: note(outcome))", False),
        ("def f(error: BrokerError): log(error)", False),
        ("def f(count: int): ...", False),
        ("ask(lambda _: True)", False),
        ("ask(lambda: None)", False),
    ],
)
def test_who_looks_away_is_found(line: str, is_found: bool) -> None:
    assert bool(unexplained(ast.parse(line), line)) is is_found
