"""`odradek start` as a process: the ready line, signals, what is refused."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.system.processes import STOP_TIMEOUT_S, BrokerProcess, start_command

from odradek.cli.start import is_compiled

pytestmark = pytest.mark.slow

READY_LINE = re.compile(
    r"odradek ready bootstrap=127\.0\.0\.1:\d+ broker=7 cluster=[\w-]{22} started_in_ms=\d+\n"
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_line_then_a_controlled_shutdown(number: signal.Signals, tmp_path: Path) -> None:
    """Goal: what scripts rely on: one line on standard output, exit status 0 on both signals."""
    process = subprocess.Popen(
        start_command(tmp_path / "data", 0, "--broker-id", "7", "--set", "no.such=1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=STOP_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
    assert READY_LINE.fullmatch(line), line
    assert out == ""
    assert process.returncode == 0
    assert err.count("Unknown settings are ignored: no.such") == 1
    assert err.count("Running uncompiled") == (0 if is_compiled() else 1)
    assert "Traceback" not in err
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_directory_and_a_port_in_use_are_refused(tmp_path: Path) -> None:
    """Goal: one clear line and exit status 1, and the first broker is not disturbed."""
    with BrokerProcess(tmp_path) as first:
        for directory, port in [(tmp_path / "data", 0), (tmp_path / "other", first.port)]:
            second = subprocess.run(
                start_command(directory, port),
                capture_output=True,
                text=True,
                timeout=STOP_TIMEOUT_S,
                check=False,
            )
            assert second.returncode == 1
            assert second.stdout == ""
            assert "in use" in second.stderr
            assert len(second.stderr.splitlines()) == 1
        assert first.stop() == 0


def test_assertions_stay_on() -> None:
    """Goal: `python -O` would take the broker's own checks away, so it is refused."""
    refused = subprocess.run(
        [sys.executable, "-O", "-m", "odradek", "start"],
        capture_output=True,
        text=True,
        timeout=STOP_TIMEOUT_S,
        check=False,
    )
    assert refused.returncode == 1
    assert "python -O" in refused.stderr
