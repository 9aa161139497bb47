"""Whatever follows the metadata at a later time ends its broker when it raises.

A timer says what one of its tasks has raised in the log, and goes on: the broker would be taken for
a live one, and hear nothing any more. So the tasks of the metadata `attempt` what they do.
"""

import ast
from pathlib import Path

import pytest
from tests.sources import reads_sources, tree_of

import odradek

pytestmark = reads_sources

SOURCES = Path(odradek.__file__).parent
FOLLOWERS = [
    *sorted((SOURCES / "metadata" / "zookeeper").rglob("*.py")),
    *sorted((SOURCES / "controller" / "elected").rglob("*.py")),
    SOURCES / "controller" / "zookeeper_store.py",
    SOURCES / "server" / "registration.py",
]
TASKS = {"TimerTask": 1, "PeriodicTask": 2}


def names_in(node: ast.AST) -> set[str]:
    return {
        each.attr if isinstance(each, ast.Attribute) else each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute | ast.Name)
    }


def actions(tree: ast.AST) -> list[ast.expr]:
    """The callbacks of a module's timer tasks."""
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    places = [(call, TASKS.get(getattr(call.func, "id", ""), 99)) for call in calls]
    return [call.args[place] for call, place in places if len(call.args) > place]


def attempting(tree: ast.AST) -> set[str]:
    """The functions and variables of a module that attempt something."""
    found = {"attempt"}
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef) and "attempt" in names_in(each):
            found.add(each.name)
        elif isinstance(each, ast.Assign) and "attempt" in names_in(each.value):
            found |= {target.id for target in each.targets if isinstance(target, ast.Name)}
    return found


@pytest.mark.parametrize("path", FOLLOWERS, ids=lambda path: path.stem)
def test_what_is_done_later_is_attempted(path: Path) -> None:
    tree = tree_of(path)
    bold = [ast.unparse(each) for each in actions(tree) if not names_in(each) & attempting(tree)]
    assert bold == [], f"{path.name} has the timer do what may raise: {bold}"


def test_there_are_such_tasks() -> None:
    """Else nothing is looked at."""
    assert sum(len(actions(tree_of(path))) for path in FOLLOWERS) >= 9
