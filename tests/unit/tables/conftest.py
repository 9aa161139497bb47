"""A partition's directory made by hand, with the files and names of a broker."""

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from odradek.model import TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.tables.scan.directory import DataDirectory
from odradek.tables.scan.segments import PartitionFiles

PARTITION = TopicPartition("orders", 0)
FIRST_TIME_MS = 1_700_000_000_000


def build_batch(first: int, last: int, codec: int = 0) -> bytes:
    """Records with these offsets; offset 7 has the time of 7 seconds, and value `v7`."""
    builder = RecordBatchBuilder(codec, first)
    for offset in range(first, last + 1):
        builder.append(FIRST_TIME_MS + offset * 1000, b"k%d" % offset, b"v%d" % offset)
    return builder.build()


class LogDir:
    """Writes segments into a log directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.partition = root / "orders-0"
        self.partition.mkdir()

    def segment(self, batches: Sequence[bytes], base: int, *, tail: bytes = b"") -> Path:
        """A segment of these batches with both indexes; the tail is written behind it."""
        path = self.partition / f"{base:020d}.log"
        path.write_bytes(b"".join(batches) + tail)
        return path

    def offset_index(self, base: int, entries: Sequence[tuple[int, int]]) -> None:
        data = b"".join(struct.pack(">ii", offset - base, at) for offset, at in entries)
        (self.partition / f"{base:020d}.index").write_bytes(data + bytes(80))

    def time_index(self, base: int, entries: Sequence[tuple[int, int]]) -> None:
        data = b"".join(struct.pack(">qi", time, offset - base) for time, offset in entries)
        (self.partition / f"{base:020d}.timeindex").write_bytes(data)

    def checkpoint(self, name: str, offset: int) -> None:
        (self.root / name).write_text(f"0\n1\norders 0 {offset}\n")

    @property
    def files(self) -> PartitionFiles:
        return PartitionFiles(PARTITION, str(self.partition))

    @property
    def directory(self) -> DataDirectory:
        return DataDirectory((str(self.root),))


@pytest.fixture
def log_dir(tmp_path: Path) -> LogDir:
    return LogDir(tmp_path)


@pytest.fixture
def batch_of() -> Callable[..., bytes]:
    return build_batch
