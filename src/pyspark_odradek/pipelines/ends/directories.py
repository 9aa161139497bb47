"""The owner of a directory, and tables that are written there without a stream.

Pipelines continue in the directory of an earlier run. They must not mix with, or remove, the files
of another pipeline, another topic or another program:

    orders/_odradek.json   {"pipeline": "dedup", "topic": "orders", "by": "key"}

Some options define what a row means: a directory keeps those it began with. A mark that is older
than such an option gets it from the next run, since the value for the existing rows is unknown.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from pyspark_odradek.pipelines.ends.files import FileSystem, whole_name
from pyspark_odradek.pipelines.ends.owners import LOCK, READERS, Lock
from pyspark_odradek.pipelines.ends.parquet import read_parquet, write_parquet
from pyspark_odradek.pipelines.ends.schemas import schema_of
from pyspark_odradek.pipelines.ends.tables import MANIFEST, Number, Snapshot, Table
from pyspark_odradek.pipelines.running.settings import PipelineError

MARK: Final = "_odradek.json"
# A run that failed at its start may have left these, and nothing worth keeping.
_LEFT: Final = {MARK, f".{MARK}.crc", LOCK, READERS}


class Mark:
    """The owner of a directory: a pipeline and a topic, with the options that define its rows."""

    def __init__(self, pipeline: str, topic: str, options: Mapping[str, str | None]) -> None:
        self._pipeline: Final = pipeline
        self._topic: Final = topic
        self._options: Final = options

    def __str__(self) -> str:
        return f"{self._pipeline} of the topic {self._topic}"

    def text(self) -> str:
        """Returns the mark as it is written to a directory."""
        return json.dumps(self._facts())

    def is_in(self, text: str) -> bool:
        """Whether the mark of a directory contains all of this one."""
        found: dict[str, str | None] = json.loads(text)
        return self._facts().items() <= found.items()

    def _facts(self) -> dict[str, str | None]:
        return {"pipeline": self._pipeline, "topic": self._topic, **self._options}

    def check(self, directory: str, text: str, *, has_rows: bool = True) -> None:
        """Compares it with the mark of a directory, and the options too if there are rows.

        Raises:
            PipelineError: the directory has another owner, or was begun with other options.
        """
        found = json.loads(text)
        other = Mark(found.pop("pipeline"), found.pop("topic"), found)
        if str(other) != str(self):
            raise PipelineError(f"{directory} is of {other}; choose another directory")
        if has_rows:
            self._check_options(directory, found)

    def _check_options(self, directory: str, found: Mapping[str, str | None]) -> None:
        for name, now in self._options.items():
            # One that is older than an option says nothing of it yet.
            was = found.get(name, now)
            if was != now:
                raise PipelineError(
                    f"{directory} was begun with {_said(name, was)}, and not with "
                    f"{_said(name, now)}: say the same again, or choose another directory"
                )


def _said(option: str, value: str | None) -> str:
    flag = f"--{option.replace('_', '-')}"
    return f"no {flag}" if value is None else f"{flag} {value}"


class ClaimedLock:
    """The writer's lock of a directory for a pipeline of a topic; a context that releases it.

    The mark is written under the lock. So it is changed only if the directory has nothing but
    leftovers of a failed start, and that run has ended. With a `part` the lock covers only that
    subdirectory; others may write to their parts.
    """

    def __init__(
        self,
        spark: SparkSession,
        directory: str,
        pipeline: str,
        topic: str,
        part: str = "",
        options: Mapping[str, str | None] | None = None,
    ) -> None:
        files = FileSystem(spark)
        self._files: Final = files
        self._directory: Final = directory
        self._place: Final = f"{directory}/{part}" if part else directory
        self._mark: Final = Mark(pipeline, topic, options or {})
        self._whole: Final = Lock(files, directory)
        self._part: Final = Lock(files, self._place) if part else None

    def claim(self) -> None:
        """Marks a new directory as this pipeline's and topic's, or checks the mark.

        Raises:
            PipelineError: it has another owner, holds unknown files, was begun with other options,
                or another run is writing to it.
        """
        if not self._is_claimed():
            with self._whole:
                self._put_mark()

    def __enter__(self) -> "ClaimedLock":
        if self._part is None:
            # First without the lock, which would leave its files in another owner's directory.
            self._is_claimed()
            with ExitStack() as undone:
                undone.enter_context(self._whole)
                self._put_mark()
                undone.pop_all()
        elif self._is_claimed():
            self._part.__enter__()
        else:
            with self._whole:
                self._put_mark()
                # From now on the directory has more than a failed start leaves.
                self._part.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        (self._part or self._whole).__exit__(*raised)

    def is_taken_over(self) -> bool:
        """Whether another owner has taken the lock because it considered this one dead."""
        return (self._part or self._whole).is_taken_over()

    def _put_mark(self) -> None:
        if not self._is_claimed():
            self._files.replace(f"{self._directory}/{MARK}", self._mark.text())

    def _is_claimed(self) -> bool:
        """Checks that a directory has no other owner, and returns whether its mark is final.

        Raises:
            PipelineError: it has another owner, or holds unknown files.
        """
        names = set(self._files.names(self._directory))
        others = sorted(name for name in names if whole_name(name) not in _LEFT)
        if MARK in names and others:
            found = self._files.read(f"{self._directory}/{MARK}")
            has_rows = MANIFEST in self._files.names(self._place)
            self._mark.check(self._directory, found, has_rows=has_rows)
            return self._mark.is_in(found)
        # Hidden files too: they may matter to somebody.
        if others:
            raise PipelineError(
                f"{self._directory} holds {others[0]}, which is not of {self._mark}; "
                "choose another directory, or empty it"
            )
        return False


def put_table(
    spark: SparkSession,
    table: DataFrame,
    directory: str,
    lock: ClaimedLock,
    *,
    is_whole: bool = True,
) -> None:
    """Writes a table as the next batch of a directory, under its lock: it replaces the rows there
    if it `is_whole`, else it adds to them.

    Raises:
        PipelineError: the directory has another owner, or another run is writing to it.
    """
    written = Table(FileSystem(spark), directory)
    with lock:
        number = Number(written.last_batch() + 1)
        place = written.place_of(number, uuid4().hex[:8])
        write_parquet(table, place)
        document = {"files": written.staged(place), "complete": is_whole}
        written.commit(number, document)
        if is_whole:
            written.sweep()
        else:
            written.clear(number.batch, document)


def read_table(spark: SparkSession, directory: str, columns: str | None = None) -> DataFrame | None:
    """Reads the table of a pipeline in a directory, by its manifest; None if nothing was committed.
    With `columns` (`n LONG, name STRING`) it reads only these; others need not go together.

    The end of the last query on it is unknown, so its files stay until this process ends: a process
    that runs for long, beside compactions, uses `reading_table`. A reader of Parquet that lists the
    directory itself also sees files that are not committed, or about to be removed.

    Raises:
        PipelineError: its manifest is damaged, or its batches do not go together.
    """
    table = Table(FileSystem(spark), directory)
    return _frame(spark, directory, table.snapshot_for_process(), columns)


@contextmanager
def reading_table(spark: SparkSession, directory: str) -> Iterator[DataFrame | None]:
    """The same, of which the files stay until the context ends.

    Raises:
        PipelineError: as of `read_table`.
    """
    with Table(FileSystem(spark), directory).reading() as snapshot:
        yield _frame(spark, directory, snapshot)


def _frame(
    spark: SparkSession, directory: str, snapshot: Snapshot, columns: str | None = None
) -> DataFrame | None:
    if not snapshot.documents:
        return None
    by_case = str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"
    # The schema of a batch without rows need not go with those of others.
    documents = [each for each in snapshot.documents if each["files"]] or snapshot.documents[-1:]
    schema = columns or schema_of(documents, by_case=by_case)
    paths = [f"{directory}/{file['path']}" for file in snapshot.files]
    if not paths:
        return None if schema is None else spark.createDataFrame([], schema)
    return read_parquet(spark, paths, schema)
