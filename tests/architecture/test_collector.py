"""Classes that are kept from the cyclic collector when compiled (`acyclic`) hold values alone.

A class that held a callback, an owner or a list of things that may have either would keep what
calls itself through it for ever: uncompiled nothing shows of that. What is allowed is told by type.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sources import reads_sources, text_of, tree_of

pytestmark = reads_sources

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "odradek"
BENCHMARKS = ROOT / "benchmarks"
VALUES = {
    "BatchHeader",  # of numbers
    "None",
    "RecordHeaders",
    "UUID",
    "bool",
    "bytes",
    "float",
    "i32",
    "i64",
    "int",
    "list",
    "str",
    "tuple",
}
EXCEPTIONS = {
    # What a client's own deserializer makes. Only one that is made to hold its record is kept.
    "ConsumerRecord": {"key", "value"},
}


def is_acyclic(node: ast.ClassDef) -> bool:
    """Whether a class has the mark."""
    return any(
        keyword.arg == "acyclic"
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call)
        for keyword in decorator.keywords
    )


def marked(directory: Path) -> dict[str, ast.ClassDef]:
    """The classes below a directory that are marked `acyclic`."""
    return {
        node.name: node
        for path in sorted(directory.rglob("*.py"))
        if "acyclic" in text_of(path)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and is_acyclic(node)
    }


def fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    """The attributes that the constructor sets, each with its type where that is written down."""
    init = next(
        one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"
    )
    types = {argument.arg: unquoted(argument.annotation) for argument in init.args.args}
    for statement in ast.walk(init):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Attribute):
            yield statement.target.attr, unquoted(statement.annotation)
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute):
            value = statement.value
            yield statement.targets[0].attr, types.get(getattr(value, "id", ""), value)


def unquoted(annotation: ast.expr | None) -> ast.expr | None:
    """An annotation that is a string, as the type that it names."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return ast.parse(annotation.value, mode="eval").body
    return annotation


def names(written: ast.expr | None) -> set[str]:
    """The types in an annotation, or those of a literal."""
    if written is None:
        return {"nothing"}
    found = {one.id for one in ast.walk(written) if isinstance(one, ast.Name)}
    constants = [one.value for one in ast.walk(written) if isinstance(one, ast.Constant)]
    return found | {"None" if one is None else type(one).__name__ for one in constants}


@pytest.mark.parametrize("name", sorted(marked(SOURCES)))
def test_what_the_collector_does_not_see_holds_values_alone(name: str) -> None:
    """A broker that was stopped would stay in memory, 370 KiB and more, and so each after it."""
    node = marked(SOURCES)[name]
    kept = EXCEPTIONS.get(name, set())
    others = {
        field: sorted(names(written) - VALUES)
        for field, written in fields(node)
        if field not in kept and not names(written) <= VALUES
    }
    assert others == {}


@pytest.mark.parametrize("directory", [SOURCES, BENCHMARKS])
def test_what_the_collector_does_not_see_derives_from_nothing(directory: Path) -> None:
    """A base may hold anything, and of one that the collector sees mypyc refuses to compile it."""
    assert [name for name, node in marked(directory).items() if node.bases] == []


def test_the_search_finds_the_marked_classes() -> None:
    """It would hold for none."""
    assert {"TaskCounter", "OffsetAndMetadata", "Record", *EXCEPTIONS} <= set(marked(SOURCES))
    assert marked(BENCHMARKS)
