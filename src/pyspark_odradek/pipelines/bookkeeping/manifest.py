"""The manifest of an archive, batch by batch: every file with its offsets, size and checksum.

    orders/_manifest/batch-0.json
        {"batch": 0, "files": [{"path": "batch=0-9f2c11ab/date=2026-11-22/hour=03/part-....parquet",
                                "bytes": 8121, "sha256": "...",
                                "ranges": [{"topic": "orders", "partition": 0, "start": 0,
                                            "end": 120, "records": 120}]}],
         "offsets": ["{\\"orders\\": {\\"0\\": 120}}"],      up to which the topic was read
         "sha256": "..."}      of the document itself

It is the manifest of every table (`tables`), with more about each file. A compaction replaces the
documents of all batches up to its own with one. The replaced files stay until nobody reads them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from uuid import UUID, uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek.tables.plan.offsets import PartitionOffsets
from pyspark_odradek.pipelines.bookkeeping.checksums import checksums_of
from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.ends.owners import Lock
from pyspark_odradek.pipelines.ends.parquet import read_parquet
from pyspark_odradek.pipelines.ends.sealed import Document
from pyspark_odradek.pipelines.ends.tables import Number, Snapshot, Table
from pyspark_odradek.pipelines.running.jobs import OnceJob, Outcome
from pyspark_odradek.pipelines.running.settings import PipelineError
from pyspark_odradek.progress import read_offsets, read_topic_ids
from pyspark_odradek.schema import COLUMN_TYPES, spark_schema

# The directories of an archive below those of its batches, by how it is cut.
TIME_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "hour": ("date", "hour"),
    "day": ("date",),
    "none": (),
}


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

    @property
    def times(self) -> dict[str, str]:
        """The dates of records by the directories below their batch's: by name, date and hour."""
        return dict(part.split("=") for part in self.path.split("/")[1:-1])


@dataclass(frozen=True)
class Archived:
    """A snapshot of an archive: its files, and the last batch that they cover."""

    files: list[ArchivedFile]
    snapshot: Snapshot

    @property
    def ends(self) -> PartitionOffsets:
        """The end of the read part of each partition."""
        found: PartitionOffsets = {}
        for text in self.snapshot.documents[-1]["offsets"]:
            found.update(read_offsets(text))
        return found


class Manifest:
    """The manifest of one archive."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark: Final = spark
        self._system: Final = FileSystem(spark)
        self.table: Final = Table(self._system, directory)

    @contextmanager
    def reading(self) -> Iterator[Archived]:
        """A snapshot of the archive; its files are kept while it is read.

        Raises:
            PipelineError: there is none, or its manifest is damaged, or of another table.
        """
        if self.table.last_batch() < 0:
            raise PipelineError(f"{self.table.directory} is no archive: it has no manifest")
        with self.table.reading() as snapshot:
            if not _is_of_archive(snapshot):
                raise PipelineError(
                    f"{self.table.directory} is no archive: it is a table of another pipeline"
                )
            yield Archived(entries(snapshot.files), snapshot)

    def compacting(self) -> Lock:
        """The lock for compactions."""
        return Lock(self._system, self.table.directory, "compact")

    def batch_files(self, batch_id: int) -> list[ArchivedFile]:
        """Returns the files of a batch that is committed and was not compacted; else none."""
        document = self.table.document(batch_id) if batch_id >= 0 else None
        return [] if document is None else entries(document["files"])

    def check_topics(self, batch_id: int, offsets: Iterable[str]) -> None:
        """Checks that a batch has the topic ids of the one before: a recreated topic has the same
        offsets for other records.

        Raises:
            PipelineError: it has not.
        """
        if batch_id == 0:
            return
        before = self.table.document(batch_id - 1) or self.table.snapshot().documents[-1]
        known, now = _topic_ids(before["offsets"]), _topic_ids(offsets)
        for topic, topic_id in known.items():
            if now.get(topic, topic_id) != topic_id:
                raise PipelineError(
                    f"{topic} was deleted and recreated: archive it to another directory than "
                    f"{self.table.directory}"
                )

    def superseded_files(self, snapshot: Snapshot) -> list[ArchivedFile]:
        """Returns the files of batches and compactions that a later compaction has replaced."""
        names = snapshot.superseded
        return entries(file for name in names for file in self.table.files_of(name))

    def new_place(self, number: Number) -> str:
        """The directory for the files of this attempt at a compaction."""
        return self.table.place_of(number, uuid4().hex[:8])

    def commit_compaction(
        self, number: Number, archived: Archived, files: Sequence[ArchivedFile]
    ) -> None:
        """Commits a compaction, which replaces all batches up to its own.

        Raises:
            PipelineError: another run has committed one.
        """
        offsets = archived.snapshot.documents[-1]["offsets"]
        found = [asdict(file) for file in files]
        document = {"files": found, "offsets": offsets, "at": self.table.clock.wall_ms()}
        self.table.commit(number, document)

    def look(self, listed: Iterable[Document]) -> list[ArchivedFile]:
        """Returns listed files, with their checksums and content."""
        files = {file["path"]: file["bytes"] for file in listed}
        if not files:
            return []
        ranges: defaultdict[str, list[FileRange]] = defaultdict(list)
        for row in _ranges(self._read(files)).collect():
            piece = FileRange(row.topic, row.partition, row.start, row.end, row.records)
            ranges[path_of(row.path)].append(piece)
        checksums = self.checksums(files)
        return [
            ArchivedFile(path, *checksums[path], sorted(ranges[path], key=lambda r: r.partition))
            for path in sorted(files)
        ]

    def checksums(self, paths: Iterable[str]) -> dict[str, tuple[int, str]]:
        """Returns size and SHA-256 of the archive's files that exist, by their relative paths."""
        start = len(self.table.directory) + 1
        found = checksums_of(self._spark, (f"{self.table.directory}/{path}" for path in paths))
        return {path[start:]: checksum for path, checksum in found.items()}

    def frame(self, files: Iterable[ArchivedFile]) -> DataFrame:
        """The records of files, with the columns that were archived."""
        if paths := [file.path for file in files]:
            return self._read(paths)
        # Spark reads a schema from files only.
        return self._spark.createDataFrame([], spark_schema(tuple(COLUMN_TYPES)))

    def _read(self, paths: Iterable[str]) -> DataFrame:
        return read_parquet(self._spark, (f"{self.table.directory}/{path}" for path in paths))


def on_archive(
    spark: SparkSession, directory: str, work: Callable[[Manifest, Archived], Outcome]
) -> OnceJob:
    """A job on a snapshot of an archive, whose files are kept until the job ends."""

    def run() -> Outcome:
        manifest = Manifest(spark, directory)
        with manifest.reading() as archived:
            return work(manifest, archived)

    return OnceJob(run)


def path_of(uri: str) -> str:
    """Returns the relative path of an archive's file; empty if it is not one.

    The part after the archive's name is the same in a path and in a URI.
    """
    at = f"/{uri}".rfind("/batch=")
    return "" if at < 0 else uri[at:]


def entries(files: Iterable[Document]) -> list[ArchivedFile]:
    """Files as documents have them."""
    found = []
    for entry in files:
        values: dict[str, Any] = {**entry, "ranges": [FileRange(**r) for r in entry["ranges"]]}
        found.append(ArchivedFile(**values))
    return found


def _is_of_archive(snapshot: Snapshot) -> bool:
    # Batches of `decode` may have no files at all; they have a schema.
    has_schema = any("schema" in document for document in snapshot.documents)
    return not has_schema and all("ranges" in file for file in snapshot.files)


def _topic_ids(offsets: Iterable[str]) -> dict[str, UUID]:
    """The ids of topics in the offsets of a batch, source by source."""
    return {topic: each for text in offsets for topic, each in read_topic_ids(text).items()}


def _ranges(records: DataFrame) -> DataFrame:
    named = records.withColumn("path", f.input_file_name())
    return named.groupBy("path", "topic", "partition").agg(
        f.min("offset").alias("start"),
        (f.max("offset") + 1).alias("end"),
        f.count("*").alias("records"),
    )
