"""The package describes itself where it is published: README is its page there."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TARGET = re.compile(r"\]\(([^)]+)\)|^\[[^\]]+\]: (\S+)$", re.MULTILINE)


def test_readme_links_lead_somewhere_from_anywhere() -> None:
    """A link works in the checkout and is dead on the package index, or the other way round."""
    repository = PROJECT["urls"]["Repository"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = [one or other for one, other in TARGET.findall(text)]
    assert targets
    for target in targets:
        assert target.startswith("https://"), f"{target} is relative"
        path = re.sub(rf"^{re.escape(repository)}/(blob|tree)/main/", "", target)
        if path != target:
            assert (ROOT / path).exists(), f"{path} does not exist"


def test_urls_are_those_of_one_project() -> None:
    """The documentation's link leads to another project than the source's."""
    repository = PROJECT["urls"]["Repository"]
    assert {"Documentation", "Changelog", "Issues"} <= PROJECT["urls"].keys()
    assert all(url.startswith(repository) for url in PROJECT["urls"].values())


def older_python() -> str | None:
    """A Python that is too old; without one, nobody here meets the refusal."""
    pyenv = sorted(
        str(path) for path in (Path.home() / ".pyenv/versions").glob("3.10.*/bin/python")
    )
    for python in [*pyenv, "python3.10", "python3.9"]:
        if shutil.which(python) and subprocess.run([python, "-c", ""], check=False).returncode == 0:
            return python
    return None


@pytest.mark.skipif(older_python() is None, reason="no Python before 3.11 is installed")
def test_an_older_python_is_told_what_is_needed() -> None:
    """The installation ends in a syntax error, or in a build tool's own trouble."""
    python = older_python()
    assert python is not None
    done = subprocess.run(
        [python, "setup.py", "egg_info"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Odradek needs Python 3.11 or later; this is 3.")


def native_modules() -> list[str]:
    """The sources that are compiled, as setup.py lists them."""
    done = subprocess.run(
        [sys.executable, "setup.py", "--print-native"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_what_is_compiled_is_listed_without_a_build() -> None:
    """`./test` asks for the list at every start; it would translate for a minute first."""
    listed = native_modules()
    assert "src/odradek/timer/timing_wheel.py" in listed
    assert all((ROOT / path).is_file() for path in listed)


CONSUMERS = {"all", "any", "dict", "frozenset", "fromkeys", "list", "next", "set", "sum", "tuple"}


def lazy_expressions(source: str) -> list[str]:
    """The generator expressions that are not the argument of what takes all of them at once."""
    tree = ast.parse(source)
    taken = {
        id(call.args[0])
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and call.args
        and ast.unparse(call.func).split(".")[-1] in CONSUMERS
    }
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.GeneratorExp) and id(node) not in taken
    ]


def test_no_compiled_handler_counts_on_a_lazy_expression() -> None:
    """mypyc makes a list of it at once: an answer would be made in one piece, or fail, and only
    where it is compiled."""
    handlers = [path for path in native_modules() if path.startswith("src/odradek/handlers/")]
    assert handlers
    assert lazy_expressions("answer(topics=(each for each in topics))")
    lazy = {path: lazy_expressions((ROOT / path).read_text()) for path in handlers}
    assert not {path: found for path, found in lazy.items() if found}
