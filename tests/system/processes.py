"""A broker process for tests that kill it."""

import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

READY = "odradek ready "
STOP_TIMEOUT_S = 60


def start_command(data_dir: Path, port: int = 0, *arguments: str) -> list[str]:
    """The command line of a broker on one local port."""
    listener = f"PLAINTEXT://127.0.0.1:{port}"
    flags = ["--data-dir", str(data_dir), "--listener", listener]
    return [sys.executable, "-m", "odradek", "start", *flags, *arguments]


def fsck(data_dir: Path) -> str:
    """What `odradek fsck` has to say of a data directory: nothing, if it is sound."""
    command = [sys.executable, "-m", "odradek", "fsck", str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else done.stdout + done.stderr


class BrokerProcess:
    """`odradek start` on a data directory. Always gone when the `with` block is left."""

    def __init__(self, directory: Path, port: int = 0, *arguments: str) -> None:
        self._data_dir = directory / "data"
        self._log = (directory / "stderr.log").open("ab")
        self._process = subprocess.Popen(
            start_command(self._data_dir, port, *arguments),
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        if not ready.startswith(READY):
            self._end()
            raise AssertionError((directory / "stderr.log").read_text())
        fields = dict(part.split("=", 1) for part in ready[len(READY) :].split())
        self.bootstrap_servers = fields["bootstrap"]
        self.port = int(self.bootstrap_servers.rpartition(":")[2])

    def kill(self) -> None:
        """`kill -9`: nothing is flushed, nobody is told."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit status. What an orderly end leaves has to be sound."""
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(STOP_TIMEOUT_S)
        findings = fsck(self._data_dir)
        assert not findings, findings
        return status

    def __enter__(self) -> "BrokerProcess":
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()
