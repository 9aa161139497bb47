"""Leases: for a while, what a running query still has to read is neither deleted nor compacted.

A lease is a file `<id>.lease` in the directory of a partition: from which offset on its records are
held, for whom, and until when. A broker writes it for a reader that asks by the wire
(`handlers/records/list_offsets.py`), a reader of the files writes it itself; the log looks for
leases when retention or compaction is about to take something away, and at no other time. So there
is no state to keep in step, a lease outlives its broker, and `odradek leases` sees it without
asking anybody.

    { "version": 1, "offset": 4711, "owner": "spark-driver:4711", "expires_ms": 1790000000000 }

Time-limited by itself: a query that dies leaves a file that nobody heeds any more, and that the
next look removes. And limited as a whole (`Holding`): queries that come one after the other do not
keep a record for ever. Explicit deletions (a topic, records by DeleteRecords) ignore leases. Apache
Kafka ignores files of that name.
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
    """Gives a lease back; one that is not there is as good.

    Raises:
        OSError: the disk refused.
    """
    file_system.remove(_path(directory, lease_id))


def read_leases(file_system: FileSystem, directory: str) -> list[Lease]:
    """All leases on a partition, those that are over too.

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
    """The first offset that is held, None when none is. Removes the leases that are over.

    Raises:
        OSError: the disk failed.
    """
    held: list[int] = []
    for lease in read_leases(file_system, directory):
        # Written by a clock that is far ahead, it would hold for ever.
        if now_ms < lease.expires_ms <= now_ms + LONGEST_LEASE_MS:
            held.append(lease.offset)
        else:
            release_lease(file_system, directory, lease.id)
    return min(held, default=None)


class Holding:
    """Bounds how long leases delay what is due in a log: no longer than one lease may last."""

    def __init__(self) -> None:
        self._since_ms: int | None = None

    def offset(self, file_system: FileSystem, directory: str, now_ms: int) -> int | None:
        """From where on nothing may go that is due now; None if all may.

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
        """Cancels what is due."""
        self._since_ms = None


def is_lease_id(text: str) -> bool:
    """Whether a name may be that of a lease: nothing that leads out of its directory."""
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
