"""An archive that is also a Delta or Iceberg table.

    orders/_table.json   {"format": "iceberg", "table": "lake.shop.orders", "id": "...", ...}

The files are the same as in any archive, and `audit` and `restore` see no difference. When the
manifest has the files of a batch, one commit with the archive's id and the batch's number adds them
to the table: a table that has them already is left alone, so a batch that Spark repeats, at
whatever step it was killed, is in the table once. A compaction is committed in the manifest first
and then to the table; if it is killed in between, the next one commits it. The files that it
replaced stay for a week, for readers of older versions of the table.

Delta's and Iceberg's own Java libraries write the tables, not their plug-ins for Spark: each
plug-in fits one version of Spark, and some versions have none; the libraries fit all.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from pyspark_odradek.pipelines.bookkeeping.lake.delta import DELTA, DeltaTable
from pyspark_odradek.pipelines.bookkeeping.lake.iceberg import ICEBERG, IcebergTable
from pyspark_odradek.pipelines.bookkeeping.lake.java import first_line, java_class
from pyspark_odradek.pipelines.bookkeeping.manifest import ArchivedFile
from pyspark_odradek.pipelines.ends.batches import Output
from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.ends.sealed import Document, read_sealed, seal
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

PARQUET: Final = "parquet"
FORMATS: Final = (PARQUET, "delta", "iceberg")
_LIBRARIES: Final = {"delta": DELTA, "iceberg": ICEBERG}
_NO_TABLE: Final[Document] = {"format": PARQUET, "table": None}


class LakeTable(Protocol):
    """A table to which the files of batches are added."""

    def is_partitioned_by(self, by: str) -> bool:
        """Whether its partitions are hours, days, or one for all."""
        ...

    def append(self, batch_id: int, files: Sequence[ArchivedFile]) -> None:
        """Adds a batch, unless the table has it."""
        ...

    def paths(self) -> set[str]:
        """Returns the archive's files that are unchanged in the table."""
        ...

    def replace(self, old: Sequence[ArchivedFile], new: Sequence[ArchivedFile]) -> None:
        """Replaces files by others with the same records.

        Raises:
            PipelineError: another writer has changed the table.
        """
        ...

    def may_forget(self, before_ms: int) -> bool:
        """Whether files that were replaced before a time may be removed."""
        ...


def begun_table(spark: SparkSession, archive: str) -> LakeTable | None:
    """Returns the lake table of an archive; None if it is plain Parquet.

    Raises:
        PipelineError: the format's jars or its catalog are missing, or the table is gone.
    """
    written = _written(FileSystem(spark), archive)
    if written["format"] == PARQUET:
        return None
    _refuse_connect(spark, written["format"])
    return _open(spark, archive, written["id"], None, written["table"])


def refuse_unusable(spark: SparkSession, settings: PipelineSettings, archive: str) -> None:
    """Checks that an archive can be made as the settings ask, before anything is created.

    Raises:
        PipelineError: the format's jars are missing, or the archive was begun as something else.
    """
    wanted = _wanted(settings)
    if wanted["format"] not in FORMATS:
        raise PipelineError(f"an archive is one of {', '.join(FORMATS)}, not {wanted['format']}")
    if (wanted["format"] == "iceberg") != (settings.table is not None):
        raise PipelineError("--table CATALOG.NAMESPACE.NAME goes with --format iceberg")
    files = FileSystem(spark)
    begun = any(name.startswith("batch=") for name in files.names(archive))
    if begun and not _is_same(_written(files, archive), wanted):
        raise PipelineError(f"{archive} was begun in another format or table than it is to have")
    if wanted["format"] != PARQUET:
        _refuse_connect(spark, wanted["format"])
        java_class(spark, *_LIBRARIES[wanted["format"]])


def open_table(spark: SparkSession, settings: PipelineSettings, output: Output) -> LakeTable | None:
    """Opens or creates the table that the settings ask for; None for plain Parquet.

    A run creates it under the lock for writing: two runs at once would write different archive ids,
    by which a run knows which batches the table has.

    Raises:
        PipelineError: the format's catalog is missing, the table cannot be opened or has other
            partitions, or somebody else is writing to the archive.
    """
    if _wanted(settings)["format"] == PARQUET:
        return None
    with output.alone():
        return _opened(spark, settings, output.table.directory)


def _opened(spark: SparkSession, settings: PipelineSettings, archive: str) -> LakeTable:
    wanted = _wanted(settings)
    files = FileSystem(spark)
    written = _written(files, archive)
    archive_id: str = written["id"] if _is_same(written, wanted) else uuid4().hex
    table = _open(spark, archive, archive_id, settings.partition_by, settings.table)
    if not table.is_partitioned_by(settings.partition_by):
        raise PipelineError(
            f"table {settings.table or archive} was created with another --partition-by than "
            f"{settings.partition_by}: say the same again, or archive to another directory"
        )
    files.replace(f"{archive}/_table.json", seal({**wanted, "id": archive_id}))
    return table


def _open(
    spark: SparkSession, archive: str, archive_id: str, by: str | None, name: str | None
) -> LakeTable:
    try:
        if name is None:
            return DeltaTable(spark, archive, archive_id, by)
        return IcebergTable(spark, archive, archive_id, by, name)
    except Py4JError as error:
        raise PipelineError(
            f"table {name or archive} cannot be opened: {first_line(error)}"
        ) from error


def _refuse_connect(spark: SparkSession, form: str | None) -> None:
    if not isinstance(spark, SparkSession):
        raise PipelineError(f"{form} needs a local session, not Spark Connect")


def _wanted(settings: PipelineSettings) -> Document:
    return {"format": settings.format or PARQUET, "table": settings.table}


def _is_same(written: Document, wanted: Document) -> bool:
    return {name: written[name] for name in wanted} == wanted


def _written(files: FileSystem, archive: str) -> dict[str, Any]:
    path = f"{archive.rstrip('/')}/_table.json"
    return read_sealed(files, path) if files.exists(path) else _NO_TABLE
