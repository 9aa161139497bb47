"""What an archive holds, batch by batch: every file with its offsets, size and checksum.

    orders/_manifest/batch-0.json
        {"batch": 0, "files": [{"path": "batch=0/date=2026-11-22/hour=03/part-....parquet",
                                "bytes": 8121, "sha256": "...",
                                "ranges": [{"topic": "orders", "partition": 0, "start": 0,
                                            "end": 120, "records": 120}]}]}

Written when the files of the batch are complete, and by renaming, so a batch that is in the
manifest is whole; it is what readers that must be sure go by. The folder begins with an
underscore, which readers of Parquet pass over. Files are read as Spark reads them, on any
file system that it knows.
"""

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_odradek.pipelines.files import FileSystem

MANIFEST: Final = "_manifest"


@dataclass(frozen=True)
class FileRange:
    """The records of one partition in a file: from `start` up to, and without, `end`."""

    topic: str
    partition: int
    start: int
    end: int
    records: int


@dataclass(frozen=True)
class ArchivedFile:
    """A file; `path` is relative to the archive."""

    path: str
    bytes: int
    sha256: str
    ranges: list[FileRange] = field(default_factory=list)


class Manifest:
    """The manifest of one archive."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark = spark
        self._directory = directory.rstrip("/")
        self._files = FileSystem(spark)

    def has(self, batch_id: int) -> bool:
        """Whether a batch is complete."""
        return self._files.exists(self._path(batch_id))

    def write(self, batch_id: int, batch_directory: str) -> None:
        """Looks at the files of a batch and writes them down."""
        found = self.look(batch_directory)
        document = {"batch": batch_id, "files": [asdict(file) for file in found]}
        self._files.replace(self._path(batch_id), json.dumps(document, indent=1))

    def files(self) -> list[ArchivedFile]:
        """Every file of every complete batch, in order."""
        root = f"{self._directory}/{MANIFEST}"
        names = [name for name in self._files.names(root) if name.endswith(".json")]
        found: list[ArchivedFile] = []
        for name in sorted(names, key=lambda name: int(name[6:-5])):
            for entry in json.loads(self._files.read(f"{root}/{name}"))["files"]:
                ranges = [FileRange(**piece) for piece in entry.pop("ranges")]
                found.append(ArchivedFile(**entry, ranges=ranges))
        return found

    def look(self, directory: str) -> list[ArchivedFile]:
        """The Parquet files below a directory as they are now."""
        checksums = self.checksums(directory)
        if not checksums:
            return []
        ranges: defaultdict[str, list[FileRange]] = defaultdict(list)
        records = self._spark.read.parquet(*self._absolute(checksums))
        for row in _ranges(records).collect():
            piece = FileRange(row.topic, row.partition, row.start, row.end, row.records)
            ranges[self._relative(row.path)].append(piece)
        return [
            ArchivedFile(path, size, checksum, sorted(ranges[path], key=lambda r: r.partition))
            for path, (size, checksum) in sorted(checksums.items())
        ]

    def checksums(self, directory: str) -> dict[str, tuple[int, str]]:
        """Size and SHA-256 of the Parquet files below a directory, by their relative paths."""
        reader = self._spark.read.format("binaryFile").option("pathGlobFilter", "*.parquet")
        content = reader.option("recursiveFileLookup", "true").load(directory)
        rows = content.select("path", "length", f.sha2("content", 256).alias("sha256")).collect()
        return {self._relative(row.path): (row.length, row.sha256) for row in rows}

    def frame(self, files: list[ArchivedFile]) -> DataFrame:
        """The records of files, with the columns that were archived."""
        paths = self._absolute(file.path for file in files)
        return self._spark.read.parquet(*paths)

    def _absolute(self, paths: Any) -> list[str]:
        return [f"{self._directory}/{path}" for path in paths]

    def _relative(self, path: str) -> str:
        """Spark names files by URI; what follows the archive's own name is the same in both."""
        return path[path.rindex("/batch=") + 1 :]

    def _path(self, batch_id: int) -> str:
        return f"{self._directory}/{MANIFEST}/batch-{batch_id}.json"


def _ranges(records: DataFrame) -> DataFrame:
    named = records.withColumn("path", f.input_file_name())
    return named.groupBy("path", "topic", "partition").agg(
        f.min("offset").alias("start"),
        (f.max("offset") + 1).alias("end"),
        f.count("*").alias("records"),
    )
