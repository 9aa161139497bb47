"""Breaks a copy of the sources on purpose, one line at a time; tests over it have to notice."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.deadlines import deadline_s

ROOT = Path(__file__).parents[1]
TIMEOUT_S = deadline_s(600)
PACKAGES = ("odradek", "pyspark_odradek")
UNBROKEN = "the copy as it is"


class Mutation(NamedTuple):
    """A place in a source below a package, and what stands there instead. The tests are those
    nearest to it, if they are not all of the suite.
    """

    source: str
    before: str
    after: str
    package: str = "odradek"
    tests: Sequence[str] = ()

    def path(self, sources: Path) -> Path:
        """The source."""
        return sources / self.package / self.source

    def broken(self, sources: Path) -> str:
        """The text of the source with what stands there instead."""
        text = self.path(sources).read_text(encoding="utf-8")
        assert text.count(self.before) == 1, f"{self.before!r} has to follow {self.source}"
        return text.replace(self.before, self.after)


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


class Mutants:
    """Mutations which a suite of tests has to notice, and the copy as it is, which has to pass: if
    it does not, that mutants fail says nothing."""

    def __init__(
        self, mutations: Mapping[str, Mutation], tests: Sequence[str] = (), **settings: str
    ) -> None:
        """The suite is the tests of all mutations, unless it is given. The settings are variables
        of its environment."""
        nearest = dict.fromkeys(test for each in mutations.values() for test in each.tests)
        self.names = [UNBROKEN, *mutations]
        self._mutations = mutations
        self._tests = tests or list(nearest)
        self._settings = settings

    def assert_follow(self) -> None:
        """Fails when a mutation has nothing to break in the sources any more."""
        for each in self._mutations.values():
            each.broken(ROOT / "src")

    def hold(self, name: str, directory: Path) -> None:
        """Fails when the tests do not notice the mutation, or fail without one."""
        sources = copy_sources(directory)
        if name == UNBROKEN:
            self._assert_passed(sources)
        else:
            self._assert_noticed(sources, self._mutations[name])

    def _assert_passed(self, sources: Path) -> None:
        done = run_tests(sources, self._tests, **self._settings)
        assert done.returncode == 0, done.stdout

    def _assert_noticed(self, sources: Path, mutation: Mutation) -> None:
        mutation.path(sources).write_text(mutation.broken(sources), encoding="utf-8")
        done = run_tests(sources, mutation.tests or self._tests, **self._settings)
        assert done.returncode == 1, done.stdout
        assert "FAILED" in done.stdout
