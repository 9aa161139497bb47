"""Ends the processes that a test run left behind, even one that was killed, and takes away its
temporary files.

`./test` and every test process write their own id and start time into `ODRADEK_TEST_PROCESS`,
which all that they start inherits. A process whose test process is gone is a leftover. Temporary
files of a run lie in a folder of its own, which names it too. Two runs at the same time leave each
other alone.
"""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MARK: Final = "ODRADEK_TEST_PROCESS"
# Of the fields behind the name in /proc/PID/stat.
_ENDED: Final = ("Z", "X")  # are the first
_PARENT: Final = 1
_START_TIME: Final = 19
_LAST_BYTES: Final = 2_000
# A short name: the path of a Unix socket may have a hundred characters, and more folders follow.
_HOME: Final = "odr-"
_OWNER: Final = ".test-process"
_END_S: Final = 10
# Where Linux has files that no disk holds, and the bytes that a run has to find there: it uses a
# tenth of them.
MEMORY: Final = Path("/dev/shm")
ROOM: Final = 3 << 30


def mark_this_process() -> None:
    """Marks what this process starts from now on as its own."""
    os.environ[MARK] = _identity(os.getpid())


def end_leftovers() -> list[str]:
    """Kills every process whose test process is gone, and what that has started; returns their
    command lines. This process and those that started it are spared: a test may have started the
    shell of this run."""
    ended, spared = [], set(_lineage(os.getpid()))
    while left := [pid for pid, owner in _marked() if pid not in spared and not _lives(owner)]:
        ended += [_command(pid) for pid in left]
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        _await_end(left)
        spared.update(left)
    return ended


@contextlib.contextmanager
def temporary_home() -> Iterator[None]:
    """Makes this process, and all that it starts, write temporary files to a folder that goes with
    it; takes away those of runs that were killed."""
    usual = tempfile.gettempdir()
    with _folder_of_this_process(Path(usual)) as own:
        _write_to(str(own))
        try:
            yield
        finally:
            _write_to(usual)


@contextlib.contextmanager
def home_in_memory() -> Iterator[dict[str, str]]:
    """Yields the variables that have a process write temporary files to memory; none where there is
    little room. A disk takes a third of the time of tests that write thousands of small files."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ROOM:
        yield {}
        return
    with _folder_of_this_process(MEMORY) as own:
        yield _variables(str(own))


@contextlib.contextmanager
def _folder_of_this_process(parent: Path) -> Iterator[Path]:
    for owner in parent.glob(f"{_HOME}*/{_OWNER}"):
        if not _lives(owner.read_text()):
            shutil.rmtree(owner.parent, ignore_errors=True)
    own = Path(tempfile.mkdtemp(prefix=_HOME, dir=parent))
    # A test may become another user, who has to get through to the folders made for him.
    own.chmod(0o711)
    (own / _OWNER).write_text(_identity(os.getpid()))
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _write_to(home: str) -> None:
    tempfile.tempdir = home
    os.environ |= _variables(home)


def _variables(home: str) -> dict[str, str]:
    return {"TMPDIR": home, "SPARK_LOCAL_DIRS": home}


def _lives(owner: str) -> bool:
    return owner == _identity(int(owner.partition(":")[0]))


def _await_end(pids: list[int]) -> None:
    """Returns when killed processes are gone: what they have started is known by that."""
    deadline = time.monotonic() + _END_S
    while any(_fields(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)


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
    """The fields of /proc/PID/stat behind the name; none if there is no such process, or one that
    has ended and is not waited for."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    fields = text.rpartition(")")[2].split()
    return [] if fields[0] in _ENDED else fields


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return str(pid)
    return f"{pid} {' '.join(word.decode(errors='replace')[:200] for word in words)}"[:400]


def _end_of_log(pid: int) -> str:
    """The text that a process wrote last to standard error, where that is a file."""
    try:
        path = Path(f"/proc/{pid}/fd/2")
        if not path.is_file():
            return ""
        return path.read_bytes()[-_LAST_BYTES:].decode(errors="replace")
    except OSError:
        return ""
