"""Features of only some operating systems are used in one place, and by code for Linux alone."""

import ast
from pathlib import Path

from tests.laptops import CALLS
from tests.sources import reads_sources, tree_of

pytestmark = reads_sources

ROOT = Path(__file__).resolve().parents[2]
MODULES = {"fcntl", "resource", "msvcrt"}
# Where it is taken from, and a cluster of processes, which is refused elsewhere.
ALLOWED = ("odradek/system_calls.py", "odradek/cli/local_cluster/")


def used_in(tree: ast.Module) -> set[str]:
    """The calls and modules that a module names."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "os" and node.attr in CALLS:
                found.add(f"os.{node.attr}")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom) and node.module in {*MODULES, "os"}:
            found |= {node.module} & MODULES
            found |= {f"os.{alias.name}" for alias in node.names if alias.name in CALLS}
    return found


def test_what_other_systems_lack_is_used_in_one_place() -> None:
    """A call that macOS or Windows do not have would be found by the first user there."""
    found = {
        name: used
        for path in sorted((ROOT / "src").rglob("*.py"))
        if (used := used_in(tree_of(path)))
        and not (name := str(path.relative_to(ROOT / "src"))).startswith(ALLOWED)
    }
    assert not found


def test_it_would_be_found() -> None:
    """The search has forgotten what it looks for."""
    assert used_in(ast.parse("import os, fcntl\nos.pread(1, 2, 3)")) == {"fcntl", "os.pread"}
    assert used_in(ast.parse("from os import pwritev")) == {"os.pwritev"}
