"""A table of Delta's, in the directory of the archive.

    orders/_delta_log/                                      Delta's: which files are the table
    orders/batch=0/date=2026-11-22/hour=03/part-*.parquet   as in an archive of plain Parquet

It has the columns of the source, and `date` and `hour` by which it is partitioned. A batch is one
transaction of the archive's application id with the batch's number as its version, which is
Delta's own way to tell a repeated one.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_odradek.pipelines.bookkeeping.lake.java import java_class, jvm
from pyspark_odradek.pipelines.bookkeeping.manifest import TIME_COLUMNS, ArchivedFile
from pyspark_odradek.pipelines.ends.files import HadoopFiles
from pyspark_odradek.schema import COLUMN_TYPES, spark_schema

_LIBRARY: Final = "Delta Kernel"
_PACKAGE: Final = "io.delta.kernel"
_WRITER: Final = "odradek"


class DeltaTable:
    """The table of one archive."""

    def __init__(self, spark: SparkSession, archive: str, archive_id: str, by: str) -> None:
        """Opens the table, and makes it if it is not there.

        Raises:
            PipelineError: Delta is not there.
            Py4JError: what is there cannot be read.
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
        self._make([*TIME_COLUMNS[by]])

    def append(self, batch_id: int, files: Sequence[ArchivedFile]) -> None:
        """Adds a batch as one transaction, unless it is there.

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

    def _added(self, transaction: Any, file: ArchivedFile) -> Iterator[Any]:
        """The rows of Delta's log that add a file."""
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
            self._table.getLatestSnapshot(self._engine)
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
