"""The file system as a port: every access to a disk by the storage floor goes through here.

`FileSystem` is the port, `OsFileSystem` the machine's own file system. Tests put another one in its
place, which fails on purpose: after every operation, with a full disk, with a failing fsync. Errors
are plain `OSError`; `Log` and `LogManager` decide what they mean.

Descriptors are bounded. A `File` or a mapped index says nothing about an open descriptor: it opens
when used, and the pool closes the least recently used ones once there are more than
`max_open_files`. All reads and writes name their position, so nothing is lost by closing. A pool
has one owner, the event loop; work for another thread takes a separate handle (`File.duplicate`),
which the pool does not know.
"""

import errno
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from mypy_extensions import mypyc_attr

from odradek.storage import names
from odradek.storage.errors import half_done
from odradek.system_calls import (
    OPEN_FLAGS,
    fdatasync,
    lock_file,
    not_for_children,
    open_file_limit,
    posix_fallocate,
    pread,
    pwrite,
    pwritev,
    sync_path,
    volume_space,
)

Buffer = bytes | bytearray | memoryview

# The kernel takes at most this many buffers in one vectored write (IOV_MAX on Linux).
VECTOR_MAX: Final = 1024
# Work on another thread holds a segment's few files and no more.
_THREAD_FILES: Final = 16
# The errors of file systems without hard links.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


@mypyc_attr(allow_interpreted_subclasses=True)
class Handle:
    """An object that holds a descriptor and can release it at any time."""

    def __init__(self) -> None:
        self.recently_used = True

    def release(self) -> None:
        """Gives the descriptor back; the next use takes a new one."""
        raise NotImplementedError


class HandlePool:
    """The handles that hold a descriptor at present, the longest held first (second chance).

    While several threads use files of the pool `may_evict` has to be false: closing a file that
    another thread is about to read is the one unsafe act.
    """

    def __init__(self, max_open_files: int) -> None:
        self.max_open_files = max_open_files
        self.may_evict = True
        # Asked before anything is written, with the path: raises the OSError that a test wants.
        self.trouble: Callable[[str], None] | None = None
        self._held: dict[Handle, None] = {}

    def __len__(self) -> int:
        return len(self._held)

    def check_write(self, path: str) -> None:
        """Raises the error that a test has set for writes."""
        if self.trouble is not None:
            self.trouble(path)

    def add(self, handle: Handle) -> None:
        """Adds a handle that holds a descriptor; makes room when there are too many."""
        self._held[handle] = None
        while self.may_evict and len(self._held) > self.max_open_files:
            self._release_one(handle)

    def discard(self, handle: Handle) -> None:
        """Removes a handle that holds no descriptor any more."""
        self._held.pop(handle, None)

    def release_all(self) -> None:
        """Releases every descriptor, as the end of a process does."""
        for handle in list(self._held):
            handle.release()

    def _release_one(self, newest: Handle) -> None:
        while True:
            oldest = next(iter(self._held))
            del self._held[oldest]
            if oldest.recently_used or oldest is newest:
                oldest.recently_used = False
                self._held[oldest] = None
                if oldest is newest and len(self._held) == 1:
                    return
                continue
            oldest.release()
            return


@contextmanager
def shared(pool: HandlePool) -> Iterator[None]:
    """Lets several threads use files of the pool; each has to close what it has opened."""
    pool.may_evict = False
    try:
        yield
    finally:
        pool.may_evict = True


@mypyc_attr(allow_interpreted_subclasses=True)
class File(Handle):
    """One file, appended to at its end and read anywhere.

    `size` is the true length, except for a file with reserved room, whose end is zeros that are
    never read.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.size = 0
        self.is_reserved = False

    def append(self, buffers: Sequence[Buffer], size_bytes: int) -> None:
        """Writes `buffers`, `size_bytes` in all, at the end.

        Raises:
            OSError: nothing was written; or EIO, a part of it stays until recovery cuts it off.
        """
        raise NotImplementedError

    def read(self, position: int, size_bytes: int) -> bytes:
        """The bytes from `position`, fewer than asked only at the end of the file."""
        raise NotImplementedError

    def truncate(self, size_bytes: int) -> None:
        """Cuts the file to `size_bytes`."""
        raise NotImplementedError

    def reserve(self, size_bytes: int) -> None:
        """Extends the file on the disk; appends continue at `size`. `truncate` ends that."""
        raise NotImplementedError

    def sync(self) -> None:
        """Returns when the file's data is on the disk."""
        raise NotImplementedError

    def duplicate(self) -> "File":
        """Another handle on the same file, for one use on another thread; close it."""
        raise NotImplementedError

    def renamed(self, path: str) -> None:
        """Notes that the file has moved to `path`."""
        self.path = path

    def close(self) -> None:
        """Gives the descriptor back for good."""
        self.release()


@mypyc_attr(allow_interpreted_subclasses=True)
class FileSystem:
    """The calls of a file system that the storage floor needs."""

    def __init__(self, max_open_files: int) -> None:
        self.pool = HandlePool(max_open_files)

    def open(self, path: str, *, create: bool = False) -> File:
        """The file at `path`.

        Raises:
            FileNotFoundError: there is none and `create` is false.
        """
        raise NotImplementedError

    def map(self, path: str, size_bytes: int) -> mmap.mmap:
        """The first `size_bytes` of the file in memory, writable, on blocks that exist.

        The file is created and extended as needed.
        """
        raise NotImplementedError

    def read_bytes(self, path: str) -> bytes:
        """The whole file."""
        raise NotImplementedError

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        """Replaces the file by `data` atomically: a reader sees the old or the new.

        With `sync` the new content is on the disk on return; without, a power failure may
        leave either content or an empty file.
        """
        raise NotImplementedError

    def truncate(self, path: str, size_bytes: int) -> None:
        """Cuts or extends the file at `path`."""
        raise NotImplementedError

    def sync(self, path: str) -> None:
        """Returns when the file or directory at `path` is on the disk. Any thread may ask."""
        raise NotImplementedError

    def size(self, path: str) -> int:
        """The length of the file, -1 when there is none."""
        raise NotImplementedError

    def modified_ms(self, path: str) -> int:
        """When the file was written last, in milliseconds since the epoch; -1 without a file."""
        raise NotImplementedError

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Makes the file as old as that. Any thread may ask."""
        raise NotImplementedError

    def for_thread(self) -> "FileSystem":
        """The same files for work on another thread, with a separate pool."""
        raise NotImplementedError

    def list_directory(self, path: str) -> list[str]:
        """The names in the directory, sorted."""
        raise NotImplementedError

    def is_directory(self, path: str) -> bool:
        """Whether `path` is a directory."""
        raise NotImplementedError

    def make_directory(self, path: str) -> None:
        """Makes the directory and its parents; an existing one is as good."""
        raise NotImplementedError

    def rename(self, path: str, target: str) -> None:
        """Moves a file or directory, and replaces an existing `target`."""
        raise NotImplementedError

    def link(self, path: str, target: str) -> None:
        """Gives the file a second name, and replaces an existing `target` atomically."""
        raise NotImplementedError

    def remove(self, path: str) -> None:
        """Removes the file; a missing one is as good. Any thread may ask."""
        raise NotImplementedError

    def remove_tree(self, path: str) -> None:
        """Removes a directory with all in it; a missing one is as good. Any thread may ask."""
        raise NotImplementedError

    def lock(self, path: str) -> "FileLock":
        """Takes the lock on `path` for this process.

        Raises:
            BlockingIOError: another process, or another broker in this one, holds it.
        """
        raise NotImplementedError

    def space(self, path: str) -> tuple[int, int]:
        """Total and usable bytes of the volume that holds `path`."""
        raise NotImplementedError


_locks: Final[set[int]] = set()


def _give_up_locks() -> list[int]:
    descriptors = list(_locks)
    _locks.clear()
    return descriptors


not_for_children(_give_up_locks)


class FileLock:
    """A lock on a file, held until `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        _locks.add(descriptor)

    def release(self) -> None:
        """Gives the lock up."""
        if self._descriptor >= 0:
            _locks.discard(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


@mypyc_attr(allow_interpreted_subclasses=True)
class OsFile(File):
    """A file of the machine, opened on use."""

    def __init__(self, path: str, pool: HandlePool, size_bytes: int, durable: bool) -> None:
        super().__init__(path)
        self.size = size_bytes
        self._pool = pool
        self._durable = durable
        self._descriptor = -1

    def append(self, buffers: Sequence[Buffer], size_bytes: int) -> None:
        """See the port."""
        start = self.size
        self._pool.check_write(self.path)
        try:
            self._write_all(self._opened(), buffers, start, size_bytes)
        except OSError as error:
            try:
                self._undo_append(start)
            except OSError:
                raise half_done(self.path, error) from error
            raise
        self.size = start + size_bytes

    def read(self, position: int, size_bytes: int) -> bytes:
        """See the port."""
        descriptor = self._descriptor if self._descriptor >= 0 else self._opened()
        self.recently_used = True
        if self.is_reserved:
            size_bytes = max(min(size_bytes, self.size - position), 0)
        return pread(descriptor, size_bytes, position)

    def truncate(self, size_bytes: int) -> None:
        """See the port."""
        os.ftruncate(self._opened(), size_bytes)
        self.size = size_bytes
        self.is_reserved = False

    def reserve(self, size_bytes: int) -> None:
        """See the port."""
        os.ftruncate(self._opened(), max(size_bytes, self.size))
        self.is_reserved = True

    def sync(self) -> None:
        """See the port."""
        if self._durable:
            fdatasync(self._opened())

    def duplicate(self) -> File:
        """See the port."""
        twin = OsFile(self.path, HandlePool(1), self.size, self._durable)
        twin.is_reserved = self.is_reserved
        twin._descriptor = os.dup(self._opened())
        return twin

    def release(self) -> None:
        """Gives the descriptor back; the next use takes a new one."""
        self._pool.discard(self)
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _opened(self) -> int:
        self.recently_used = True
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDWR | OPEN_FLAGS)
            self._pool.add(self)
        return self._descriptor

    def _write_all(
        self, descriptor: int, buffers: Sequence[Buffer], position: int, size_bytes: int
    ) -> None:
        if len(buffers) <= VECTOR_MAX:
            written = pwritev(descriptor, buffers, position)
            if written == size_bytes:
                return
            if written > 0 and len(buffers) == 1:
                rest = memoryview(buffers[0])[written:]
                self._write_all(descriptor, [rest], position + written, size_bytes - written)
                return
        # Too many parts for one call, or the kernel stopped between two of them.
        self._write_each(descriptor, buffers, position)

    def _write_each(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> None:
        for first in range(0, len(buffers), VECTOR_MAX):
            rest = memoryview(b"".join(buffers[first : first + VECTOR_MAX]))
            while rest:
                written = pwrite(descriptor, rest, position)
                position += written
                rest = rest[written:]

    def _undo_append(self, start: int) -> None:
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, start)


@mypyc_attr(allow_interpreted_subclasses=True)
class OsFileSystem(FileSystem):
    """The machine's own files.

    With `durable` false nothing is ever synced: for brokers whose directory is removed at the end.
    """

    def __init__(self, max_open_files: int | None = None, *, durable: bool = True) -> None:
        # Half of what the process may open; the rest is for connections.
        limit = open_file_limit() // 2
        super().__init__(max_open_files if max_open_files is not None else max(limit, 16))
        self.durable = durable

    def open(self, path: str, *, create: bool = False) -> File:
        """See the port."""
        size_bytes = self.size(path)
        if size_bytes < 0:
            if not create:
                raise FileNotFoundError(f"{path} is missing")
            self.pool.check_write(path)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o644))
            size_bytes = 0
        return OsFile(path, self.pool, size_bytes, self.durable)

    def map(self, path: str, size_bytes: int) -> mmap.mmap:
        """See the port."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o644)
        try:
            # A write to a hole of a full disk would end the process with SIGBUS.
            if os.fstat(descriptor).st_size < size_bytes:
                self.pool.check_write(path)
                posix_fallocate(descriptor, 0, size_bytes)
            return mmap.mmap(descriptor, size_bytes)
        finally:
            os.close(descriptor)

    def read_bytes(self, path: str) -> bytes:
        """See the port."""
        with open(path, "rb") as stream:
            return stream.read()

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        """See the port."""
        self.pool.check_write(path)
        temporary = path + names.TEMPORARY_SUFFIX
        with open(temporary, "wb") as stream:
            stream.write(data)
            stream.flush()
            if sync and self.durable:
                os.fsync(stream.fileno())
        os.replace(temporary, path)
        if sync:
            self.sync(os.path.dirname(path))

    def truncate(self, path: str, size_bytes: int) -> None:
        """See the port."""
        os.truncate(path, size_bytes)

    def sync(self, path: str) -> None:
        """See the port."""
        if self.durable:
            sync_path(path)

    def size(self, path: str) -> int:
        """See the port."""
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return -1

    def modified_ms(self, path: str) -> int:
        """See the port."""
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return -1

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """See the port."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def for_thread(self) -> FileSystem:
        """See the port."""
        return OsFileSystem(_THREAD_FILES, durable=self.durable)

    def list_directory(self, path: str) -> list[str]:
        """See the port."""
        return sorted(os.listdir(path))

    def is_directory(self, path: str) -> bool:
        """See the port."""
        return os.path.isdir(path)

    def make_directory(self, path: str) -> None:
        """See the port."""
        if not os.path.isdir(path):
            self.pool.check_write(path)
        os.makedirs(path, exist_ok=True)

    def rename(self, path: str, target: str) -> None:
        """See the port."""
        os.replace(path, target)

    def link(self, path: str, target: str) -> None:
        """See the port."""
        temporary = target + names.TEMPORARY_SUFFIX
        self.remove(temporary)
        try:
            os.link(path, temporary)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            import shutil

            # Slow, but readers that have opened the file see the change.
            shutil.copy2(path, temporary)
            self.sync(temporary)
        os.replace(temporary, target)

    def remove(self, path: str) -> None:
        """See the port."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        """See the port."""
        if os.path.isdir(path):
            import shutil  # it imports compression libraries, which a start does not need

            shutil.rmtree(path)

    def lock(self, path: str) -> FileLock:
        """See the port."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o644)
        try:
            lock_file(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        return FileLock(descriptor)

    def space(self, path: str) -> tuple[int, int]:
        """See the port."""
        return volume_space(path)
