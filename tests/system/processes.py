"""Broker processes: one for tests that kill it, one that any command starts."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.deadlines import deadline_s

from odradek.testing.processes import BrokerProcess

STOP_TIMEOUT_S = deadline_s(60)


def fsck(data_dir: Path) -> str:
    """The findings of `odradek fsck` in a data directory: none, if it is sound."""
    command = [sys.executable, "-m", "odradek", "fsck", str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else done.stdout + done.stderr


@contextmanager
def serving(
    *command: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The line that a broker prints when it is ready; told to, it has to end in order."""
    broker = subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True)
    assert broker.stdout is not None
    try:
        yield broker.stdout.readline()
        broker.terminate()
        assert broker.wait(STOP_TIMEOUT_S) == 0
    finally:
        broker.kill()
        broker.wait()
        broker.stdout.close()


class CheckedBroker(BrokerProcess):
    """A broker in `directory`. What an orderly end leaves has to be sound."""

    def __init__(self, directory: Path, port: int = 0, *arguments: str) -> None:
        self._data_dir = directory / "data"
        super().__init__(self._data_dir, *arguments, port=port, log=directory / "stderr.log")

    def stop(self) -> int:
        """Ends in order; returns the exit status."""
        status = super().stop()
        findings = fsck(self._data_dir)
        assert not findings, findings
        return status
