"""What an archive holds, batch by batch: every file with its offsets, size and checksum.

    orders/_manifest/batch-0.json
        {"batch": 0, "files": [{"path": "batch=0/date=2026-11-22/hour=03/part-....parquet",
                                "bytes": 8121, "sha256": "...",
                                "ranges": [{"topic": "orders", "partition": 0, "start": 0,
                                            "end": 120, "records": 120}]}],
         "sha256": "..."}      of the document itself

Written when the files of the batch are complete, and by renaming, so a batch that is in the
manifest is whole; it is what readers that must be sure go by. The folder begins with an
underscore, which readers of Parquet pass over. Files are read as Spark reads them, on any
file system that it knows.

Compaction puts one document in the place of those of all batches up to its own:

    orders/_manifest/compacted-41.0.json   what batches 0 to 41 are now, in the same form
    orders/_compacted-41.0/batch=41/...    files that are new, until they are moved to batch=41

With this document the compaction has happened. Moving the new files, and removing the old ones
with their documents, is left to `settle`, which goes on where a killed one ended.
"""

import re
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_odradek.pipelines.bookkeeping.sealed import read_sealed, seal
from pyspark_odradek.pipelines.ends.files import FileSystem

MANIFEST: Final = "_manifest"
# The directories of an archive below those of its batches, by how it is cut.
TIME_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "hour": ("date", "hour"),
    "day": ("date",),
    "none": (),
}
_BATCH: Final = re.compile(r"batch-(\d+)\.json")
_COMPACTED: Final = re.compile(r"compacted-(\d+)\.(\d+)\.json")


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
        """What the directories below its batch's say of its records: by name, date and hour."""
        return dict(part.split("=") for part in self.path.split("/")[1:-1])


class Compaction(NamedTuple):
    """Which compaction: of the batches up to one, and the how manieth of these."""

    last_batch: int
    attempt: int

    def __str__(self) -> str:
        return f"compacted-{self.last_batch}.{self.attempt}"


class Manifest:
    """The manifest of one archive."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark = spark
        self._directory = directory.rstrip("/")
        self._files = FileSystem(spark)

    def has(self, batch_id: int) -> bool:
        """Whether a batch is complete."""
        if self._files.exists(self._path(batch_id)):
            return True
        newest = self._newest_compaction()
        return newest is not None and batch_id <= newest.last_batch

    def write(self, batch_id: int, batch_directory: str) -> None:
        """Looks at the files of a batch, and writes them down."""
        found = self.look(batch_directory)
        document = {"batch": batch_id, "files": [asdict(file) for file in found]}
        self._files.replace(self._path(batch_id), seal(document))

    def files(self) -> list[ArchivedFile]:
        """Every file of every complete batch, in order; settles what a compaction has left."""
        self.settle()
        return self._written()

    def batch_files(self, batch_id: int) -> list[ArchivedFile]:
        """The files of a batch that is complete and was not compacted; else none."""
        path = self._path(batch_id)
        return self._entries(path) if self._files.exists(path) else []

    def last_batch(self) -> int:
        """The newest complete batch; -1 if there is none."""
        newest = self._newest_compaction()
        return max([*self._batches(), -1 if newest is None else newest.last_batch])

    def staging(self) -> "Compaction":
        """A compaction of all complete batches: a name that nothing has yet."""
        last, newest = self.last_batch(), self._newest_compaction()
        again = newest is not None and newest.last_batch == last
        return Compaction(last, newest.attempt + 1 if again and newest is not None else 0)

    def path_of(self, compaction: "Compaction") -> str:
        """Where the new files of a compaction are put."""
        return f"{self._directory}/_{compaction}/batch={compaction.last_batch}"

    def forget(self, compaction: "Compaction") -> None:
        """Removes what a compaction has put there and did not come to write down."""
        self._files.remove(f"{self._directory}/_{compaction}")

    def commit(self, compaction: "Compaction", files: list[ArchivedFile]) -> None:
        """Says what all batches up to the compaction's are from now on."""
        document = {"batch": compaction.last_batch, "files": [asdict(file) for file in files]}
        self._files.replace(self._document(compaction), seal(document))
        self.settle()

    def settle(self) -> None:
        """Finishes the newest compaction: its files in their places, and no others.

        May be repeated, and by anybody: what is done already is passed over.
        """
        newest = self._newest_compaction()
        if newest is None:
            return
        superseded = [self._path(number) for number in self._batches(up_to=newest.last_batch)]
        superseded += [self._document(each) for each in self._compactions() if each != newest]
        staged = f"{self._directory}/_{newest}"
        if not superseded and not self._files.exists(staged):
            return
        kept = {file.path for file in self._entries(self._document(newest))}
        for path in sorted(kept):
            if self._files.exists(f"{staged}/{path}"):
                self._files.move(f"{staged}/{path}", f"{self._directory}/{path}")
        for document in superseded:
            for file in self._entries(document):
                if file.path not in kept:
                    self._files.remove(f"{self._directory}/{file.path}")
            self._files.remove(document)
        self._files.remove(staged)
        self._remove_empty_batches(newest.last_batch, kept)

    def _remove_empty_batches(self, last: int, kept: set[str]) -> None:
        used = {path.partition("/")[0] for path in kept}
        for name in self._files.names(self._directory):
            if name.startswith("batch=") and int(name[6:]) < last and name not in used:
                self._files.remove(f"{self._directory}/{name}")

    def _written(self) -> list[ArchivedFile]:
        newest = self._newest_compaction()
        found = [] if newest is None else self._entries(self._document(newest))
        for number in self._batches(above=-1 if newest is None else newest.last_batch):
            found += self._entries(self._path(number))
        return found

    def _entries(self, document: str) -> list[ArchivedFile]:
        found = []
        for entry in read_sealed(self._files, document)["files"]:
            ranges = [FileRange(**piece) for piece in entry.pop("ranges")]
            found.append(ArchivedFile(**entry, ranges=ranges))
        return found

    def _batches(self, *, above: int = -1, up_to: int | None = None) -> list[int]:
        names = self._files.names(f"{self._directory}/{MANIFEST}")
        found = (int(match[1]) for name in names if (match := _BATCH.fullmatch(name)))
        return sorted(n for n in found if n > above and (up_to is None or n <= up_to))

    def _compactions(self) -> list["Compaction"]:
        names = self._files.names(f"{self._directory}/{MANIFEST}")
        found = (_COMPACTED.fullmatch(name) for name in names)
        return sorted(Compaction(int(match[1]), int(match[2])) for match in found if match)

    def _newest_compaction(self) -> "Compaction | None":
        return max(self._compactions(), default=None)

    def _document(self, compaction: "Compaction") -> str:
        return f"{self._directory}/{MANIFEST}/{compaction}.json"

    def look(self, directory: str) -> list[ArchivedFile]:
        """The Parquet files of a batch's directory as they are now, if there is one."""
        checksums = self.checksums(directory) if self._files.exists(directory) else {}
        if not checksums:
            return []
        ranges: defaultdict[str, list[FileRange]] = defaultdict(list)
        root = directory[: directory.rindex("/batch=")]
        records = self._spark.read.parquet(*(f"{root}/{path}" for path in checksums))
        for row in _ranges(records).collect():
            piece = FileRange(row.topic, row.partition, row.start, row.end, row.records)
            ranges[self._relative(row.path)].append(piece)
        return [
            ArchivedFile(path, size, checksum, sorted(ranges[path], key=lambda r: r.partition))
            for path, (size, checksum) in sorted(checksums.items())
        ]

    def checksums(self, directory: str) -> dict[str, tuple[int, str]]:
        """Size and SHA-256 of the Parquet files below a directory, by their relative paths."""
        return self._checksums([directory])

    def checksums_of(self, files: list[ArchivedFile]) -> dict[str, tuple[int, str]]:
        """The same of some files, those that are there."""
        paths = (f"{self._directory}/{file.path}" for file in files)
        return self._checksums([path for path in paths if self._files.exists(path)])

    def _checksums(self, paths: list[str]) -> dict[str, tuple[int, str]]:
        if not paths:
            return {}
        reader = self._spark.read.format("binaryFile").option("pathGlobFilter", "*.parquet")
        content = reader.option("recursiveFileLookup", "true").load(paths)
        rows = content.select("path", "length", f.sha2("content", 256).alias("sha256")).collect()
        return {self._relative(row.path): (row.length, row.sha256) for row in rows}

    def frame(self, files: list[ArchivedFile]) -> DataFrame:
        """The records of files, with the columns that were archived."""
        paths = [f"{self._directory}/{file.path}" for file in files]
        return self._spark.read.parquet(*paths)

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
