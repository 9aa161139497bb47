"""Odradek on machines that have less than Linux: each thing taken away, and all at once.

If these fail, a broker in a test does not start on macOS or Windows, or keeps no records there.
`./test` has the whole quick suite run without all of it.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deadlines import deadline_s
from tests.laptops import EVERYTHING

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = deadline_s(600)
# A broker with its files, locks and loop, and what a command needs of a terminal.
SUITE = (
    "tests/unit/storage/test_log_manager.py",
    "tests/unit/storage/test_indexes.py",
    "tests/unit/server/in_process/calls/test_broker_helpers.py",
    "tests/unit/server/in_process/test_snapshot.py",
    "tests/unit/server/in_process/time/test_time_calls.py",
    "tests/unit/server/test_network_settings.py",
    "tests/unit/tls/test_contexts.py",
    "tests/unit/cli/test_main.py",
)


def python(without: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "ODRADEK_WITHOUT": without},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("without", EVERYTHING)
def test_a_broker_works_without(without: str) -> None:
    done = python(without, "-m", "pytest", "-q", "-x", "-p", "tests.laptops", *SUITE)
    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(r"\d+ passed", done.stdout)


START = """
import sys, tests.laptops
from odradek.cli.main import main
sys.exit(main(["start", "--port", "0", "--data-dir", sys.argv[1]]))
"""


def test_the_command_starts_and_ends_in_order_without_all_of_it(tmp_path: Path) -> None:
    """The process would end without flushing, or not at all."""
    broker = subprocess.Popen(
        [sys.executable, "-c", START, str(tmp_path / "data")],
        cwd=ROOT,
        env={**os.environ, "ODRADEK_WITHOUT": "all"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("odradek ready bootstrap=")
        second = python("all", "-c", START, str(tmp_path / "data"))
        assert second.returncode == 1
        assert "in use by another broker" in second.stderr
        broker.send_signal(signal.SIGTERM)
        _, said = broker.communicate(timeout=TIMEOUT_S)
        assert broker.returncode == 0, said
        assert "Stopped" in said
    finally:
        broker.kill()
        broker.communicate()
