"""A file system whose machine loses its power: unsynced changes may be lost.

`kill -9` leaves all that was written; a power failure does not. `VolatileFileSystem` records,
beside the real files, what is certainly on the disk. The content of a file is, since its last sync;
a name (made, moved, removed) is since the last sync of its directory. Unsynced changes may still
survive, so `survive` writes any of the states that the next start may find: names are kept up to a
chosen change, in the order of the changes (common file systems keep that order), contents are as
they were synced or padded with zeros to the length that they had.

Names in `root` itself count as durable.
"""

import mmap
import os
from typing import NamedTuple

from odradek.storage.files import File
from odradek.testing.faulty_files import FaultyFileSystem

_ROOT = 0
# A directory's names by its number, and the number behind each name.
_Tree = dict[int, dict[str, int]]


class _Change(NamedTuple):
    """One change of names in a directory: a name goes, a name comes, or both at once."""

    directory: int
    gone: str | None
    came: str | None
    number: int


class VolatileFileSystem(FaultyFileSystem):
    """The real files below `root`, and a record of what is on the disk."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root_path = root
        self._now: _Tree = {_ROOT: {}}
        self._durable: _Tree = {_ROOT: {}}
        self._contents: dict[int, bytes] = {}
        self._pending: list[_Change] = []
        self._last_number = _ROOT

    @property
    def pending_changes(self) -> int:
        """How many changes of names are not on the disk for certain."""
        return len(self._pending)

    def survive(
        self, target: str, kept_changes: int, *, zeros: bool, quick: str | None = None
    ) -> None:
        """Writes into the empty directory `target` what a power failure may leave.

        The first `kept_changes` of the pending changes of names are there; where another disk is
        behind, of those below the directory `quick` alone. With `zeros` a file has the length that
        it had, filled up with zeros, else only what was synced.
        """
        tree = {directory: dict(names) for directory, names in self._durable.items()}
        there = None if quick is None else self._below(self._number(quick))
        pending = [each for each in self._pending if there is None or each.directory in there]
        for change in pending[:kept_changes]:
            _apply(tree, change)
        self._write_directory(_ROOT, target, tree, zeros)

    def open(self, path: str, *, create: bool = False) -> File:
        """The file; a new one has a name that is not durable yet."""
        file = super().open(path, create=create)
        self._came(path)
        return file

    def map(self, path: str, size_bytes: int) -> mmap.mmap:
        """The file in memory; writes to it become durable with a sync."""
        mapped = super().map(path, size_bytes)
        self._came(path)
        return mapped

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        """The temporary file, its content, and its taking the place, each by itself."""
        temporary = path + ".tmp"
        self.change("write", temporary, writes=True)
        with open(temporary, "wb") as stream:
            stream.write(data)
        self._came(temporary)
        if sync:
            self.syncing(temporary)
        self.rename(temporary, path)
        if sync:
            self.syncing(os.path.dirname(path))

    def syncing(self, path: str) -> None:
        """Moves a file's content, or a directory's names, to the disk."""
        super().syncing(path)
        number = self._number(path)
        if number is None:
            return
        if number not in self._now:
            with open(path, "rb") as stream:
                self._contents[number] = stream.read()
            return
        self._durable.setdefault(number, {})
        for change in self._pending:
            if change.directory == number:
                _apply(self._durable, change)
        self._pending = [change for change in self._pending if change.directory != number]

    def make_directory(self, path: str) -> None:
        """A directory, whose name is not durable yet."""
        super().make_directory(path)
        self._came(path, is_directory=True)

    def rename(self, path: str, target: str) -> None:
        """One change, within a directory."""
        super().rename(path, target)
        directory, gone = self._split(path)
        _, came = self._split(target)
        self._note(_Change(directory, gone, came, self._now[directory][gone]))

    def link(self, path: str, target: str) -> None:
        """Another name comes, within a directory."""
        super().link(path, target)
        number = self._number(path)
        assert number is not None, f"{path} is linked and not there"
        directory, came = self._split(target)
        self._note(_Change(directory, None, came, number))

    def remove(self, path: str) -> None:
        """A name goes."""
        super().remove(path)
        self._gone(path)

    def remove_tree(self, path: str) -> None:
        """A directory goes with all in it."""
        super().remove_tree(path)
        self._gone(path)

    def _came(self, path: str, *, is_directory: bool = False) -> None:
        if self._number(path) is not None:
            return
        self._last_number += 1
        directory, name = self._split(path)
        if is_directory:
            self._now[self._last_number] = {}
        self._note(_Change(directory, None, name, self._last_number))

    def _gone(self, path: str) -> None:
        number = self._number(path)
        if number is not None:
            directory, name = self._split(path)
            self._note(_Change(directory, name, None, number))

    def _note(self, change: _Change) -> None:
        _apply(self._now, change)
        if change.directory == _ROOT:
            _apply(self._durable, change)
        else:
            self._pending.append(change)

    def _split(self, path: str) -> tuple[int, str]:
        parent, name = os.path.split(path)
        directory = self._number(parent)
        assert directory is not None, f"{path} is not below {self._root_path}"
        return directory, name

    def _number(self, path: str) -> int | None:
        relative = os.path.relpath(path, self._root_path)
        number = _ROOT
        for name in relative.split(os.sep) if relative != "." else ():
            found = self._now.get(number, {}).get(name)
            if found is None:
                return None
            number = found
        return number

    def _write_directory(self, number: int, path: str, tree: _Tree, zeros: bool) -> None:
        os.makedirs(path, exist_ok=True)
        for name, child in tree.get(number, {}).items():
            below = os.path.join(path, name)
            if child in self._now:
                self._write_directory(child, below, tree, zeros)
                continue
            content = self._contents.get(child, b"")
            with open(below, "wb") as stream:
                stream.write(content.ljust(self._size_of(child), b"\0") if zeros else content)

    def _size_of(self, number: int) -> int:
        """The length that a file has now, 0 for one that is gone."""
        path = self._path_of(number, _ROOT, self._root_path)
        return os.path.getsize(path) if path is not None else 0

    def _below(self, directory: int | None) -> set[int]:
        """The numbers of a directory and of all directories below it."""
        if directory is None or directory not in self._now:
            return set()
        below = [self._below(child) for child in self._now[directory].values()]
        return {directory}.union(*below)

    def _path_of(self, number: int, directory: int, path: str) -> str | None:
        for name, child in self._now.get(directory, {}).items():
            below = os.path.join(path, name)
            if child == number:
                return below
            found = self._path_of(number, child, below)
            if found is not None:
                return found
        return None


def _apply(tree: _Tree, change: _Change) -> None:
    names = tree.setdefault(change.directory, {})
    if change.gone is not None:
        names.pop(change.gone, None)
    if change.came is not None:
        names[change.came] = change.number
