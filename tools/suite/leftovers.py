"""Ends the processes that a test run left behind, even one that was killed.

Every test process writes its own id and start time into `ODRADEK_TEST_PROCESS`, which all that it
starts inherits. A process whose test process is gone is a leftover. Two runs at the same time leave
each other alone.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MARK: Final = "ODRADEK_TEST_PROCESS"
_PARENT: Final = 1  # of the fields behind the name in /proc/PID/stat
_START_TIME: Final = 19
_LAST_BYTES: Final = 2_000


def mark_this_process() -> None:
    """Marks what this process starts from now on as its own."""
    os.environ[MARK] = _identity(os.getpid())


def end_leftovers() -> list[str]:
    """Kills every process whose test process is gone; returns their command lines. This process and
    those that started it are spared: a test may have started the shell of this run."""
    ended, spared = [], set(_lineage(os.getpid()))
    for pid, owner in _marked():
        if pid not in spared and owner != _identity(int(owner.partition(":")[0])):
            ended.append(_command(pid))
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    return ended


def last_words() -> Iterator[tuple[str, str]]:
    """The command line of each process that this one started, and the end of its log."""
    own = os.environ.get(MARK)
    for pid, owner in _marked():
        if owner == own and pid != os.getpid():
            yield _command(pid), _end_of_log(pid)


def _marked() -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for entry in (folder / "environ").read_bytes().split(b"\0"):
                name, _, value = entry.partition(b"=")
                if name.decode(errors="replace") == MARK:
                    yield int(folder.name), value.decode()


def _identity(pid: int) -> str:
    """A process id and its start time: ids are used again."""
    fields = _fields(pid)
    return f"{pid}:{fields[_START_TIME]}" if fields else ""


def _lineage(pid: int) -> Iterator[int]:
    """A process, its parent, and so on."""
    while fields := _fields(pid):
        yield pid
        pid = int(fields[_PARENT])


def _fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name; none if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return str(pid)
    return f"{pid} {' '.join(word.decode(errors='replace')[:200] for word in words)}"[:400]


def _end_of_log(pid: int) -> str:
    """What a process wrote last to standard error, where that is a file."""
    try:
        path = Path(f"/proc/{pid}/fd/2")
        if not path.is_file():
            return ""
        return path.read_bytes()[-_LAST_BYTES:].decode(errors="replace")
    except OSError:
        return ""
