"""A file system that fails on purpose: for tests of recovery.

`FaultyFileSystem` is the machine's own, with a count of the operations that change something. A
test lets operation number n fail (`fail_at`, with an errno), or crashes after it (`crash_at`): from
then on every operation raises `Crashed`, as if the process were gone, and the test opens the
directory again with another file system. `is_full` refuses to write a byte, as a full disk does,
and lets everything else pass; `full_at` begins that at an operation. Reads are counted by
themselves (`fail_read_at`).
"""

import errno
import mmap
import os
from collections.abc import Sequence

from odradek.storage.files import (
    Buffer,
    File,
    FileLock,
    FileSystem,
    HandlePool,
    OsFile,
    OsFileSystem,
)
from odradek.system_calls import pwrite


class Crashed(BaseException):
    """The process is gone: nothing may catch this but the test."""


class FaultyFileSystem(OsFileSystem):
    """Counts changes in `operations`, and fails or crashes at the number that the test sets.

    `fail_count` operations fail from `fail_at` on. `half_write` makes the failing append leave
    half of its bytes, as a torn write does.
    """

    def __init__(self, max_open_files: int = 64) -> None:
        super().__init__(max_open_files, durable=True)
        self.operations = 0
        self.log: list[str] = []
        self.fail_at: int | None = None
        self.fail_count = 1
        self.errno = errno.EIO
        self.crash_at: int | None = None
        self.full_at: int | None = None
        self.is_full = False
        self.reads = 0
        self.fail_read_at: int | None = None
        self.sync_fails = False
        self.read_fails = False
        self.half_write = False
        self.has_crashed = False

    def change(self, what: str, path: str, *, writes: bool = False) -> None:
        """Counts one change; raises what the test has asked for."""
        self.alive()
        self.is_full = self.is_full or self.operations + 1 == self.full_at
        if self.is_full and writes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self.operations += 1
        self.log.append(f"{what} {os.path.basename(path)}")
        if self.fail_at is not None and 0 <= self.operations - self.fail_at < self.fail_count:
            raise OSError(self.errno, os.strerror(self.errno), path)
        if self.operations == self.crash_at:
            self.has_crashed = True
            raise Crashed(f"operation {self.operations}: {self.log[-1]}")

    def alive(self) -> None:
        """Raises `Crashed` when the process is gone."""
        if self.has_crashed:
            raise Crashed("the process is gone")

    def open(self, path: str, *, create: bool = False) -> File:
        """The file, as one that counts."""
        self.alive()
        size_bytes = self.size(path)
        if size_bytes < 0 and create:
            self.change("create", path, writes=True)
        twin = super().open(path, create=create)
        return FaultyFile(self, path, twin.size)

    def map(self, path: str, size_bytes: int) -> mmap.mmap:
        """Counts only where the file grows."""
        if self.size(path) < size_bytes:
            self.change("extend", path, writes=True)
        return super().map(path, size_bytes)

    def read_bytes(self, path: str) -> bytes:
        """Reads, unless reading fails."""
        self.reading(path)
        return super().read_bytes(path)

    def reading(self, path: str) -> None:
        """Raises what a read of `path` meets."""
        self.alive()
        self.reads += 1
        if self.read_fails or self.reads == self.fail_read_at:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        """Two changes: the temporary file, and its taking the place."""
        self.change("write", path + ".tmp", writes=True)
        with open(path + ".tmp", "wb") as stream:
            stream.write(data)
        if sync:
            self.syncing(path + ".tmp")
        self.change("replace", path)
        os.replace(path + ".tmp", path)

    def truncate(self, path: str, size_bytes: int) -> None:
        """Counts."""
        self.change("truncate", path)
        super().truncate(path, size_bytes)

    def sync(self, path: str) -> None:
        """Counts; fails when the test says so."""
        self.syncing(path)

    def syncing(self, path: str) -> None:
        """Counts a sync and raises what it meets."""
        self.change("sync", path)
        if self.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def make_directory(self, path: str) -> None:
        """Counts."""
        if not self.is_directory(path):
            self.change("mkdir", path, writes=True)
        super().make_directory(path)

    def rename(self, path: str, target: str) -> None:
        """Counts; the longer name of a directory needs room."""
        self.change("rename", path, writes=self.is_directory(path))
        super().rename(path, target)

    def link(self, path: str, target: str) -> None:
        """Counts."""
        self.change("link", path)
        super().link(path, target)

    def remove(self, path: str) -> None:
        """Counts where there is something to remove."""
        if self.size(path) >= 0:
            self.change("remove", path)
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        """Counts."""
        self.change("remove tree", path)
        super().remove_tree(path)

    def for_thread(self) -> FileSystem:
        """Itself: its operations are counted in one row, and tests have one thread."""
        return self

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Counts."""
        self.change("touch", path)
        super().set_modified_ms(path, modified_ms)

    def lock(self, path: str) -> FileLock:
        """Locks."""
        self.alive()
        return super().lock(path)


class FaultyFile(OsFile):
    """A file whose changes its file system counts."""

    def __init__(self, file_system: FaultyFileSystem, path: str, size_bytes: int) -> None:
        super().__init__(path, file_system.pool, size_bytes, False)
        self._faults = file_system

    def _write_all(
        self, descriptor: int, buffers: Sequence[Buffer], position: int, size_bytes: int
    ) -> None:
        """Writes all, or half and fails, or nothing and fails."""
        try:
            self._faults.change("append", self.path, writes=True)
        except (Crashed, OSError):
            if self._faults.half_write:
                pwrite(descriptor, b"".join(buffers)[: size_bytes // 2], position)
            raise
        super()._write_all(descriptor, buffers, position, size_bytes)

    def _undo_append(self, start: int) -> None:
        """Counts."""
        self._faults.change("undo", self.path)
        super()._undo_append(start)

    def read(self, position: int, size_bytes: int) -> bytes:
        """Reads, unless reading fails."""
        self._faults.reading(self.path)
        return super().read(position, size_bytes)

    def truncate(self, size_bytes: int) -> None:
        """Counts."""
        self._faults.change("truncate", self.path)
        super().truncate(size_bytes)

    def reserve(self, size_bytes: int) -> None:
        """Counts."""
        self._faults.change("reserve", self.path, writes=True)
        super().reserve(size_bytes)

    def sync(self) -> None:
        """Counts; fails when the test says so."""
        self._faults.syncing(self.path)

    def duplicate(self) -> File:
        """Another one that counts, and reads on when the file has another name or none."""
        twin = FaultyFile(self._faults, self.path, self.size)
        twin.is_reserved = self.is_reserved
        twin._pool = HandlePool(1)
        twin._descriptor = os.dup(self._opened())
        return twin
