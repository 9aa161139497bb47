"""System calls that not every operating system has, each with its substitute.

Linux has all of it. macOS lacks `/proc`, `fdatasync`, `posix_fallocate` and files without a name;
Windows lacks these, reads and writes at a position, directories that can be synced, `uname`,
`fcntl` and `resource`. Callers take them from here and see no difference but in speed. On Linux the
names are the system's own functions, at no cost.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

Buffer = bytes | bytearray | memoryview

# No child process gets to see the file; on Windows no byte is taken for the end of a line.
OPEN_FLAGS: Final[int] = getattr(os, "O_CLOEXEC", getattr(os, "O_NOINHERIT", 0)) | getattr(
    os, "O_BINARY", 0
)
# The errors of file systems that cannot sync a directory, such as some network file systems.
_CANNOT_SYNC: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSUP})
_OPEN_DESCRIPTORS: Final = "/proc/self/fd"
_PROCESSES: Final = "/proc"
_OPEN_FILES: Final = 512
_UNLIMITED_FILES: Final = 1 << 16
_ZEROS: Final = bytes(1 << 16)
# A descriptor has one position, and threads share descriptors.
_position_lock: Final = threading.Lock()


def _module(name: str) -> Any:
    """A module of Python's that only some systems have."""
    try:
        return import_module(name)
    except ImportError:
        return None


fcntl: Final = _module("fcntl")
resource: Final = _module("resource")


def _pread(descriptor: int, size_bytes: int, position: int) -> bytes:
    with _position_lock:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.read(descriptor, size_bytes)


def _pwrite(descriptor: int, data: Buffer, position: int) -> int:
    with _position_lock:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.write(descriptor, data)


def _pwritev(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
    return pwrite(descriptor, buffers[0] if len(buffers) == 1 else b"".join(buffers), position)


def _posix_fallocate(descriptor: int, position: int, size_bytes: int) -> None:
    """Writes zeros where the file ends before: blocks that exist."""
    end = position + size_bytes
    at = os.fstat(descriptor).st_size
    while at < end:
        at += pwrite(descriptor, _ZEROS[: end - at], at)


pread: Final[Callable[[int, int, int], bytes]] = getattr(os, "pread", _pread)
pwrite: Final[Callable[[int, Buffer, int], int]] = getattr(os, "pwrite", _pwrite)
pwritev: Final[Callable[[int, Sequence[Buffer], int], int]] = getattr(os, "pwritev", _pwritev)
fdatasync: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)
posix_fallocate: Final[Callable[[int, int, int], None]] = getattr(
    os, "posix_fallocate", _posix_fallocate
)


def lock_file(descriptor: int) -> None:
    """Takes the lock on an open file, until it is closed.

    Raises:
        BlockingIOError: another process, or another descriptor of this one, holds it.
    """
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        _lock_byte(descriptor)


def not_for_children(give_up: Callable[[], Iterable[int]]) -> None:
    """Makes forked children let go of descriptors of their parent's. In the child, `give_up`
    returns them and forgets them: files that get their numbers later are the child's own.

    A child gets all of them: an address would stay taken, a connection open, a lock held, until the
    child ends, whatever the parent closes.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _let_go(give_up()))


def _let_go(descriptors: Iterable[int]) -> None:
    # The numbers stay taken: an object that still has one here must not close another file by it.
    null = os.open(os.devnull, os.O_RDWR | OPEN_FLAGS)
    for descriptor in descriptors:
        os.dup2(null, descriptor, inheritable=False)
    os.close(null)


def left_open_by_children(held: Callable[[], Iterable[object]]) -> None:
    """Keeps forked children from closing what their parent holds, also when they end: an orderly
    close may write to a file first, or remove files."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _never_free(held()))


def _never_free(things: Iterable[object]) -> None:
    # All other references to them go, at the latest with the interpreter.
    ctypes = _module("ctypes")
    for thing in things if ctypes is not None else ():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def lock_file_shared(descriptor: int) -> None:
    """As `lock_file`, beside others that share it, and beside no Kafka's, whose Java has other
    locks. Where the system has no shared locks, the lock is exclusive.

    Raises:
        OSError: EAGAIN or EACCES, somebody holds it.
    """
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    else:
        _lock_byte(descriptor)


def _lock_byte(descriptor: int) -> None:
    windows = import_module("msvcrt")
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        windows.locking(descriptor, windows.LK_NBLCK, 1)
    except OSError as error:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error


def sync_path(path: str) -> None:
    """Syncs a file, or the entries of a directory where the system can: Windows opens none."""
    if os.path.isdir(path):
        _sync_directory(path)
        return
    try:
        # Windows syncs what is open for writing.
        descriptor = os.open(path, os.O_RDWR | OPEN_FLAGS)
    except PermissionError:
        # All others what is open, also for reading alone: it may be another user's.
        descriptor = os.open(path, os.O_RDONLY | OPEN_FLAGS)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | OPEN_FLAGS)
    except PermissionError:
        if os.access(path, os.R_OK):
            return
        raise
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)


@contextmanager
def unshared_file(data: bytes) -> Iterator[str]:
    """The path of a private file with this content, removed afterwards: in memory, or on a disk in
    its own directory."""
    memfd_create: Any = getattr(os, "memfd_create", None)
    if memfd_create is not None and os.path.isdir(_OPEN_DESCRIPTORS):
        descriptor = memfd_create("odradek")
        try:
            os.write(descriptor, data)
            yield f"{_OPEN_DESCRIPTORS}/{descriptor}"
        finally:
            os.close(descriptor)
        return
    # Imported here, as `socket` below: Linux and most programs never need them.
    import tempfile

    with tempfile.TemporaryDirectory(prefix="odradek-") as directory:  # readable by us alone
        path = os.path.join(directory, "file")
        with open(path, "wb") as file:
            file.write(data)
        yield path


def host_name() -> str:
    """The name that this machine calls itself by."""
    uname: Any = getattr(os, "uname", None)
    if uname is not None:
        name: str = uname().nodename
        return name
    import socket

    return socket.gethostname()


def open_file_limit() -> int:
    """How many files this process may have open."""
    if resource is None:
        return _OPEN_FILES
    limit: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit if limit > 0 else _UNLIMITED_FILES


def volume_space(path: str) -> tuple[int, int]:
    """Total and usable bytes of the volume that holds `path`."""
    statvfs: Any = getattr(os, "statvfs", None)
    if statvfs is None:
        import shutil

        usage = shutil.disk_usage(path)
        return usage.total, usage.free
    volume = statvfs(path)
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize


def core_count() -> int:
    """How many processors this process may use."""
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def processes() -> Iterator[tuple[int, list[str]]]:
    """The number of each process of this machine, and the words that it was begun with.

    Raises:
        OSError: this system has neither /proc, as Linux has, nor `ps`.
    """
    return _from_proc() if os.path.isdir(f"{_PROCESSES}/self") else _from_ps()


def working_directory(process: int) -> str:
    """The directory that a process is in; an empty path, for here, where only Linux would know.

    Raises:
        OSError: it has ended, or is somebody else's.
    """
    own = f"{_PROCESSES}/self"
    return os.readlink(f"{_PROCESSES}/{process}/cwd") if os.path.isdir(own) else ""


def _from_proc() -> Iterator[tuple[int, list[str]]]:
    for name in filter(str.isdecimal, os.listdir(_PROCESSES)):
        try:
            with open(f"{_PROCESSES}/{name}/cmdline", "rb") as file:
                words = os.fsdecode(file.read()).split("\0")
        except OSError:
            continue  # it has ended meanwhile
        yield int(name), words


def _from_ps() -> Iterator[tuple[int, list[str]]]:
    import subprocess

    # Twice -w: else lines end where an exported COLUMNS says.
    command = ["ps", "-A", "-ww", "-o", "pid=", "-o", "args="]
    listed = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    for line in os.fsdecode(listed.stdout).splitlines():
        number, *words = line.split()
        yield int(number), words
