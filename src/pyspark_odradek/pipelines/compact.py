"""`compact`: the small files of an archive become few large ones.

A topic that is archived every minute has sixty files an hour. Of each hour the files that are
smaller than a file should be are written anew as one, or as many as that makes; what is large
enough stays as it is. The archive may be written to meanwhile: what is compacted are batches that
are complete.

It may be killed at any moment. The manifest is switched by one rename, and what follows is
finished by whoever opens the archive next. Readers of Parquet that do not go by the manifest see
records twice from the moment when new files are in their places until old ones are gone.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from pyspark.sql import SparkSession

from pyspark_odradek.pipelines.archive import arranged, records_per_file
from pyspark_odradek.pipelines.audit import compare_files, records_by_partition
from pyspark_odradek.pipelines.bookkeeping.lake.table import table_of
from pyspark_odradek.pipelines.bookkeeping.manifest import ArchivedFile, Compaction, Manifest
from pyspark_odradek.pipelines.running.jobs import OnceJob, Outcome
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

# A file that is nearly as large as it should be is not worth writing again.
_LARGE_ENOUGH: Final = 0.75


def build(spark: SparkSession, settings: PipelineSettings) -> OnceJob:
    """The compaction as a job.

    Raises:
        PipelineError: no archive is named, or one that is a table of a lake.
    """
    archive = settings.source
    if archive is None:
        raise PipelineError("compact needs the directory of an archive (--from DIR)")
    if form := table_of(spark, archive):
        raise PipelineError(f"{archive} is an archive with --format {form}: its files are a table")
    return OnceJob(lambda: compact(Manifest(spark, archive), settings.file_bytes))


def compact(manifest: Manifest, file_bytes: int) -> Outcome:
    """Puts small files together; there are no findings, only errors.

    Raises:
        PipelineError: there is no archive, or a file that would be put together is damaged.
    """
    files = manifest.files()
    if not files:
        raise PipelineError("there is no archive: it has no manifest")
    small = worth_it(files, file_bytes)
    facts: dict[str, object] = {"files before": len(files), "files after": len(files)}
    if small:
        for finding in compare_files(small, manifest.checksums_of(small)):
            raise PipelineError(f"the archive is damaged: {finding}")
        compaction = manifest.staging()
        new = _written(manifest, compaction, small, file_bytes)
        if records_by_partition(new) != records_by_partition(small):
            raise PipelineError("records were lost or doubled while files were put together")
        taken = {file.path for file in small}
        manifest.commit(compaction, [file for file in files if file.path not in taken] + new)
        facts["files after"] = len(files) - len(small) + len(new)
    return Outcome(facts=facts)


def worth_it(files: Iterable[ArchivedFile], file_bytes: int) -> list[ArchivedFile]:
    """The files that are better put together: of an hour that then has fewer."""
    by_hour: defaultdict[str, list[ArchivedFile]] = defaultdict(list)
    for file in files:
        if file.bytes < file_bytes * _LARGE_ENOUGH:
            by_hour[_hour_of(file)].append(file)
    found = []
    for _, small in sorted(by_hour.items()):
        if len(small) > -(-sum(file.bytes for file in small) // file_bytes):
            found += small
    return found


def _written(
    manifest: Manifest, compaction: Compaction, small: list[ArchivedFile], file_bytes: int
) -> list[ArchivedFile]:
    manifest.forget(compaction)
    columns = [part.partition("=")[0] for part in _hour_of(small[0]).split("/") if part]
    limit = records_per_file(small, file_bytes)
    target = manifest.path_of(compaction)
    writer = arranged(manifest.frame(small), columns, limit).write.mode("overwrite")
    writer.option("maxRecordsPerFile", limit).partitionBy(*columns).parquet(target)
    return manifest.look(target)


def _hour_of(file: ArchivedFile) -> str:
    """`date=2026-11-22/hour=03`, or what else lies between the batch and the file."""
    return "/".join(file.path.split("/")[1:-1])
