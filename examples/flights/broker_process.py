"""A durable broker as a process of its own: `odradek start`, and its end whatever happens."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final

READY: Final = "odradek ready "
STATISTICS: Final = "odradek-stats.json"
_STOP_TIMEOUT_S: Final = 30


class BrokerFailed(Exception):
    """The broker did not start, or did not stop as it should; the text says more."""


class BrokerProcess:
    """A running broker; leaving the `with` block stops it in order.

    It runs in a session of its own, so that Ctrl-C reaches this process first, which then
    takes its steps down in their order.
    """

    def __init__(self, data_dir: Path, log: Path) -> None:
        self._data_dir = data_dir
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self.bootstrap_servers = ""
        self.start_ms = 0.0

    def __enter__(self) -> "BrokerProcess":
        started = time.monotonic()
        with self._log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "odradek", "start"),
                    *("--data-dir", str(self._data_dir), "--listener", "PLAINTEXT://127.0.0.1:0"),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        try:
            self.bootstrap_servers = self._await_ready(self._process)
        except BaseException:
            self._kill()
            raise
        self.start_ms = (time.monotonic() - started) * 1000
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            status = self.stop()
        finally:
            self._kill()
        if status != 0 and kind is None:
            raise BrokerFailed(f"the broker ended with status {status}; see {self._log}")

    def stop(self) -> int:
        """Asks for a controlled shutdown and waits for it; the exit status."""
        assert self._process is not None, "it was started"
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(_STOP_TIMEOUT_S)

    def statistics(self) -> dict[str, Any]:
        """What the broker counted, written down when it stopped; empty if it did not."""
        path = self._data_dir / STATISTICS
        if not path.exists():
            return {}
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return document

    def _await_ready(self, process: "subprocess.Popen[str]") -> str:
        assert process.stdout is not None, "it is a pipe"
        line = process.stdout.readline()
        if not line.startswith(READY):
            words = self._log.read_text(encoding="utf-8").strip().splitlines()[-3:]
            raise BrokerFailed("the broker did not start: " + " | ".join(words))
        fields = dict(word.split("=", 1) for word in line[len(READY) :].split())
        return fields["bootstrap"]

    def _kill(self) -> None:
        assert self._process is not None, "it was started"
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
