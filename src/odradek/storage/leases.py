"""Leases: for a limited time, records that a running query still has to read are neither deleted
nor compacted.

A lease is a file `<id>.lease` in the directory of a partition: with the offset from which on
records are held, the owner, and the end of the time. A broker writes it for a reader that asks by
the wire (`handlers/records/list_offsets.py`), a reader of the files writes it itself; the log looks
for leases only when retention or compaction is about to remove records. So there is no state to
keep in step, a lease outlives its broker, and `odradek leases` needs no broker to list it.

    { "version": 1, "offset": 4711, "owner": "spark-driver:4711", "expires_ms": 1790000000000 }

Each lease is limited in time: that of a query that has died has no effect after it, and the next
look removes the file. And all together are limited (`Holding`): successive queries cannot keep a
record for ever. Explicit deletions (a topic, records by DeleteRecords) ignore leases. Apache Kafka
ignores files of that name.
"""

import json
from typing import Final, NamedTuple

from odradek.storage.files import FileSystem
from odradek.storage.names import LEASE_SUFFIX, LONGEST_LEASE_MS

_VERSION: Final = 1


class Lease(NamedTuple):
    """Records from `offset` on are held until `expires_ms`, milliseconds since the epoch."""

    id: str
    owner: str
    offset: int
    expires_ms: int


def write_lease(
    file_system: FileSystem, directory: str, lease: Lease, now_ms: int, *, sync: bool = False
) -> None:
    """Takes a lease on the partition in `directory`, for an hour at most.

    Raises:
        OSError: the disk refused.
    """
    document = {
        "version": _VERSION,
        "offset": lease.offset,
        "owner": lease.owner,
        "expires_ms": min(lease.expires_ms, now_ms + LONGEST_LEASE_MS),
    }
    data = json.dumps(document).encode()
    file_system.replace(_path(directory, lease.id), data, sync=sync)


def renew_lease(
    file_system: FileSystem, directory: str, lease_id: str, expires_ms: int, now_ms: int
) -> None:
    """Extends an existing lease until `expires_ms`, from its own offset on.

    Raises:
        OSError: the disk refused.
    """
    lease = _read(file_system, _path(directory, lease_id), lease_id)
    if lease is not None:
        write_lease(file_system, directory, lease._replace(expires_ms=expires_ms), now_ms)


def release_lease(file_system: FileSystem, directory: str, lease_id: str) -> None:
    """Releases a lease; a missing one is no error.

    Raises:
        OSError: the disk refused.
    """
    file_system.remove(_path(directory, lease_id))


def read_leases(file_system: FileSystem, directory: str) -> list[Lease]:
    """All leases on a partition, including expired ones.

    Raises:
        OSError: the disk failed.
    """
    found: list[Lease] = []
    for name in file_system.list_directory(directory):
        if name.endswith(LEASE_SUFFIX):
            lease = _read(file_system, f"{directory}/{name}", name.removesuffix(LEASE_SUFFIX))
            if lease is not None:
                found.append(lease)
    return found


def held_from(file_system: FileSystem, directory: str, now_ms: int) -> int | None:
    """The first offset that is held, None when none is. Removes expired leases.

    Raises:
        OSError: the disk failed.
    """
    held: list[int] = []
    for lease in read_leases(file_system, directory):
        # A lease from a clock that is far ahead would hold for ever.
        if now_ms < lease.expires_ms <= now_ms + LONGEST_LEASE_MS:
            held.append(lease.offset)
        else:
            release_lease(file_system, directory, lease.id)
    return min(held, default=None)


class Holding:
    """Bounds the delay of due work in a log by leases to the duration of one lease."""

    def __init__(self) -> None:
        self._since_ms: int | None = None

    def offset(self, file_system: FileSystem, directory: str, now_ms: int) -> int | None:
        """The offset from which on due records must stay; None if all may be removed.

        Raises:
            OSError: the disk failed.
        """
        held = held_from(file_system, directory, now_ms)
        if held is None:
            self._since_ms = None
            return None
        if self._since_ms is None:
            self._since_ms = now_ms
        return held if now_ms - self._since_ms < LONGEST_LEASE_MS else None

    def end(self) -> None:
        """Forgets the start of the delay: nothing is due any more."""
        self._since_ms = None


def is_lease_id(text: str) -> bool:
    """Whether a name may be that of a lease, and does not lead out of its directory."""
    return 0 < len(text) <= 64 and text.isascii() and text.isalnum()


def _path(directory: str, lease_id: str) -> str:
    assert is_lease_id(lease_id), f"{lease_id!r} cannot name a file"
    return f"{directory}/{lease_id}{LEASE_SUFFIX}"


def _read(file_system: FileSystem, path: str, lease_id: str) -> Lease | None:
    """Reads a lease; None if the file is gone, or contains none."""
    try:
        document = json.loads(file_system.read_bytes(path))
        return Lease(
            lease_id, str(document["owner"]), int(document["offset"]), int(document["expires_ms"])
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
