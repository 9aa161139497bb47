"""Reads the files of a partition one by one, without a broker and without changing anything.

Reads what `dump-log` prints and `fsck` checks: nothing here maps, locks, repairs or trusts a file.
Any reason why a file cannot be read becomes an `UnreadableFile`, whose text is one line with the
file and the position. Memory is bounded by the largest batch.
"""

import errno
import os
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Final, NamedTuple

from odradek.errors import reason_of
from odradek.records.batch import LOG_OVERHEAD_BYTES, MAGIC_POSITION, BatchHeader, parse_header
from odradek.records.errors import CorruptRecords
from odradek.storage.index.transaction_index import AbortedEntry
from odradek.storage.log.recovery import check_batch
from odradek.storage.producers.producer_snapshot import CorruptSnapshot, decode_snapshot
from odradek.storage.producers.producer_state import ProducerState
from odradek.system_calls import OPEN_FLAGS, pread

WHOLE_FILE: Final = 0x7FFFFFFF
_LENGTH: Final = struct.Struct(">i")
_PAGE_BYTES: Final = 4096
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_ABORTED_ENTRY: Final = struct.Struct(">hqqqq")
# The smallest thing that can follow an offset and a length: a message of magic 0.
_LEAST_LENGTH: Final = 14


class UnreadableFile(ValueError):
    """A file that cannot be read, or not from `position` on; the text is one line."""

    def __init__(self, path: str, problem: str, position: int = 0) -> None:
        where = f" at position {position}" if position else ""
        super().__init__(f"{path}{where}: {problem}")
        self.path = path
        self.position = position
        self.problem = problem


class FoundBatch(NamedTuple):
    """A batch and its place in its file. `header.position` is 0, as it refers to `data`."""

    position: int
    header: BatchHeader
    data: bytes

    def problem(self) -> str | None:
        """Explains how the checksum contradicts the batch; None when it is right."""
        try:
            check_batch(self.data, self.header)
        except CorruptRecords as error:
            return error.message
        return None


class LogFile:
    """The batches of one `.log` file; a context manager.

    Raises:
        UnreadableFile: it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path: Final = path
        try:
            if os.path.isdir(path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self._descriptor: Final = os.open(path, os.O_RDONLY | OPEN_FLAGS)
        except OSError as error:
            raise UnreadableFile(path, reason_of(error)) from error
        self.size_bytes: Final = os.fstat(self._descriptor).st_size

    def __enter__(self) -> "LogFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def batches(self, position: int = 0, max_bytes: int = WHOLE_FILE) -> Iterator[FoundBatch]:
        """The whole batches from `position` on; a torn one at the end is left out.

        Checksums are not looked at.

        Raises:
            UnreadableFile: there is a batch that contradicts itself, or the disk failed.
        """
        end = self.size_bytes
        if max_bytes != WHOLE_FILE:
            end = min(end, position + max_bytes)
        while position + MAGIC_POSITION < end:
            length: int = _LENGTH.unpack(self._read(position + 8, _LENGTH.size))[0]
            if length < _LEAST_LENGTH:
                raise UnreadableFile(
                    self.path, f"a batch cannot have the length {length}", position
                )
            size_bytes = LOG_OVERHEAD_BYTES + length
            if position + size_bytes > end:
                return
            data = self._read(position, size_bytes)
            try:
                header = parse_header(data)
            except CorruptRecords as error:
                # Its positions count from the batch's own beginning.
                problem = error.message.replace(" at position 0", "")
                raise UnreadableFile(self.path, problem, position) from error
            yield FoundBatch(position, header, data)
            position += size_bytes

    def first_batch(self, position: int, max_bytes: int = WHOLE_FILE) -> FoundBatch | None:
        """The batch that begins at `position`; None when there is none."""
        if not 0 <= position < self.size_bytes:
            return None
        return next(self.batches(position, max_bytes), None)

    def _read(self, position: int, size_bytes: int) -> bytes:
        try:
            data = pread(self._descriptor, size_bytes, position)
        except OSError as error:
            raise UnreadableFile(self.path, reason_of(error), position) from error
        if len(data) < size_bytes:
            raise UnreadableFile(self.path, "the file became shorter while it was read", position)
        return data


def read_bytes(path: str) -> bytes:
    """The whole file.

    Raises:
        UnreadableFile: it cannot be read.
    """
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError as error:
        raise UnreadableFile(path, reason_of(error)) from error


def base_offset_of(path: str) -> int:
    """The offset that a segment file's name begins with.

    Raises:
        UnreadableFile: it does not.
    """
    stem = os.path.basename(path).split(".")[0]
    if not stem.isascii() or not stem.isdecimal():
        raise UnreadableFile(path, "the name does not begin with an offset")
    return int(stem)


def beside(path: str, suffix: str) -> str:
    """The path of another file of the same segment."""
    stem = os.path.basename(path).split(".")[0]
    return os.path.join(os.path.dirname(os.path.abspath(path)), stem + suffix)


def read_offset_index(path: str, *, is_trimmed: bool = False) -> list[tuple[int, int]]:
    """The (offset, position) entries, up to the zeros that a crash leaves at the end.

    An index that `is_trimmed` was closed in order and has no such zeros.

    Raises:
        UnreadableFile: the file cannot be read or ends within an entry.
    """
    base_offset = base_offset_of(path)
    rows = _entries(path, _OFFSET_ENTRY, is_trimmed=is_trimmed)
    return [(base_offset + relative, position) for relative, position in rows]


def read_time_index(path: str, *, is_trimmed: bool = False) -> list[tuple[int, int]]:
    """The (timestamp, offset) entries, up to the zeros that a crash leaves at the end.

    An index that `is_trimmed` was closed in order and has no such zeros.

    Raises:
        UnreadableFile: the file cannot be read or ends within an entry.
    """
    base_offset = base_offset_of(path)
    rows = _entries(path, _TIME_ENTRY, is_trimmed=is_trimmed)
    return [(timestamp, base_offset + relative) for timestamp, relative in rows]


def check_offset_index(path: str) -> None:
    """Checks an offset index as a broker does before it trusts it.

    Raises:
        UnreadableFile: it would be rebuilt.
    """
    base_offset = base_offset_of(path)
    data = _whole_entries(path, _OFFSET_ENTRY.size)
    if data:
        relative, _ = _OFFSET_ENTRY.unpack_from(data, len(data) - _OFFSET_ENTRY.size)
        _check_last_offset(path, base_offset, relative, len(data) - _OFFSET_ENTRY.size)


def check_time_index(path: str) -> None:
    """Checks a time index as a broker does before it trusts it.

    Raises:
        UnreadableFile: it would be rebuilt.
    """
    base_offset = base_offset_of(path)
    data = _whole_entries(path, _TIME_ENTRY.size)
    if data:
        at = len(data) - _TIME_ENTRY.size
        timestamp, relative = _TIME_ENTRY.unpack_from(data, at)
        first = _TIME_ENTRY.unpack_from(data)[0]
        if timestamp < first:
            problem = f"the last timestamp {timestamp} is below the first, {first}"
            raise UnreadableFile(path, problem, at)
        _check_last_offset(path, base_offset, relative, at)


def read_transaction_index(path: str) -> list[tuple[int, AbortedEntry]]:
    """The aborted transactions, each with the version of its entry.

    Raises:
        UnreadableFile: the file cannot be read, ends within an entry, or is of a later version.
    """
    entries: list[tuple[int, AbortedEntry]] = []
    for version, *fields in _ABORTED_ENTRY.iter_unpack(_whole_entries(path, _ABORTED_ENTRY.size)):
        if version != 0:
            position = len(entries) * _ABORTED_ENTRY.size
            raise UnreadableFile(path, f"an entry has the unknown version {version}", position)
        entries.append((version, AbortedEntry(*fields)))
    return entries


def read_producer_snapshot(path: str) -> list[ProducerState]:
    """The producers of a snapshot.

    Raises:
        UnreadableFile: the file cannot be read or contradicts itself.
    """
    try:
        return decode_snapshot(read_bytes(path))
    except CorruptSnapshot as error:
        raise UnreadableFile(path, str(error)) from error


def _entries(path: str, entry: struct.Struct, *, is_trimmed: bool) -> list[tuple[int, int]]:
    data = read_bytes(path)
    # Kafka's have room for a number of entries, ours for a number of pages.
    if not is_trimmed and 0 in (len(data) % entry.size, len(data) % _PAGE_BYTES):
        used = len(data.rstrip(b"\0"))
        data = data[: -(-used // entry.size) * entry.size]
    return list(entry.iter_unpack(_whole(path, data, entry.size)))


def _whole_entries(path: str, entry_bytes: int) -> bytes:
    return _whole(path, read_bytes(path), entry_bytes)


def _whole(path: str, data: bytes, entry_bytes: int) -> bytes:
    torn = len(data) % entry_bytes
    if torn:
        raise UnreadableFile(
            path,
            f"{len(data)} bytes are not a whole number of entries of {entry_bytes} bytes",
            len(data) - torn,
        )
    return data


def _check_last_offset(path: str, base_offset: int, relative: int, position: int) -> None:
    if relative < 0:
        raise UnreadableFile(
            path, f"the last entry is below the base offset {base_offset}", position
        )
