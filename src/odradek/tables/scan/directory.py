"""A broker's data directory, read-only: its partitions and its metadata about them.

The directory may belong to a running broker. The high watermark counts: records above it may still
be truncated. A broker writes it to a checkpoint every few seconds and when it stops; with
`kafka.bootstrap.servers` beside `path` the broker is asked for the newest one.
"""

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from odradek.errors import reason_of
from odradek.model import TopicPartition
from odradek.storage.names import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    METADATA_DATABASE,
    parse_partition_directory,
    partition_directory,
)
from odradek.tables.errors import MissingData, WrongPath
from odradek.tables.scan.segments import PartitionFiles, read_checkpoint

_COUNT_PARTITIONS: Final = (
    "SELECT name, count(*) FROM topic JOIN partition USING (topic_id) GROUP BY name"
)


class DataDirectory:
    """The partitions in one or more log directories of a broker, and their bounds."""

    def __init__(self, log_dirs: tuple[str, ...]) -> None:
        self.log_dirs = log_dirs

    @property
    def heeds_leases(self) -> bool:
        """Whether its broker looks for leases: only ours do, which are known by their metadata."""
        return any(os.path.exists(os.path.join(each, METADATA_DATABASE)) for each in self.log_dirs)

    def partitions(self) -> dict[TopicPartition, PartitionFiles]:
        """Every partition, except for those that wait for their removal.

        Raises:
            WrongPath: a directory does not exist, or cannot be read.
        """
        found: dict[TopicPartition, PartitionFiles] = {}
        for log_dir in self.log_dirs:
            for name in _names(log_dir):
                topic_partition = parse_partition_directory(name)
                path = os.path.join(log_dir, name)
                if topic_partition is not None and os.path.isdir(path):
                    found[topic_partition] = PartitionFiles(topic_partition, path)
        return found

    def partition_counts(self) -> dict[str, int]:
        """How many partitions each topic has, from the metadata of a broker that keeps them beside
        its logs; empty for others."""
        counts: dict[str, int] = {}
        for log_dir in self.log_dirs:
            path = os.path.join(log_dir, METADATA_DATABASE)
            if os.path.exists(path):
                uri = f"{Path(path).absolute().as_uri()}?mode=ro"
                with suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as database:
                    counts.update(database.execute(_COUNT_PARTITIONS))
        return counts

    def partition(self, topic_partition: TopicPartition) -> PartitionFiles:
        """One partition.

        Raises:
            MissingData: there is no such partition.
        """
        for log_dir in self.log_dirs:
            path = os.path.join(log_dir, partition_directory(topic_partition))
            if os.path.isdir(path):
                return PartitionFiles(topic_partition, path)
        raise MissingData(f"{topic_partition} is not in {', '.join(self.log_dirs)}")

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks in the broker's last checkpoint."""
        return self._checkpoint(HIGH_WATERMARK_CHECKPOINT)

    def deleted_up_to(self) -> dict[TopicPartition, int]:
        """The offset below which records were deleted, even if the segment still exists."""
        return self._checkpoint(LOG_START_OFFSET_CHECKPOINT)

    def log_start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each that may be read.

        Raises:
            MissingData: there is no such partition.
        """
        deleted = self.deleted_up_to()
        return {
            part: max(deleted.get(part, 0), *self.partition(part).base_offsets()[:1], 0)
            for part in partitions
        }

    def _checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Reads each directory's own checkpoint: one may also speak of a copy that is not whole
        yet, or of a partition that lies elsewhere by now."""
        offsets: dict[TopicPartition, int] = {}
        for log_dir in self.log_dirs:
            written = read_checkpoint(log_dir, name)
            if len(self.log_dirs) > 1:
                written = {tp: written[tp] for tp in written if _lies_in(log_dir, tp)}
            offsets.update(written)
        return offsets


def _lies_in(log_dir: str, topic_partition: TopicPartition) -> bool:
    return os.path.isdir(os.path.join(log_dir, partition_directory(topic_partition)))


def _names(log_dir: str) -> list[str]:
    try:
        return os.listdir(log_dir)
    except OSError as error:
        raise WrongPath(f"path: {log_dir} cannot be read: {reason_of(error)}") from error
