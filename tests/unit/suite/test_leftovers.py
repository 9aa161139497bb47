"""Processes that a killed test run left behind. If these fail, they hold ports and processors of
the next run, or the next run ends who started it."""

import os
import shutil
import subprocess
import sys
import tempfile
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


RUNNER = f"""
import os, subprocess, sys
from tools.suite import __main__ as suite, leftovers
from tools.suite.steps import Commands
leftovers.MARK = "{MARK}"
worker = '''
import subprocess, sys, tempfile
from pathlib import Path
from tools.suite import leftovers
leftovers.MARK = "{MARK}"
leftovers.mark_this_process()
Path(tempfile.mkdtemp(), "file").touch()
with subprocess.Popen(["sleep", "1000"]) as broker:
    print(broker.pid, tempfile.gettempdir(), flush=True)
'''
suite._steps = lambda *_: [Commands("it", [[sys.executable, "-c", worker]])]
suite.main(["--quick"])
"""


def test_a_runner_that_is_killed_leaves_neither_processes_nor_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The tests of a run that was killed go on beside those of the next one, and fill the disk."""
    environment = os.environ | {"ODRADEK_SLOWNESS": "1", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", RUNNER]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as runner:
        assert runner.stdout is not None
        broker, home = runner.stdout.readline().split()
        assert Path(home).parent == tmp_path
        runner.kill()
        runner.wait()
        monkeypatch.setattr(leftovers, "MARK", MARK)
        ended = leftovers.end_leftovers()
        assert f"{broker} sleep 1000" in ended
        assert len(ended) == 2, "the test process that started it as well"
        assert runner.stdout.read() == ""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("TMPDIR", "SPARK_LOCAL_DIRS"):
        monkeypatch.setenv(name, str(tmp_path))
    with leftovers.temporary_home():
        [own] = tmp_path.iterdir()
        assert own != Path(home)
        Path(tempfile.mkdtemp(), "file").touch()
    assert not list(tmp_path.iterdir())


def test_what_a_live_run_started_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "MARK", MARK)
    monkeypatch.setenv(MARK, "")
    leftovers.mark_this_process()
    with subprocess.Popen(["sleep", "1000"]) as own:
        leftovers.end_leftovers()
        assert own.poll() is None
        own.terminate()


def test_files_in_memory_go_with_their_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The leftovers of a killed run fill the memory."""
    monkeypatch.setattr(leftovers, "MEMORY", tmp_path)
    left = tmp_path / "odr-left"
    left.mkdir()
    (left / ".test-process").write_text("1:-1")
    with leftovers.home_in_memory() as variables:
        [own] = tmp_path.iterdir()
        assert set(variables.values()) == {str(own)}
        assert own != left
    assert not list(tmp_path.iterdir())


def test_a_machine_without_room_in_memory_writes_to_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Containers have 64 MB there: all tests fail."""
    monkeypatch.setattr(leftovers, "MEMORY", tmp_path)
    monkeypatch.setattr(leftovers, "ROOM", shutil.disk_usage(tmp_path).total + 1)
    with leftovers.home_in_memory() as variables:
        assert variables == {}
    monkeypatch.setattr(leftovers, "MEMORY", tmp_path / "missing")
    with leftovers.home_in_memory() as variables:
        assert variables == {}
