"""A broker process for tests that kill it."""

import subprocess
import sys
from pathlib import Path

from tests.deadlines import deadline_s

from odradek.testing.processes import BrokerProcess

STOP_TIMEOUT_S = deadline_s(60)


def fsck(data_dir: Path) -> str:
    """What `odradek fsck` has to say of a data directory: nothing, if it is sound."""
    command = [sys.executable, "-m", "odradek", "fsck", str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else done.stdout + done.stderr


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
