"""Breaks timers and purgatories on purpose, one line at a time; their tests have to notice."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
# The nearest first; what drives timers over real time is left out, since a mutant may hang there.
TESTS = [
    "tests/scenario/test_timing_wheel.py",
    "tests/unit/timer/test_timing_wheel.py",
    "tests/unit/timer/test_timer_task.py",
    "tests/unit/timer/test_timers.py",
    "tests/unit/purgatory/test_purgatory.py",
    "tests/property/test_timer_model.py",
    "tests/property/test_purgatory_model.py",
    "tests/unit/purgatory/test_meetings.py",
]
TIMEOUT_S = 600


class Mutation(NamedTuple):
    """One place in a source, and what stands there instead."""

    source: str
    before: str
    after: str


MUTATIONS = {
    "what comes down from a higher level runs at once": Mutation(
        "timer/system_timer.py", "if not self.wheel.add(entry):", "if True:"
    ),
    "what is due with the next tick runs with this one": Mutation(
        "timer/timing_wheel.py",
        "entry.cancelled or expiration_ms < self.current_time_ms + self.tick_ms",
        "entry.cancelled or expiration_ms < self.current_time_ms + 2 * self.tick_ms",
    ),
    "a level reaches one tick too far": Mutation(
        "timer/timing_wheel.py",
        "while expiration_ms >= wheel.current_time_ms + wheel.interval_ms",
        "while expiration_ms > wheel.current_time_ms + wheel.interval_ms",
    ),
    "a bucket is queued under its last expiration": Mutation(
        "timer/timing_wheel.py",
        "bucket.set_expiration(virtual_id * wheel.tick_ms)",
        "bucket.set_expiration(bucket.expiration_ms + wheel.interval_ms)",
    ),
    "the condition is not tried again after watching": Mutation(
        "purgatory/purgatory.py",
        "self._watch(operation, keys) and operation.safe_try_complete()",
        "self._watch(operation, keys) and False",
    ),
    "everybody who completes an operation wins": Mutation(
        "purgatory/delayed_operation.py",
        "        self._completed = True\n",
        "        self._completed = False\n",
    ),
    "a completion that comes during a check is forgotten": Mutation(
        "purgatory/delayed_operation.py", "self._check_again = True", "self._check_again = False"
    ),
    "a completed operation stays in the timer": Mutation(
        "purgatory/delayed_operation.py", "        self.cancel()\n", ""
    ),
    "a key outlives its operations": Mutation(
        "purgatory/purgatory.py", "            del self._watchers[key]\n", "            pass\n"
    ),
}


def run_tests(sources: Path) -> subprocess.CompletedProcess[str]:
    """The quick tests over other sources, uncompiled, up to the first failure."""
    environment = {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow"]
    command += ["-p", "no:cacheprovider", *TESTS]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the package that may be broken."""
    skipped = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "src" / "odradek", tmp_path / "odradek", ignore=skipped)
    return tmp_path


@pytest.mark.slow
def test_the_copy_passes_as_it_is(sources: Path) -> None:
    """If it does not, that mutants fail says nothing."""
    done = run_tests(sources)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutant_is_noticed(sources: Path, name: str) -> None:
    """The tests would let somebody break just this."""
    mutation = MUTATIONS[name]
    source = sources / "odradek" / mutation.source
    text = source.read_text(encoding="utf-8")
    assert text.count(mutation.before) == 1, "the mutation has to follow the source"
    source.write_text(text.replace(mutation.before, mutation.after), encoding="utf-8")
    done = run_tests(sources)
    assert done.returncode == 1, done.stdout
    assert "FAILED" in done.stdout
