"""The classes that tests put in the place of ours still fit them.

A class of a test that overrides a method is passed over once ours has no such method any more: it
breaks nothing, and simulates nothing. Whatever it calls above itself has to be there.
"""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sources import text_of, tree_of

ROOT = Path(__file__).resolve().parents[2]
# Started as processes of their own, or need Spark.
APART = ("tests/system", "tests/unit/pyspark_odradek")


def calls_above(body: ast.ClassDef) -> Iterator[str]:
    """The methods that a class calls as `super().name`, in its methods and what these define."""
    for node in ast.walk(body):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
            and node.value.func.id == "super"
        ):
            yield node.attr


def classes() -> list[tuple[str, str, str]]:
    """Module, class and method of every call above in the tests."""
    found = set()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        place = path.relative_to(ROOT)
        if str(place).startswith(APART) or "testdata" in place.parts:
            continue
        if "super()." not in text_of(path):
            continue  # parsing takes long, and every process that collects tests does this
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef):
                module = ".".join(place.with_suffix("").parts)
                found |= {(module, node.name, method) for method in calls_above(node)}
    return sorted(found)


@pytest.mark.parametrize(("module", "name", "method"), classes())
def test_what_a_fake_calls_is_there(module: str, name: str, method: str) -> None:
    """Brokers of the simulation did not stall for two days, and nothing failed."""
    made = getattr(importlib.import_module(module), name)
    assert any(hasattr(base, method) for base in made.__mro__[1:])
