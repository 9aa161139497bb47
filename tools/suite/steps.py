"""The steps of a run: each a command, what came of it, and the table at the end."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tools.suite import leftovers
from tools.suite.limits import LAST_RESORT_S, grown
from tools.suite.parts import OTHERS, PART_MINUTES, PARTS, UNSTEADY, part_of

ROOT: Final = Path(__file__).resolve().parents[2]
TIMES: Final = ROOT / ".cache" / "suite"
# Tests of real processes share two cores with every other test: so many get a second try, alone.
MOST_SECOND_TRIES: Final = 3
_SOME_TESTS_FAILED: Final = 1
PYTEST: Final = (sys.executable, "-m", "pytest")


@dataclass
class Result:
    """The outcome of a step; only one that runs tests has counts and names of tests."""

    name: str
    seconds: float
    is_passed: bool
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: int = 0
    left_out: list[str] = field(default_factory=list)
    second_try: list[str] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Commands:
    """A step of commands that run no tests, such as the linter, side by side.

    Where one does not `decide`, its failure is shown and passes.
    """

    name: str
    commands: Sequence[Sequence[str]]
    decides: bool = True

    def run(self) -> Result:
        """Runs all of them, also beside one that fails."""
        began = time.monotonic()
        running = [subprocess.Popen(command, cwd=ROOT) for command in self.commands]
        statuses = [each.wait() for each in running]
        is_passed = not (self.decides and any(statuses))
        return Result(self.name, time.monotonic() - began, is_passed)


@dataclass(frozen=True)
class PytestRun:
    """A step of pytest, on `processes` processes. `selects` are arguments that choose tests,
    `plugins` those that are loaded beside the usual ones, also for a second try.

    With `is_complete` no test may be left out for time; `in_memory` has the first try write its
    temporary files to memory, where there is room.
    """

    name: str
    selects: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    processes: int = 2
    plugins: Sequence[str] = ()
    is_complete: bool = False
    in_memory: bool = False

    def run(self) -> Result:
        """Runs the tests; up to three that failed run once more, alone."""
        began = time.monotonic()
        status, summary = self._first_try()
        result = _result(self.name, summary)
        only_unsteady = bool(result.unsteady) and not result.failed and status == _SOME_TESTS_FAILED
        result.is_passed = bool(summary) and (status == 0 or only_unsteady)
        errors = [test for test in summary.get("errors", []) if test in result.failed]
        if status == _SOME_TESTS_FAILED and not errors and self._may_try_again(result):
            self._try_again(result)
        if self.is_complete and result.left_out:
            result.is_passed = False
        result.seconds = time.monotonic() - began
        return result

    def _first_try(self) -> tuple[int, dict]:
        home = leftovers.home_in_memory() if self.in_memory else contextlib.nullcontext({})
        with home as variables:
            return self._pytest([*self.selects, *self._side_by_side()], variables)

    def _side_by_side(self) -> list[str]:
        return ["-n", str(self.processes), "--dist", "loadgroup"] if self.processes > 1 else []

    def _may_try_again(self, result: Result) -> bool:
        return 0 < len(result.failed) <= MOST_SECOND_TRIES

    def _try_again(self, result: Result) -> None:
        say("failed beside other tests, once more and alone: " + ", ".join(result.failed))
        status, summary = self._pytest(result.failed)
        again = summary.get("failed", []) + summary.get("errors", [])
        result.second_try = [test for test in result.failed if test not in again]
        if summary.get("passed") != len(result.second_try):
            result.second_try = []  # one was skipped, or the process has died
        result.failed = [test for test in result.failed if test not in result.second_try]
        result.passed += len(result.second_try)
        result.is_passed = status == 0 and not result.failed

    def _pytest(
        self, arguments: Sequence[str], variables: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[int, dict]:
        """The exit status, and the summary that the plugin wrote; empty where it wrote none."""
        with tempfile.TemporaryDirectory(prefix="odradek-suite-") as home:
            summary = Path(home) / "summary.json"
            plugins = [word for each in self.plugins for word in ("-p", each)]
            status = subprocess.call(
                [*PYTEST, "-q", "--durations=15", *last_resort(), *plugins, *arguments],
                cwd=ROOT,
                env=os.environ | self.environment | variables | {"ODRADEK_SUMMARY": str(summary)},
            )
            return status, json.loads(summary.read_text()) if summary.exists() else {}


def last_resort() -> list[str]:
    """The arguments by which pytest ends a process that sees no signal, behind all limits of
    tests."""
    return ["-o", f"faulthandler_timeout={grown(LAST_RESORT_S):.0f}"]


Step = Commands | PytestRun


def say(text: str) -> None:
    """Tells who watches how far it is."""
    print(f"\033[1m==>\033[0m {text}", file=sys.stderr, flush=True)


def run_all(steps: Sequence[Step], done: Sequence[Result]) -> bool:
    """Runs the steps one after another and prints the table; whether all of them passed.

    A step that failed does not keep the others from running. `done` are rows of the table for
    what has been done before.
    """
    results = list(done)
    for number, step in enumerate(steps, 1):
        say(f"{number}/{len(steps)} {step.name}")
        results.append(step.run())
        _remember(results[-1])
        if not results[-1].is_passed:
            say(f"FAILED: {step.name}")
    print(closing_lines(results), flush=True)
    return all(result.is_passed for result in results)


def _remember(result: Result) -> None:
    """Keeps what came of a step, for `--list`."""
    TIMES.mkdir(parents=True, exist_ok=True)
    (TIMES / f"{result.name}.json").write_text(json.dumps(result.__dict__), encoding="utf-8")


def closing_lines(results: Sequence[Result]) -> str:
    """The table, what is worth a name, and the counts of tests in the last line."""
    lines = ["", f"{'step':<44}{'tests':>7}{'seconds':>9}"]
    lines += [_row(result) for result in results]
    for result in results:
        lines += [f"FAILED {test}" for test in result.failed]
        lines += [f"passed on the second try: {test}" for test in result.second_try]
        lines += [f"left out for time: {test}" for test in result.left_out]
        lines += [f"failed, unsteady: {test} ({UNSTEADY[test]})" for test in result.unsteady]
        if _is_too_long(result):
            lines.append(f"longer than the {PART_MINUTES} minutes of a part: {result.name}")
    left_out = [test for result in results for test in result.left_out]
    if left_out:
        parts = sorted({part_of(test.partition("::")[0]) for test in left_out})
        commands = ", ".join(f"./test --part {part}" for part in parts)
        lines.append(f"left out for time: {len(left_out)}, run {commands}")
    return "\n".join([*lines, _counts(results)])


def _is_too_long(result: Result) -> bool:
    is_part = result.name in PARTS or result.name in OTHERS
    return is_part and result.seconds > 60 * PART_MINUTES


def _counts(results: Sequence[Result]) -> str:
    passed = sum(result.passed for result in results)
    # A step without tests, and one whose process died, fail as one.
    failed = sum(len(each.failed) or int(not each.is_passed) for each in results)
    skipped = sum(result.skipped + len(result.left_out) for result in results)
    return f"{passed} passed, {failed} failed, {skipped} skipped"


def _row(result: Result) -> str:
    tests = str(result.passed + len(result.failed)) if result.passed or result.failed else ""
    verdict = "" if result.is_passed else "  FAILED"
    return f"{result.name:<44}{tests:>7}{result.seconds:>9.0f}{verdict}"


def _result(name: str, summary: dict) -> Result:
    failed = summary.get("failed", []) + summary.get("errors", [])
    return Result(
        name,
        0.0,
        is_passed=False,
        passed=summary.get("passed", 0),
        failed=[test for test in failed if test not in UNSTEADY],
        unsteady=[test for test in failed if test in UNSTEADY],
        skipped=summary.get("skipped", 0),
        left_out=summary.get("left_out", []),
    )
