"""A pytest plugin that makes this machine one that has less than Linux: `-p tests.laptops`.

`ODRADEK_WITHOUT` names what is taken away, before anything of ours is imported: functions of `os`
and `select`, modules, `signals` for event loops that know none, `sync` for directories that cannot
be opened and files that are synced only where they are open for writing, or `all`. `msvcrt` stands
in for that of Windows where `fcntl` is gone. What pytest itself needs has been imported by then.
Tests that use such a thing themselves, or what is for Linux alone, are left out.
"""

import asyncio
import fcntl
import os
import re
import select
import shutil
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

CALLS = (
    *("pwritev", "preadv", "pread", "pwrite", "fdatasync", "posix_fallocate", "posix_fadvise"),
    *("statvfs", "sched_getaffinity", "O_CLOEXEC", "uname", "memfd_create"),
)
MODULES = ("fcntl", "resource", "termios", "tty", "uvloop")
_open = os.open
_fsync = os.fsync
FOR_LINUX = re.compile(
    r"^(?:import|from) (?:benchmarks|fcntl|resource|termios|uvloop)\b|import peers|local_cluster"
    r"|^from tools\.suite import leftovers|data_directory\.test_import import",
    re.MULTILINE,
)
EVERYTHING = (*CALLS, *MODULES, "poll", "signals", "sync")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves out the files that cannot be imported here."""
    is_test = collection_path.suffix == ".py"
    left_out = is_test and FOR_LINUX.search(collection_path.read_text(encoding="utf-8"))
    return True if left_out else None


def take_away(names: str) -> None:
    """Takes these away, separated by commas."""
    wanted = EVERYTHING if names == "all" else names.split(",")
    assert set(wanted) <= set(EVERYTHING), wanted
    for name in wanted:
        if name in MODULES:
            sys.modules[name] = None  # type: ignore[assignment]
        elif name == "poll":
            del select.poll
        elif name == "signals":
            asyncio.BaseEventLoop.add_signal_handler = _no_signals  # type: ignore[method-assign]
            asyncio.SelectorEventLoop.add_signal_handler = _no_signals  # type: ignore[method-assign]
        elif name == "uname":
            continue  # below, where all else is gone
        elif name == "sync":
            os.open, os.fsync = _open_of_windows, _fsync_of_windows
            shutil._use_fd_functions = False  # type: ignore[attr-defined] # it opens directories
        else:
            delattr(os, name)
    if "uname" in wanted:
        import_module("odradek.system_calls").os = _NamelessOs("os")  # type: ignore[attr-defined]
    if "fcntl" in wanted:
        sys.modules["msvcrt"] = _windows_locks()


class _NamelessOs(ModuleType):
    """`os` without `uname`, for ours alone: what else runs on Linux asks for it at every import."""

    def __getattr__(self, name: str) -> object:
        if name == "uname":
            raise AttributeError(name)
        return getattr(os, name)


def _open_of_windows(path: str, flags: int, *arguments: int, **named: int | None) -> int:
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return _open(path, flags, *arguments, **named)  # type: ignore[arg-type]


def _fsync_of_windows(descriptor: int) -> None:
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(9, "Bad file descriptor")
    _fsync(descriptor)


def _no_signals(*_: object) -> None:
    raise NotImplementedError


def _windows_locks() -> ModuleType:
    """`msvcrt` as far as it is used: a lock that is taken is a PermissionError."""
    module = ModuleType("msvcrt")

    def locking(descriptor: int, mode: int, size_bytes: int) -> None:
        assert (mode, size_bytes) == (2, 1)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(13, "Permission denied") from None

    module.__dict__.update(LK_NBLCK=2, locking=locking)
    return module


if "ODRADEK_WITHOUT" in os.environ:
    take_away(os.environ["ODRADEK_WITHOUT"])
