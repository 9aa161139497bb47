"""Breaks a copy of the sources on purpose, one line at a time; tests over it have to notice."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.deadlines import deadline_s

ROOT = Path(__file__).parents[1]
TIMEOUT_S = deadline_s(600)
PACKAGES = ("odradek", "pyspark_odradek")


class Mutation(NamedTuple):
    """One place in a source below a package, and what stands there instead."""

    source: str
    before: str
    after: str
    package: str = "odradek"


def copy_sources(directory: Path) -> Path:
    """A copy of the packages, without their compiled modules, that may be broken."""
    skipped = shutil.ignore_patterns("*.so", "__pycache__")
    for package in PACKAGES:
        shutil.copytree(ROOT / "src" / package, directory / package, ignore=skipped)
    return directory


def run_tests(
    sources: Path, tests: Sequence[str], **settings: str
) -> subprocess.CompletedProcess[str]:
    """The quick ones of some tests over other sources, up to the first failure."""
    environment = {**os.environ, **settings, "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONHASHSEED"] = "0"  # what a set is gone through in decides what a seed tries
    environment["PYTHONPATH"] = str(sources)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow"]
    command += ["-p", "no:cacheprovider", *tests]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


def assert_noticed(
    sources: Path, mutation: Mutation, tests: Sequence[str], **settings: str
) -> None:
    """Makes the change and holds that one of the tests fails."""
    source = sources / mutation.package / mutation.source
    text = source.read_text(encoding="utf-8")
    assert text.count(mutation.before) == 1, "the mutation has to follow the source"
    source.write_text(text.replace(mutation.before, mutation.after), encoding="utf-8")
    done = run_tests(sources, tests, **settings)
    assert done.returncode == 1, done.stdout
    assert "FAILED" in done.stdout
