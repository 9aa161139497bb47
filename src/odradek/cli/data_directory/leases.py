"""`odradek leases`: lists the queries that keep records from retention and compaction, and until
when.

Reads data directories as they lie there; a broker may be running on them. Prints a line for each
lease on a partition, sorted by its end; expired leases that are not removed yet are left out.
"""

import argparse
import json
import os
from typing import NamedTuple

from odradek.cli.arguments import add_format
from odradek.cli.terminal import tell
from odradek.clock import SystemClock
from odradek.errors import text_of
from odradek.storage.files import FileSystem, OsFileSystem
from odradek.storage.leases import Lease, read_leases
from odradek.storage.names import parse_partition_directory

_COLUMNS = ("PARTITION", "FROM-OFFSET", "SECONDS-LEFT", "OWNER", "LEASE")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `odradek leases`."""
    parser.add_argument("directories", metavar="DIR", nargs="+", help="a data directory")
    add_format(parser, "an object for each lease")


def run(arguments: argparse.Namespace) -> int:
    """Prints the leases; 1 when a directory cannot be read."""
    files, now_ms = OsFileSystem(max_open_files=1), SystemClock().wall_ms()
    try:
        found = [one for each in arguments.directories for one in _leases(files, each, now_ms)]
    except OSError as error:
        tell(text_of(error))
        return 1
    found.sort(key=lambda held: (held.lease.expires_ms, held.partition))
    if arguments.format == "json":
        for held in found:
            print(json.dumps({"partition": held.partition, **held.lease._asdict()}))
    elif found:
        _print_table([held.row(now_ms) for held in found])
    return 0


class _Held(NamedTuple):
    """A lease, and the directory of the partition that it is on."""

    partition: str
    lease: Lease

    def row(self, now_ms: int) -> tuple[str, ...]:
        """Its cells in the table."""
        left_s = (self.lease.expires_ms - now_ms) // 1000
        return self.partition, str(self.lease.offset), str(left_s), self.lease.owner, self.lease.id


def _leases(files: FileSystem, directory: str, now_ms: int) -> list[_Held]:
    return [
        _Held(name, lease)
        for name in files.list_directory(directory)
        if parse_partition_directory(name) is not None
        for lease in read_leases(files, os.path.join(directory, name))
        if lease.expires_ms > now_ms
    ]


def _print_table(rows: list[tuple[str, ...]]) -> None:
    rows = [_COLUMNS, *rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print("  ".join(cells).rstrip())
