"""Processes that a killed test run left behind. If these fail, they hold ports and processors of
the next run, or the next run ends who started it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools.suite import leftovers

ROOT = Path(__file__).resolve().parents[3]
# One for each worker: else the tests of this file end the processes of each other.
MARK = f"ODRADEK_PROCESS_OF_{os.getpid()}"
OF_NOBODY = "1:0"
"""A process that began at a time at which none did."""
SHELL = f"""
sleep 1000 &
"$0" -c '
from tools.suite import leftovers
leftovers.MARK = "{MARK}"
print("\\n".join(leftovers.end_leftovers()))
'
echo "the shell lives"
"""


def test_what_a_dead_run_left_is_ended_and_who_asks_is_spared() -> None:
    """The shell and the program in it bear the mark of a dead run, as the leftover does."""
    environment = os.environ | {MARK: OF_NOBODY}
    run = subprocess.run(
        ["bash", "-c", SHELL, sys.executable],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    *ended, last = run.stdout.splitlines()
    assert last == "the shell lives"
    assert [line for line in ended if line.endswith("sleep 1000")]
    assert not [line for line in ended if "leftovers" in line]


def test_what_a_live_run_started_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "MARK", MARK)
    monkeypatch.setenv(MARK, "")
    leftovers.mark_this_process()
    with subprocess.Popen(["sleep", "1000"]) as own:
        leftovers.end_leftovers()
        assert own.poll() is None
        own.terminate()
