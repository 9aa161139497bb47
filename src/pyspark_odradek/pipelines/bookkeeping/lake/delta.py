"""A table of Delta's, in the directory of the archive.

    orders/_delta_log/                                      Delta's: which files are the table
    orders/batch=0/date=2026-11-22/hour=03/part-*.parquet   as in an archive of plain Parquet

It has the columns of the source, and `date` and `hour` by which it is partitioned. A batch is one
transaction of the archive's application id with the batch's number as its version, which is Delta's
own way to recognize a repeated one. A compaction is a transaction that changes no data; if the
table has changed since it was read, it is read again.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_odradek.pipelines.bookkeeping.lake.java import java_class, jvm
from pyspark_odradek.pipelines.bookkeeping.manifest import TIME_COLUMNS, ArchivedFile, path_of
from pyspark_odradek.pipelines.ends.files import HadoopFiles
from pyspark_odradek.pipelines.running.settings import PipelineError
from pyspark_odradek.schema import COLUMN_TYPES, spark_schema

_LIBRARY: Final = "Delta Kernel"
_PACKAGE: Final = "io.delta.kernel"
# A class of it, and its name.
DELTA: Final = (f"{_PACKAGE}.Table", _LIBRARY)
_WRITER: Final = "odradek"
# How often a commit may find that somebody else has made one.
_ATTEMPTS: Final = 20
_CONFLICTS: Final = ("ConcurrentWriteException", "MaxCommitRetryLimitReachedException")


class DeltaTable:
    """The table of one archive."""

    def __init__(self, spark: SparkSession, archive: str, archive_id: str, by: str | None) -> None:
        """Opens the table, and creates it if it does not exist and its partitioning is given.

        Raises:
            PipelineError: Delta's jars are missing.
            Py4JError: the existing table cannot be read.
        """
        self._spark: Final = spark
        self._java: Final[Any] = jvm(spark).java
        self._archive: Final = archive
        self._id: Final = archive_id
        self._files: Final = HadoopFiles(spark)
        self._engine: Final = self._class("defaults.engine.DefaultEngine").create(
            self._files.configuration
        )
        place = self._files.uri(archive)
        self._table: Final = self._class("Table").forPath(self._engine, place)
        if by is None:
            self._latest()
        else:
            self._make([*TIME_COLUMNS[by]])

    def is_partitioned_by(self, by: str) -> bool:
        """Whether its partitions are hours, days, or one for all."""
        return [*self._latest().getPartitionColumnNames()] == [*TIME_COLUMNS[by]]

    def append(self, batch_id: int, files: Sequence[ArchivedFile]) -> None:
        """Adds a batch as one transaction, unless the table has it.

        Raises:
            Py4JJavaError: it cannot be added.
        """
        builder = self._builder("WRITE").withTransactionId(self._engine, self._id, batch_id)
        try:
            transaction = builder.build(self._engine)
            self._commit(
                transaction, [row for file in files for row in self._added(transaction, file)]
            )
        except Py4JJavaError as error:
            if "ConcurrentTransactionException" not in str(error):
                raise

    def paths(self) -> set[str]:
        """Returns the archive's files that are unchanged in the table."""
        return set(self._current(self._latest()))

    def replace(self, old: Sequence[ArchivedFile], new: Sequence[ArchivedFile]) -> None:
        """Replaces files by others with the same records.

        Raises:
            PipelineError: another writer has changed the table.
            Py4JJavaError: it cannot be done.
        """
        for _ in range(_ATTEMPTS):
            transaction = self._builder("WRITE").withMaxRetries(0).build(self._engine)
            try:
                return self._commit(transaction, [*self._replaced(transaction, old, new)])
            except Py4JJavaError as error:
                if not any(name in str(error) for name in _CONFLICTS):
                    raise
        raise PipelineError(f"the table at {self._archive} changes faster than it can be compacted")

    def may_forget(self, _before_ms: int) -> bool:
        """Whether replaced files may be removed: yes, as with Delta's own VACUUM."""
        return True

    def _replaced(
        self, transaction: Any, old: Sequence[ArchivedFile], new: Sequence[ArchivedFile]
    ) -> Iterator[Any]:
        """Returns the rows of Delta's log that remove files and add others, without a change of
        data.
        """
        version = transaction.getReadTableVersion()
        there = self._current(self._table.getSnapshotAsOfVersion(self._engine, version))
        if missing := [file.path for file in old if file.path not in there]:
            raise PipelineError(f"{missing[0]} is not in the table of {self._archive} any more")
        optional, actions = self._java.util.Optional, self._class("internal.actions.SingleAction")
        now = optional.of(self._java.lang.System.currentTimeMillis())
        for file in old:
            yield actions.createRemoveFileSingleAction(there[file.path].toRemoveFileRow(False, now))
        kind, nothing = self._class("internal.actions.AddFile"), optional.empty()
        for row in (row for file in new for row in self._added(transaction, file)):
            added = kind(row.getStruct(actions.ADD_FILE_ORDINAL))
            place, values = added.getPath(), added.getPartitionValues()
            size, modified = added.getSize(), added.getModificationTime()
            schema = kind.SCHEMA_WITHOUT_STATS
            without_change = kind.createAddFileRow(
                schema, place, values, size, modified, False, *[nothing] * 5
            )
            yield actions.createAddFileSingleAction(without_change)

    def _current(self, snapshot: Any) -> dict[str, Any]:
        """Returns the archive's files in a snapshot, except those with deleted rows."""
        kind = self._class("internal.actions.AddFile")
        ordinal = self._class("internal.InternalScanFileUtils").ADD_FILE_ORDINAL
        batches, found = snapshot.getScanBuilder().build().getScanFiles(self._engine), {}
        while batches.hasNext():
            rows = batches.next().getRows()
            while rows.hasNext():
                file = kind(rows.next().getStruct(ordinal))
                path = path_of(file.getPath())
                if path and not file.getDeletionVector().isPresent():
                    found[path] = file
        return found

    def _latest(self) -> Any:
        return self._table.getLatestSnapshot(self._engine)

    def _added(self, transaction: Any, file: ArchivedFile) -> Iterator[Any]:
        """Returns the rows of Delta's log that add a file."""
        state = transaction.getTransactionState(self._engine)
        literal, writing = self._class("expressions.Literal"), self._class("Transaction")
        values = {name: literal.ofString(value) for name, value in file.times.items()}
        context = writing.getWriteContext(self._engine, state, values)
        place = self._files.uri(f"{self._archive}/{file.path}")
        no_statistics = self._java.util.Optional.empty()
        status = self._class("utils.DataFileStatus")(place, file.bytes, 0, no_statistics)
        rows = writing.generateAppendActions(self._engine, state, self._iterator([status]), context)
        while rows.hasNext():
            yield rows.next()

    def _make(self, partition_by: list[str]) -> None:
        try:
            self._latest()
        except Py4JJavaError as error:
            if "TableNotFoundException" not in str(error):
                raise
            of_time = [StructField(name, StringType()) for name in partition_by]
            schema = StructType([*spark_schema(tuple(COLUMN_TYPES)), *of_time])
            types = self._class("internal.types.DataTypeJsonSerDe")
            builder = self._builder("CREATE_TABLE")
            builder = builder.withSchema(
                self._engine, types.deserializeStructType(schema.json())
            ).withPartitionColumns(self._engine, partition_by)
            self._commit(builder.build(self._engine), [])

    def _builder(self, operation: str) -> Any:
        kind = getattr(self._class("Operation"), operation)
        return self._table.createTransactionBuilder(self._engine, _WRITER, kind)

    def _commit(self, transaction: Any, rows: Sequence[Any]) -> None:
        closeable = self._class("utils.CloseableIterable")
        transaction.commit(self._engine, closeable.inMemoryIterable(self._iterator(rows)))

    def _iterator(self, values: Sequence[Any]) -> Any:
        found = self._java.util.ArrayList()
        for value in values:
            found.add(value)
        return self._class("internal.util.Utils").toCloseableIterator(found.iterator())

    def _class(self, name: str) -> Any:
        return java_class(self._spark, f"{_PACKAGE}.{name}", _LIBRARY)
