"""An archive that is a Delta or Iceberg table as well.

    orders/_table.json   {"format": "iceberg", "table": "lake.shop.orders", "id": "...", ...}

The files are those of any archive, and `audit` and `restore` know no difference. When those of a
batch are written down in the manifest they are added to the table, as one commit that carries
the archive's id and the batch's number: a table that has them is left as it is, so a batch that
Spark repeats, at whatever step it was killed, is in the table once.

Tables are written by Delta's and Iceberg's own Java libraries, not by their plug-ins for Spark:
those fit one version of Spark each, and there is none for every version; the libraries fit all.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from pyspark_odradek.pipelines.bookkeeping.lake.delta import DeltaTable
from pyspark_odradek.pipelines.bookkeeping.lake.iceberg import IcebergTable
from pyspark_odradek.pipelines.bookkeeping.lake.java import first_line
from pyspark_odradek.pipelines.bookkeeping.manifest import ArchivedFile
from pyspark_odradek.pipelines.bookkeeping.sealed import Document, read_sealed, seal
from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

PARQUET: Final = "parquet"
FORMATS: Final = (PARQUET, "delta", "iceberg")
_NO_TABLE: Final[Document] = {"format": PARQUET, "table": None}


class LakeTable(Protocol):
    """A table to which the files of batches are added."""

    def append(self, batch_id: int, files: Sequence[ArchivedFile]) -> None:
        """Adds a batch, unless it is there."""
        ...


def table_of(spark: SparkSession, archive: str) -> str | None:
    """What an archive is beside Parquet: `delta` or `iceberg`; None if nothing."""
    form: str = _written(FileSystem(spark), archive)["format"]
    return None if form == PARQUET else form


def open_table(spark: SparkSession, settings: PipelineSettings, archive: str) -> LakeTable | None:
    """The table that the settings ask for, made if it is not there; None for plain Parquet.

    Raises:
        PipelineError: the format's jars or its catalog are missing, or the archive was begun as
            something else.
    """
    wanted = {"format": settings.format or PARQUET, "table": settings.table}
    if wanted["format"] not in FORMATS:
        raise PipelineError(f"an archive is one of {', '.join(FORMATS)}, not {wanted['format']}")
    if (wanted["format"] == "iceberg") != (settings.table is not None):
        raise PipelineError("--table CATALOG.NAMESPACE.NAME goes with --format iceberg")
    files = FileSystem(spark)
    written = _written(files, archive)
    is_same = {name: written[name] for name in wanted} == wanted
    begun = any(name.startswith("batch=") for name in files.names(archive))
    if begun and not is_same:
        raise PipelineError(f"{archive} was begun in another format or table than it is to have")
    if wanted["format"] == PARQUET:
        return None
    if not isinstance(spark, SparkSession):
        raise PipelineError(f"{wanted['format']} needs a session of its own, not Spark Connect")
    archive_id: str = written["id"] if is_same else uuid4().hex
    table = _open(spark, settings, archive, archive_id)
    files.replace(f"{archive}/_table.json", seal({**wanted, "id": archive_id}))
    return table


def _open(
    spark: SparkSession, settings: PipelineSettings, archive: str, archive_id: str
) -> LakeTable:
    by = settings.partition_by
    try:
        if settings.table is None:
            return DeltaTable(spark, archive, archive_id, by)
        return IcebergTable(spark, archive, archive_id, by, settings.table)
    except Py4JError as error:
        name = settings.table or archive
        raise PipelineError(f"table {name} cannot be opened: {first_line(error)}") from error


def _written(files: FileSystem, archive: str) -> dict[str, Any]:
    path = f"{archive.rstrip('/')}/_table.json"
    return read_sealed(files, path) if files.exists(path) else _NO_TABLE
