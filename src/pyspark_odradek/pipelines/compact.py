"""`compact`: rewrites the small files of an archive as a few large ones.

A topic that is archived every minute has sixty files an hour. For each hour, files that are too
small are rewritten as one file, or as few as their size allows; files that are large enough stay.
The archive may be written and read meanwhile: a compaction takes the files that existed when it
began, and the old files stay as long as readers need them.

It may be killed at any moment: one document commits it (`tables`), and the next run removes
leftovers. Parquet readers that ignore the manifest see records twice while both new and old files
exist.

An archive that is also a lake table is compacted there, too, after that: as one commit that removes
the old files and adds the new ones. Readers of an older version of the table find the old files for
a week.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from pyspark_odradek.pipelines.archive import arranged
from pyspark_odradek.pipelines.audit import compare_files, records_by_partition
from pyspark_odradek.pipelines.bookkeeping.lake.table import LakeTable, begun_table
from pyspark_odradek.pipelines.bookkeeping.manifest import (
    Archived,
    ArchivedFile,
    Manifest,
    entries,
)
from pyspark_odradek.pipelines.bookkeeping.shares import Shares, records_in
from pyspark_odradek.pipelines.ends.parquet import write_parquet
from pyspark_odradek.pipelines.ends.tables import Number
from pyspark_odradek.pipelines.running.jobs import OnceJob, Outcome
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

# A file that is nearly as large as it should be is not worth writing again.
_LARGE_ENOUGH: Final = 0.75
# As long as Delta keeps by default what its VACUUM would remove.
_KEPT_MS: Final = 7 * 86_400_000


def build(spark: SparkSession, settings: PipelineSettings) -> OnceJob:
    """The compaction as a job.

    Raises:
        PipelineError: no archive is named, or one whose table of a lake cannot be opened.
    """
    archive = settings.archive("compact")
    table = begun_table(spark, archive)

    def run() -> Outcome:
        manifest = Manifest(spark, archive)
        check_topic(manifest, settings.topic)
        return compact(manifest, settings.file_bytes, table)

    return OnceJob(run)


def check_topic(manifest: Manifest, topic: str) -> None:
    """Checks that an archive is of a topic, since a compaction rewrites its files.

    Raises:
        PipelineError: there is no archive, or it is of another topic.
    """
    with manifest.reading() as archived:
        topics = {part.topic for part in archived.ends}
    if topic not in topics:
        of = ", ".join(sorted(topics))
        raise PipelineError(f"{manifest.table.directory} is an archive of {of}, not of {topic}")


def compact(manifest: Manifest, file_bytes: int, table: LakeTable | None = None) -> Outcome:
    """Compacts small files; there are no findings, only errors.

    Raises:
        PipelineError: there is no archive, another compaction is running, a file to compact is
            damaged, or another writer has changed the lake table.
    """
    with manifest.compacting():
        with manifest.reading() as archived:
            if table is not None:
                _bring_up(table, manifest, archived)
            files = _together(manifest, archived, file_bytes, table)
        # Now that we do not read it ourselves.
        _sweep(manifest, table)
    return Outcome(facts={"files before": len(archived.files), "files after": len(files)})


def _bring_up(table: LakeTable, manifest: Manifest, archived: Archived) -> None:
    """Commits compactions of the manifest to the table: an earlier run may have been killed in
    between.
    """
    snapshot = archived.snapshot
    # Does nothing if the table has it or the last document is a compaction. One before it is there.
    table.append(snapshot.last_batch, manifest.batch_files(snapshot.last_batch))
    if snapshot.newest_compaction is None:
        return
    there = table.paths()
    decided = entries(snapshot.documents[0]["files"])
    if new := [file for file in decided if file.path not in there]:
        before = there - {file.path for file in decided}
        old = [file for file in manifest.superseded_files(snapshot) if file.path in before]
        if records_by_partition(old) != records_by_partition(new):
            raise PipelineError(_changed(new[0].path))
        table.replace(old, new)


def _together(
    manifest: Manifest, archived: Archived, file_bytes: int, table: LakeTable | None
) -> list[ArchivedFile]:
    """Returns the files of the archive after the compaction."""
    small = worth_it(archived.files, file_bytes)
    if not small:
        return archived.files
    for finding in compare_files(small, manifest.checksums(file.path for file in small)):
        raise PipelineError(f"the archive is damaged: {finding}")
    if table is not None and (others := {file.path for file in small} - table.paths()):
        raise PipelineError(_changed(min(others)))
    number = archived.snapshot.next_compaction()
    new = _written(manifest, number, small, file_bytes)
    if records_by_partition(new) != records_by_partition(small):
        raise PipelineError("records were lost or doubled while files were put together")
    taken = {file.path for file in small}
    files = [file for file in archived.files if file.path not in taken] + new
    manifest.commit_compaction(number, archived, files)
    if table is not None:
        table.replace(small, new)
    return files


def _sweep(manifest: Manifest, table: LakeTable | None) -> None:
    if table is None:
        manifest.table.sweep()
        return
    before_ms = manifest.table.clock.wall_ms() - _KEPT_MS
    if table.may_forget(before_ms):
        manifest.table.sweep(replaced_before_ms=before_ms)


def _changed(path: str) -> str:
    return (
        f"{path} is not in the table as it was added: another program has changed the table, and "
        "has to compact it"
    )


def worth_it(files: Iterable[ArchivedFile], file_bytes: int) -> list[ArchivedFile]:
    """Returns the files to compact: those of hours that then have fewer."""
    small = (file for file in files if file.bytes < file_bytes * _LARGE_ENOUGH)
    found = []
    for hour in _by_hour(small):
        if len(hour) > Shares(hour, file_bytes).most_files():
            found += hour
    return found


def _written(
    manifest: Manifest, number: Number, small: list[ArchivedFile], file_bytes: int
) -> list[ArchivedFile]:
    found: list[ArchivedFile] = []
    for files, limit, share in _jobs(small, file_bytes):
        # An archive may have been begun with directories of another kind.
        columns, target = tuple(files[0].times), manifest.new_place(number)
        write_parquet(arranged(manifest.frame(files), columns, share), target, columns, limit)
        found += manifest.look(manifest.table.staged(target))
    return found


def _jobs(
    small: Iterable[ArchivedFile], file_bytes: int
) -> Iterator[tuple[list[ArchivedFile], int, Column]]:
    """Returns files that are written together, with the most records in one of their files and the
    share of a record: a large hour by itself, since records of others may be smaller; the rest as
    one file an hour.
    """
    rest: defaultdict[tuple[str, ...], list[ArchivedFile]] = defaultdict(list)
    for hour in _by_hour(small):
        shares = Shares(hour, file_bytes)
        if shares.count > 1:
            yield hour, shares.limit, shares.of_record()
        else:
            rest[tuple(hour[0].times)] += hour
    for files in rest.values():
        yield files, records_in(files), f.lit(0)


def _by_hour(files: Iterable[ArchivedFile]) -> list[list[ArchivedFile]]:
    found: defaultdict[str, list[ArchivedFile]] = defaultdict(list)
    for file in files:
        found[_hour_of(file)].append(file)
    return [found[hour] for hour in sorted(found)]


def _hour_of(file: ArchivedFile) -> str:
    """Returns the path between the batch and the file, such as `date=2026-11-22/hour=03`."""
    return "/".join(file.path.split("/")[1:-1])
