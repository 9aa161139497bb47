"""Deadlines of tests that start real processes grow with the slowness of the machine.

`tests.deadlines.deadline_s` is the one helper. A literal number is right where it is short, because
something else is expected at its end, or where a test waits in a program of its own.
"""

import ast
from collections.abc import Iterator, Set
from pathlib import Path

import pytest
from tests.sources import reads_sources, text_of

pytestmark = reads_sources

ROOT = Path(__file__).resolve().parents[1]
# And whether `wait` waits there: in unit tests it moves a clock by hand.
FOLDERS = {
    **dict.fromkeys(("architecture", "scenario", "system", "wire"), True),
    **dict.fromkeys(("property", "simulation", "unit"), False),
}
KEYWORDS = {"timeout", "timeout_s"}
WAITS_OF_A_LIBRARY = {"flush", "init_transactions", "commit_transaction", "abort_transaction"}
WAITS = {"result", "join", "wait", "communicate", "timeout", "wait_for", *WAITS_OF_A_LIBRARY}
NAMES = tuple(f"{each}_S" for each in ("TIMEOUT", "TIME_LIMIT", "DEADLINE", "PATIENCE", "WAIT"))
SHORT_S = 5
# Programs that run by themselves, and clients that give up early and begin anew.
APART = {
    "wire/libraries/old/old_kafka_python.py",
    "system/cluster/chains.py",
    "system/cluster/transactions.py",
    "system/kills/carrier.py",
    "system/spark/kills/cut.py",
    "system/spark/kills/pyspark_killed.py",
}


def literal_deadlines(source: str, waits: Set[str] = frozenset(WAITS)) -> list[int]:
    """The lines on which something is waited for a literal number of seconds."""
    if not any(word in source for word in (*KEYWORDS, "monotonic()", *NAMES, *waits)):
        return []  # parsing takes longer
    nodes = ast.walk(ast.parse(source))
    return sorted({each.lineno for node in nodes for each in _waited(node, waits)})


def _waited(node: ast.AST, waits: Set[str]) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call):
        values = [each.value for each in node.keywords if each.arg in KEYWORDS]
        if isinstance(node.func, ast.Attribute) and node.func.attr in waits:
            values += node.args
    elif isinstance(node, ast.BinOp) and "monotonic()" in ast.unparse(node.left):
        values = [node.right]
    elif isinstance(node, ast.Assign):
        is_deadline = ast.unparse(node.targets[0]).endswith(NAMES)
        values = [node.value] if is_deadline else []
    else:
        values = []
    yield from filter(_is_long, values)


def _is_long(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Constant)
        and isinstance(value.value, int | float)
        and value.value >= SHORT_S
    )


@pytest.mark.parametrize("folder", FOLDERS)
def test_tests_of_real_processes_wait_as_long_as_the_machine_needs(folder: str) -> None:
    """A test fails on a busy machine for a deadline that an idle one keeps."""
    files = [
        file
        for file in sorted((ROOT / folder).rglob("*.py"))
        if str(file.relative_to(ROOT)) not in APART
    ]
    assert files
    waits = WAITS if FOLDERS[folder] else WAITS_OF_A_LIBRARY
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in files
        for line in literal_deadlines(text_of(file), waits)
    ]
    assert not found, f"deadline_s(..) is for these: {found}"


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("run(command, timeout=120)", True),
        ("producer.flush(60)", True),
        ("deadline = time.monotonic() + 60", True),
        ("JAVA_TIMEOUT_S = 240", True),
        ("producer.flush(deadline_s(60))", False),
        ("assert producer.flush(0.2) == 1", False),
        ("JAVA_TIMEOUT_S = deadline_s(240)", False),
        ("', '.join(names)", False),
    ],
)
def test_a_literal_deadline_is_found(line: str, is_found: bool) -> None:
    """The rule above finds nothing, whatever is written."""
    assert bool(literal_deadlines(line)) is is_found
