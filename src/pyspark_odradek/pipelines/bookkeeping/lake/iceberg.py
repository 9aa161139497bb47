"""A table of Iceberg's, in a catalog of the session.

    spark.sql.catalog.lake.type=hadoop   ... .warehouse=/data/lake     table lake.shop.orders

The session's settings define the catalog, as for Iceberg's plug-in. The table has the columns of
the source and is partitioned by the hours or days of `timestamp`, as Iceberg does: a query for a
time reads only its files. A batch is one snapshot; that the archive's batches up to it are in the
table is a property of the table, changed in the same commit, so it outlives snapshots that are
expired. A compaction is a rewrite, which Iceberg refuses if a file that it replaces is gone.
"""

import json
from collections.abc import Sequence
from datetime import date
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pyspark_odradek.pipelines.bookkeeping.lake.java import java_class
from pyspark_odradek.pipelines.bookkeeping.manifest import ArchivedFile, path_of
from pyspark_odradek.pipelines.ends.files import HadoopFiles
from pyspark_odradek.pipelines.running.settings import PipelineError

_LIBRARY: Final = "Iceberg"
_PACKAGE: Final = "org.apache.iceberg"
# A class of it, and its name.
ICEBERG: Final = (f"{_PACKAGE}.CatalogUtil", _LIBRARY)
_EPOCH: Final = date(1970, 1, 1)
_HALF: Final = 1 << 31
# After so many the calendar is the same again.
_DAYS_OF_400_YEARS: Final = 146_097
# In the form of Iceberg's own metadata. The ids are this table's; files are read by names.
_HEADER: Final = {
    "type": "struct",
    "fields": [
        {"id": 10, "name": "key", "required": False, "type": "string"},
        {"id": 11, "name": "value", "required": False, "type": "binary"},
    ],
}
_HEADERS: Final = {
    "type": "list",
    "element-id": 9,
    "element-required": False,
    "element": _HEADER,
}
_COLUMNS: Final[tuple[tuple[str, object], ...]] = (
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "long"),
    ("timestamp", "timestamptz"),
    ("timestampType", "int"),
    ("headers", _HEADERS),
)
# By how the archive's directories are cut.
_TRANSFORMS: Final = ("hour", "day")
_ATTEMPTS: Final = 5


class IcebergTable:
    """The table of one archive."""

    def __init__(
        self, spark: SparkSession, archive: str, archive_id: str, by: str | None, name: str
    ) -> None:
        """Opens the table, and creates it if it does not exist and its partitioning is given.

        Raises:
            PipelineError: Iceberg's jars or the catalog are missing.
            Py4JError: the catalog cannot be used.
        """
        self._spark: Final = spark
        self._files: Final = HadoopFiles(spark)
        self._archive: Final = archive
        self._marker: Final = f"odradek.archive.{archive_id}"
        catalog_name, _, identifier = name.partition(".")
        if not identifier:
            raise PipelineError(f"{name!r} is no table such as CATALOG.NAMESPACE.NAME")
        self._table: Final = self._open(_catalog(spark, catalog_name), identifier, by)

    def is_partitioned_by(self, by: str) -> bool:
        """Whether its partitions are hours, days, or one for all."""
        wanted = [f"timestamp_{by}"] if by in _TRANSFORMS else []
        return [field.name() for field in self._table.spec().fields()] == wanted

    def append(self, batch_id: int, files: Sequence[ArchivedFile]) -> None:
        """Adds a batch as one snapshot, unless the table has it.

        Raises:
            Py4JJavaError: it cannot be added.
        """
        for attempt in range(_ATTEMPTS):
            self._table.refresh()
            if not files or int(self._table.properties().get(self._marker) or -1) >= batch_id:
                return
            try:
                self._commit(batch_id, files)
            except Py4JJavaError as error:
                # Somebody else has added something since it was asked: perhaps this batch.
                if "ValidationException" not in str(error) or attempt == _ATTEMPTS - 1:
                    raise

    def paths(self) -> set[str]:
        """Returns the archive's files that are unchanged in the table."""
        self._table.refresh()
        return set(self._current())

    def replace(self, old: Sequence[ArchivedFile], new: Sequence[ArchivedFile]) -> None:
        """Replaces files by others with the same records.

        Raises:
            PipelineError: another writer has changed the table.
            Py4JJavaError: it cannot be done.
        """
        self._table.refresh()
        there = self._current()
        if missing := [file.path for file in old if file.path not in there]:
            raise PipelineError(f"{missing[0]} is not in the table of {self._archive} any more")
        rewrite = self._table.newRewrite()
        rewrite.validateFromSnapshot(self._table.currentSnapshot().snapshotId())
        for file in old:
            rewrite.deleteFile(there[file.path])
        for file in new:
            rewrite.addFile(self._data_file(file))
        rewrite.commit()

    def may_forget(self, before_ms: int) -> bool:
        """Whether files that were replaced before may be removed: when no snapshot has them any
        more.

        Older snapshots expire; branches and tags keep theirs.
        """
        self._table.expireSnapshots().expireOlderThan(before_ms).commit()
        return bool(self._table.refs().size() <= 1)

    def _current(self) -> dict[str, Any]:
        """Returns the archive's files in the table, except those with deleted rows."""
        tasks, found = self._table.newScan().planFiles().iterator(), {}
        while tasks.hasNext():
            task = tasks.next()
            path = path_of(task.file().location())
            if path and task.deletes().isEmpty():
                found[path] = task.file()
        return found

    def _commit(self, batch_id: int, files: Sequence[ArchivedFile]) -> None:
        transaction = self._table.newTransaction()
        # A plain append would be put upon whatever is there by then; this one would rather fail.
        addition = transaction.newOverwrite()
        snapshot = self._table.currentSnapshot()
        if snapshot is not None:
            addition.validateFromSnapshot(snapshot.snapshotId())
        everything = self._class("expressions.Expressions").alwaysTrue()
        addition.conflictDetectionFilter(everything).validateNoConflictingData()
        for file in files:
            addition.addFile(self._data_file(file))
        addition.commit()
        transaction.updateProperties().set(self._marker, str(batch_id)).commit()
        transaction.commitTransaction()

    def _data_file(self, file: ArchivedFile) -> Any:
        content = self._table.io().newInputFile(self._files.uri(f"{self._archive}/{file.path}"))
        builder = self._class("DataFiles").builder(self._table.spec()).withInputFile(content)
        config = self._class("MetricsConfig").forTable(self._table)
        names = self._class("mapping.MappingUtil").create(self._table.schema())
        metrics = self._class("parquet.ParquetUtil").fileMetrics(content, config, names)
        if hour_or_day := time_of(file):
            builder.withPartitionPath(hour_or_day)
        return builder.withFormat("parquet").withMetrics(metrics).build()

    def _open(self, catalog: Any, identifier: str, by: str | None) -> Any:
        place = self._class("catalog.TableIdentifier").parse(identifier)
        if by is None or catalog.tableExists(place):
            return catalog.loadTable(place)
        schema = self._class("SchemaParser").fromJson(_schema())
        spec = self._class("PartitionSpec").builderFor(schema)
        if by in _TRANSFORMS:
            getattr(spec, by)("timestamp")
        mapping = self._class("mapping.MappingUtil").create(schema)
        names = self._class("mapping.NameMappingParser").toJson(mapping)
        properties = {"schema.name-mapping.default": names}
        return catalog.createTable(place, schema, spec.build(), properties)

    def _class(self, name: str) -> Any:
        return java_class(self._spark, f"{_PACKAGE}.{name}", _LIBRARY)


def time_of(file: ArchivedFile) -> str:
    """Returns the hour of a file, as Iceberg counts them, or its day; empty without either."""
    times = file.times
    if not times:
        return ""
    if "hour" not in times:
        return f"timestamp_day={times['date']}"
    hours = _days(times["date"]) * 24 + int(times["hour"])
    # Iceberg keeps 32 bits of them.
    return f"timestamp_hour={(hours + _HALF) % (2 * _HALF) - _HALF}"


def _days(text: str) -> int:
    """Returns the days from 1970 to a date of any year; Python's dates end with the year 9999."""
    year, month, day = map(int, text.rsplit("-", 2))
    times, years = divmod(year - _EPOCH.year, 400)
    return (date(_EPOCH.year + years, month, day) - _EPOCH).days + times * _DAYS_OF_400_YEARS


def _catalog(spark: SparkSession, name: str) -> Any:
    library = java_class(spark, f"{_PACKAGE}.CatalogUtil", _LIBRARY)
    prefix = f"spark.sql.catalog.{name}."
    settings = {
        key.removeprefix(prefix): value
        for key, value in spark.conf.getAll.items()
        if key.startswith(prefix)
    }
    if not settings:
        raise PipelineError(
            f"there is no catalog {name}: say with --conf {prefix}type and the like where it is"
        )
    return library.buildIcebergCatalog(name, settings, HadoopFiles(spark).configuration)


def _schema() -> str:
    fields = [
        {"id": number, "name": name, "required": False, "type": kind}
        for number, (name, kind) in enumerate(_COLUMNS, 1)
    ]
    return json.dumps({"type": "struct", "schema-id": 0, "fields": fields})
