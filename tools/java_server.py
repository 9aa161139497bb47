"""Servers on the JVM that the tools start: in temporary folders, stopped by their process ids."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from odradek.testing.processes import ProcessFailed, ServerProcess
from tools import peers
from tools.suite.slowness import of_this_run

START_TIMEOUT_S = 180 * of_this_run()


class JavaServer(ServerProcess):
    """A server on the JVM, which can serve when something listens on `port`."""

    # Tests kill it by its process id, too.
    orderly = (0, 128 + signal.SIGTERM, -signal.SIGKILL)

    def __init__(self, command: list[str], log: Path, port: int) -> None:
        super().__init__(command, log)
        self.port = port

    def await_ready(self, process: "subprocess.Popen[str]") -> None:
        """Returns when it listens; it does not say so."""
        self._await(process, "did not start", self._listens)

    def _listens(self) -> bool:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), timeout=5),
        ):
            return True
        return False

    def _await(
        self, process: "subprocess.Popen[str]", failure: str, is_so: Callable[[], bool]
    ) -> None:
        """Looks again and again until something is so."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and process.poll() is None:
            if is_so():
                return
            time.sleep(0.1)
        raise self.failure(f"{self.command[-2]} {failure}")


@contextlib.contextmanager
def running(server: JavaServer) -> Iterator[JavaServer]:
    """Runs a server for the length of a `with` block; `peers.PeerUnavailable` if it does not."""
    try:
        server.start()
    except ProcessFailed as error:
        raise peers.PeerUnavailable(str(error)) from None
    try:
        yield server
    finally:
        server.__exit__(None, None, None)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is gone behind the block."""
    home = Path(tempfile.mkdtemp(prefix="odradek-peer-"))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def java(jars: list[Path], *options: str) -> list[str]:
    """The words that a class's name goes behind."""
    # A JVM does not look at TMPDIR.
    home = f"-Djava.io.tmpdir={tempfile.gettempdir()}"
    return [peers.java(), home, *options, "-cp", os.pathsep.join(map(str, jars))]


def write_properties(path: Path, lines: dict[str, str]) -> str:
    """Writes a file of settings, and names it."""
    path.write_text("".join(f"{k}={v}\n" for k, v in lines.items()), encoding="utf-8")
    return str(path)
