"""One process of the cluster: started, watched, stopped, started again."""

import asyncio
import ctypes
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from odradek.server.errors import StartError

_STOP_LIMIT_S: Final = 120
_LAST_BYTES: Final = 1 << 14
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
_LIBC: Final = ctypes.CDLL(None)


class KeptProcess:
    """A server whose standard error is appended to `log`.

    It has its own session, since Ctrl-C is meant for the supervisor, and gets a signal to end when
    the supervisor is gone. `on_end` gets a sentence when it ends unexpectedly.
    """

    def __init__(self, name: str, log: Path, on_end: Callable[[str], None]) -> None:
        self.name: Final = name
        self.log: Final = log
        self._on_end: Final = on_end
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def launch(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        speaks: bool = False,
    ) -> None:
        """Runs the command, with `environment` added to ours. Its standard output goes to
        `first_line` if it `speaks`, else to the log.
        """
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if speaks else log,
                stderr=log,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    async def first_line(self) -> str:
        """Reads the first line that the process writes to standard output.

        Raises:
            StartError: it ended without one.
        """
        process = self._process
        assert process is not None, "it was launched"
        assert process.stdout is not None, "it speaks"
        line = await process.stdout.readline()
        if not line:
            await process.wait()
            raise self.did_not_start()
        return line.decode().rstrip()

    def watch(self) -> None:
        """Reports the end of the process from now on."""
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        process = self._process
        assert process is not None, "it was launched"
        status = await process.wait()
        self._on_end(f"{self.name} {_ending(status)}; its last line: {self.last_line()}")

    async def stop(self) -> bool:
        """Stops it in order, and waits; False if it had to be killed."""
        process = self._process
        if process is None or process.returncode is not None:
            return True
        if self._watching is not None:
            self._watching.cancel()
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_LIMIT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            return False
        return True

    def did_not_start(self) -> StartError:
        """The error for a process that ended before it could serve."""
        return StartError(f"{self.name} did not start: {self.last_line()} (log: {self.log})")

    def last_line(self) -> str:
        """The last line of its log, without the logger's name."""
        with self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "(none)")
        return last.removeprefix("odradek: ")


def _end_with_parent() -> None:
    _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGTERM)


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"
