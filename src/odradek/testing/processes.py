"""Servers as processes, for tests, benchmarks and examples: `odradek start`, and others beside it.

A server is started, awaited until it can serve, ended in order when the `with` block is left, and
gone in any case. It runs in its own session: Ctrl-C reaches the program that started it, which then
stops its processes in its own order.

    with BrokerProcess(tmp_path / "data", "--set", "num.partitions=3") as broker:
        broker.bootstrap_servers
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, ClassVar, Final, Self

from odradek.cli.free_port import free_port
from odradek.cli.local_cluster.health import await_brokers

READY: Final = "odradek ready "
_STOP_TIMEOUT_S: Final = 120
_LAST_LINES: Final = 20
_LAST_BYTES: Final = 1 << 16
_MEET_TIMEOUT_S: Final = 60


class ProcessFailed(Exception):
    """A server did not start, or did not end as it should; the text has its last words."""


class ServerProcess:
    """A server that `command` starts. Its output is appended to `log`; without one it is kept for
    error messages.

    Derive from it and say in `await_ready` when it can serve.
    """

    orderly: ClassVar[Sequence[int]] = (0,)
    """The exit statuses of a server that was asked to end."""

    def __init__(self, command: Sequence[str], log: Path | None = None) -> None:
        self.command = list(command)
        self._log_path: Final = log
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[str] | None = None
        self._was_killed = False
        self.start_ms = 0.0

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._started().pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there, serving or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Starts the server; returns when it can serve.

        Raises:
            ProcessFailed: it does not come to that; it has ended then.
        """
        began = time.monotonic()
        path = self._log_path
        # Closed by `kill`, which every way out of here comes to.
        self._log = tempfile.TemporaryFile() if path is None else path.open("a+b")  # noqa: SIM115
        self._was_killed = False
        try:
            self._process = subprocess.Popen(
                self.command,
                stdout=subprocess.PIPE if self.says_when_ready else self._log,
                stderr=self._log,
                text=True,
                start_new_session=True,
            )
            self.await_ready(self._process)
        except BaseException:
            self.kill()
            raise
        self.start_ms = (time.monotonic() - began) * 1000
        return self

    says_when_ready: ClassVar[bool] = False
    """Whether its standard output is for `await_ready`, and not for the log."""

    def await_ready(self, process: "subprocess.Popen[str]") -> None:
        """Returns when the server can serve.

        Raises:
            ProcessFailed: it cannot; `failure` makes one.
        """
        raise NotImplementedError

    def failure(self, what: str) -> ProcessFailed:
        """The error, with the last lines of the server's output."""
        return ProcessFailed(f"{what}:\n{self.last_words()}")

    def last_words(self) -> str:
        """The last lines of its log."""
        log = self._log
        if log is None or log.closed:
            return ""
        log.flush()
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - _LAST_BYTES))
        lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_LAST_LINES:])

    def stop(self) -> int:
        """Asks the server to end in order, and waits; its exit status."""
        process = self._started()
        process.terminate()
        self.resume()
        return process.wait(_STOP_TIMEOUT_S)

    def pause(self) -> None:
        """Stops the process where it stands; its connections stay open and silent."""
        self._started().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resumes a paused process."""
        if hasattr(signal, "SIGCONT"):  # Windows has neither, so nothing is paused there
            self._started().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """`kill -9`: the process flushes nothing and notifies nobody. A process that has ended is
        left alone."""
        process = self._process
        if process is not None:
            self._was_killed = True
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if not self._was_killed and self.is_running:
                status = self.stop()
                if status not in self.orderly and kind is None:
                    raise self.failure(f"the server ended with status {status}")
        finally:
            self.kill()

    def _started(self) -> "subprocess.Popen[str]":
        assert self._process is not None, "it was started"
        return self._process


class BrokerProcess(ServerProcess):
    """`odradek start` over `data_dir` on a port of this machine, a free one if none is given.

    `arguments` are further flags of the command; `within` are words that run a command elsewhere,
    in a namespace for one. Once it is started `bootstrap_servers` and `port` say where it is.
    """

    says_when_ready = True

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        *arguments: str,
        port: int = 0,
        log: Path | None = None,
        within: Sequence[str] = (),
    ) -> None:
        self.bootstrap_servers = ""
        self.port = port
        self._words: Final = (*within,), data_dir, arguments
        super().__init__(self._command(), log)

    def _command(self) -> list[str]:
        within, data_dir, arguments = self._words
        return [*within, *start_command(data_dir, *arguments, port=self.port)]

    def await_ready(self, process: "subprocess.Popen[str]") -> None:
        """It prints one line."""
        assert process.stdout is not None, "it is a pipe"
        line = process.stdout.readline()
        if not line.startswith(READY):
            process.wait(_STOP_TIMEOUT_S)
            raise self.failure("the broker did not start")
        fields = dict(word.split("=", 1) for word in line[len(READY) :].split())
        self.bootstrap_servers = fields["bootstrap"]
        self.port = int(self.bootstrap_servers.rpartition(":")[2])
        # Started again it is where it was: clients will look for it there.
        self.command = self._command()


class ClusterProcess:
    """Brokers 1 to `brokers` of a cluster, each a process with its own directory and log in `home`.

    They meet in the ZooKeeper at `zookeeper`; `arguments` are further flags of each. When `start`
    returns they know of each other. Each can be killed, paused and started again by itself, and has
    the address then that it had.

        with ClusterProcess(tmp_path, "127.0.0.1:2181") as cluster:
            cluster.bootstrap_servers
            cluster.brokers[2].kill()
            cluster.brokers[2].start()
    """

    def __init__(self, home: Path, zookeeper: str, *arguments: str, brokers: int = 3) -> None:
        # Not any free port: while a broker is away nobody else must be given its own.
        self.brokers: Final = {
            broker_id: BrokerProcess(
                home / f"broker-{broker_id}",
                *("--zookeeper", zookeeper, "--broker-id", str(broker_id), *arguments),
                port=free_port(),
                log=home / f"broker-{broker_id}.log",
            )
            for broker_id in range(1, brokers + 1)
        }
        self._running = contextlib.ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, also of those that do not run."""
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())

    def start(self) -> Self:
        """Starts all of them at the same time.

        Raises:
            ProcessFailed: one does not start; all have ended then.
            NotHealthy: they do not meet; the same.
        """
        with contextlib.ExitStack() as starting:
            for broker in self.brokers.values():
                starting.callback(broker.kill)
            with ThreadPoolExecutor(len(self.brokers)) as threads:
                started = [threads.submit(broker.start) for broker in self.brokers.values()]
            for each in started:
                each.result()
            self.await_meeting()
            starting.pop_all()
        return self

    def await_meeting(self) -> None:
        """Returns when each of the brokers knows all of them.

        Raises:
            NotHealthy: that did not come in a minute.
        """
        addresses = self.bootstrap_servers.split(",")
        asyncio.run(await_brokers(addresses, self.brokers, _MEET_TIMEOUT_S))

    def __enter__(self) -> Self:
        self.start()
        for broker in self.brokers.values():
            self._running.push(broker)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.__exit__(kind, error, trace)


def start_command(data_dir: str | os.PathLike[str], *arguments: str, port: int = 0) -> list[str]:
    """The command line of a broker on one port of this machine."""
    listener = f"PLAINTEXT://127.0.0.1:{port}"
    flags = ["--data-dir", os.fspath(data_dir), "--listener", listener]
    # -P: Python does not import files in the folder of the tests in place of the broker's modules.
    return [sys.executable, "-P", "-m", "odradek", "start", *flags, *arguments]
