"""Whose a directory is, without Spark: if these fail, two pipelines write to one directory, and
each takes the other's files for its own.
"""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession
from tests.interleaving import every_interleaving

from pyspark_odradek.pipelines.bookkeeping.lake import table
from pyspark_odradek.pipelines.bookkeeping.lake.table import open_table
from pyspark_odradek.pipelines.ends import directories, files
from pyspark_odradek.pipelines.ends.batches import Output
from pyspark_odradek.pipelines.ends.checkpoints import Checkpoint
from pyspark_odradek.pipelines.ends.directories import ClaimedLock, Mark
from pyspark_odradek.pipelines.ends.files import LocalFiles
from pyspark_odradek.pipelines.ends.owners import Lock
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

NO_SPARK = cast(SparkSession, None)
WATCHED = (str(Path(directories.__file__)),)


def lock(directory: Path, pipeline: str, part: str = "") -> ClaimedLock:
    return ClaimedLock(NO_SPARK, str(directory), pipeline, "orders", part)


def begun_with(directory: Path, **options: str | None) -> ClaimedLock:
    return ClaimedLock(NO_SPARK, str(directory), "window", "orders", options=options)


def owner_of(directory: Path) -> str:
    return str(json.loads((directory / "_odradek.json").read_text())["pipeline"])


def test_the_mark_of_one_who_writes_is_left_alone(tmp_path: Path) -> None:
    """There is nothing yet but his mark and his lock, as of one whose start has failed."""
    with lock(tmp_path, "archive"):
        for attempt in (lock(tmp_path, "volume").claim, lock(tmp_path, "volume").__enter__):
            with pytest.raises(PipelineError, match="is being written to by process"):
                attempt()
        assert owner_of(tmp_path) == "archive"


def test_what_a_failed_start_has_left_is_taken_over(tmp_path: Path) -> None:
    lock(tmp_path, "archive").claim()
    lock(tmp_path, "volume").claim()
    assert owner_of(tmp_path) == "volume"
    with lock(tmp_path, "archive"):
        assert owner_of(tmp_path) == "archive"
        (tmp_path / "batch=0-a").mkdir()
    with pytest.raises(PipelineError, match="is of archive of the topic orders; choose another"):
        lock(tmp_path, "volume").claim()


def test_one_who_was_killed_while_he_marked_a_directory_is_not_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The half of his mark was a file of nobody knows whom, which somebody had to remove."""

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "replace", kill)
        with pytest.raises(KeyboardInterrupt):
            lock(tmp_path, "archive").claim()
    # As Hadoop's file systems have it.
    [partial] = tmp_path.glob("._odradek.json.*")
    (tmp_path / partial.name[1:]).touch()
    (tmp_path / "_checkpoint").mkdir()
    (tmp_path / "_checkpoint" / partial.name).touch()
    assert not Checkpoint(LocalFiles(), str(tmp_path / "_checkpoint")).was_there
    (tmp_path / "_checkpoint" / partial.name).unlink()
    (tmp_path / "_checkpoint").rmdir()
    lock(tmp_path, "archive").claim()
    assert owner_of(tmp_path) == "archive"
    other = tmp_path / "other"
    other.mkdir()
    (other / "._odradek.json.tmp").touch()
    with pytest.raises(PipelineError, match=r"holds \._odradek\.json\.tmp"):
        lock(other, "archive").claim()


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ({"by": "key"}, {"by": "value"}, "--by key, and not with --by value: say the same"),
        ({"measure": None}, {"measure": "1"}, "no --measure, and not with --measure 1"),
        ({"measure": "1"}, {"measure": None}, "--measure 1, and not with no --measure"),
        ({"isolation_level": "a"}, {"isolation_level": "b"}, "--isolation-level a, and not"),
    ],
)
def test_rows_of_one_table_mean_the_same(
    tmp_path: Path, was: dict[str, str | None], now: dict[str, str | None], words: str
) -> None:
    """Windows of the hour and of the day were put together, and each of both was half of it."""
    with begun_with(tmp_path, **was):
        (tmp_path / "_manifest").mkdir()
    for attempt in (begun_with(tmp_path, **now).claim, begun_with(tmp_path, **now).__enter__):
        with pytest.raises(PipelineError, match=f"{tmp_path} was begun with .*{words}"):
            attempt()
    with begun_with(tmp_path, **was):
        pass


def test_what_a_failed_start_has_left_is_begun_with_other_options(tmp_path: Path) -> None:
    """A directory whose first batch failed was stuck with the options that were wrong."""
    with begun_with(tmp_path, by="kye"):
        (tmp_path / "batch=0-a").mkdir()
    with begun_with(tmp_path, by="key"):
        (tmp_path / "_manifest").mkdir()
    with pytest.raises(PipelineError, match="--by key, and not with --by kye"):
        begun_with(tmp_path, by="kye").claim()


def test_a_mark_that_is_older_than_an_option_is_completed(tmp_path: Path) -> None:
    """Each run of a directory of an earlier version could have other options, for good."""
    with begun_with(tmp_path):
        (tmp_path / "_manifest").mkdir()
    begun_with(tmp_path, by="key").claim()
    with pytest.raises(PipelineError, match="--by key, and not with --by value"):
        begun_with(tmp_path, by="value").claim()
    # One that knows no such option does not forget it.
    begun_with(tmp_path).claim()
    with begun_with(tmp_path, by="key", measure=None):
        pass
    for other in ({"by": "value"}, {"measure": "1"}):
        with pytest.raises(PipelineError, match="was begun with"):
            begun_with(tmp_path, **other).__enter__()


def test_a_part_of_a_directory_keeps_its_options(tmp_path: Path) -> None:
    """Rows of `decode` are below the directory whose mark has its options; what `redrive` writes
    beside them has none."""
    levels = [{"isolation_level": level} for level in ("read_committed", "read_uncommitted")]

    def decoding(part: str, options: dict[str, str]) -> ClaimedLock:
        where = (str(tmp_path), "decode", "orders", f"source={part}")
        return ClaimedLock(NO_SPARK, *where, options=options)

    for options in levels:
        # Nothing is committed yet.
        with decoding("topic", options):
            pass
    with decoding("topic", levels[0]):
        (tmp_path / "source=topic/_manifest").mkdir()
    with decoding("redriven", {}):
        (tmp_path / "source=redriven/_manifest").mkdir()
    for attempt in (decoding("topic", levels[1]).claim, decoding("topic", levels[1]).__enter__):
        with pytest.raises(PipelineError, match="was begun with --isolation-level read_committed"):
            attempt()
    decoding("topic", levels[0]).claim()


def test_the_mark_of_one_who_writes_is_not_completed(tmp_path: Path) -> None:
    """His rows are not of the options of the next one."""
    with begun_with(tmp_path):
        (tmp_path / "_manifest").mkdir()
        with pytest.raises(PipelineError, match="is being written to by process"):
            begun_with(tmp_path, by="value").claim()
    begun_with(tmp_path, by="key").claim()


def test_the_mark_of_a_checkpoint_is_completed(tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits/0").touch()
    for options in ({}, {"by": "key"}):
        (tmp_path / "_odradek.json").write_text(Mark("dedup", "orders", {}).text())
        checkpoint = Checkpoint(LocalFiles(), str(tmp_path))
        checkpoint.mark(Mark("dedup", "orders", options))
    with pytest.raises(PipelineError, match="--by key, and not with --by value"):
        checkpoint.mark(Mark("dedup", "orders", {"by": "value"}))


def test_a_checkpoint_without_a_directory_is_somebody_s(tmp_path: Path) -> None:
    """`dedup` compared what it wrote to a topic by keys with what it had seen by values."""
    for by in ("kye", "key"):
        checkpoint = Checkpoint(LocalFiles(), str(tmp_path))
        assert not checkpoint.was_there
        checkpoint.mark(Mark("dedup", "orders", {"by": by}))
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits/0").touch()
    with pytest.raises(PipelineError, match="was begun with --by key, and not with --by value"):
        checkpoint.mark(Mark("dedup", "orders", {"by": "value"}))
    with pytest.raises(PipelineError, match="is of dedup of the topic orders; choose another"):
        checkpoint.mark(Mark("dedup", "payments", {"by": "key"}))
    checkpoint.mark(Mark("dedup", "orders", {"by": "key"}))


def test_one_who_is_refused_does_not_keep_the_lock(tmp_path: Path) -> None:
    (tmp_path / "photographs").mkdir()
    with pytest.raises(PipelineError, match="holds photographs, which is not of archive"):
        lock(tmp_path, "archive").__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["photographs"]
    with Lock(LocalFiles(), str(tmp_path)):
        pass


def test_parts_of_a_directory_are_written_at_once(tmp_path: Path) -> None:
    """`decode` and `redrive` of one table; nobody else takes the directory meanwhile."""
    with lock(tmp_path, "decode", "source=topic"):
        with lock(tmp_path, "decode", "source=redriven"):
            pass
        with pytest.raises(PipelineError, match="source=topic is being written to"):
            lock(tmp_path, "decode", "source=topic").__enter__()
        with pytest.raises(PipelineError, match="is of decode of the topic orders"):
            lock(tmp_path, "archive").claim()


@pytest.mark.parametrize("part", ["", "source=topic"])
def test_of_two_pipelines_one_gets_a_directory(tmp_path: Path, part: str) -> None:
    """Each wrote down that it is its own, and both went on."""
    rounds = iter(range(1_000_000))

    def prepare() -> tuple[object, object, object]:
        directory = tmp_path / str(next(rounds))
        written: list[str] = []

        def work(pipeline: str, part: str) -> None:
            try:
                with lock(directory, pipeline, part):
                    (directory / part / f"batch=0-{pipeline}").mkdir()
                    written.append(pipeline)
            except PipelineError:
                pass

        def look() -> None:
            assert written == [owner_of(directory)]

        return lambda: work("decode", part), lambda: work("archive", ""), look

    every_interleaving(prepare, WATCHED)  # type: ignore[arg-type]


def test_the_table_of_an_archive_is_made_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that made it at once had an id each: what one had added the other would add again."""
    settings = PipelineSettings("h:1", "orders", to=str(tmp_path), format="delta")
    ids: list[str] = []

    def opened(_: object, __: str, archive_id: str, *___: object) -> object:
        if not ids:
            ids.append(archive_id)
            with pytest.raises(PipelineError, match="is being written to"):
                open_table(NO_SPARK, settings, output())
        else:
            ids.append(archive_id)
        return SimpleNamespace(is_partitioned_by=lambda by: by == settings.partition_by)

    def output() -> Output:
        return Output(NO_SPARK, str(tmp_path), str(tmp_path / "_checkpoint"))

    monkeypatch.setattr(table, "_open", opened)
    for _ in range(2):
        open_table(NO_SPARK, settings, output())
    assert len(ids) == 2
    assert len(set(ids)) == 1


def test_a_table_of_hours_takes_no_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch was in the archive for good, and each attempt to add it to the table failed."""
    settings = PipelineSettings("h:1", "orders", to=str(tmp_path), format="delta")
    found = SimpleNamespace(is_partitioned_by=lambda by: by == "hour")
    monkeypatch.setattr(table, "_open", lambda *_: found)
    output = Output(NO_SPARK, str(tmp_path), str(tmp_path / "_checkpoint"))
    begun = tmp_path / "_table.json"
    for _ in range(2):
        was_begun = begun.exists()
        for by in ("day", "none"):
            with pytest.raises(PipelineError, match=f"another --partition-by than {by}"):
                open_table(NO_SPARK, replace(settings, partition_by=by), output)
        assert begun.exists() == was_begun
        assert open_table(NO_SPARK, settings, output) is found


def test_a_run_goes_on_from_what_is_there_when_it_has_the_lock(tmp_path: Path) -> None:
    """Another run that had come and gone since this one was made was not seen."""
    checkpoint = tmp_path / "_checkpoint"

    def output() -> Output:
        return Output(NO_SPARK, str(tmp_path), str(checkpoint))

    late, early = output(), output()
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets/0").write_text("v1\n{}\n{}\n")
    with early.alone():
        early.commit(0, [])
    with late.alone():
        assert late.checkpoint.was_there
        assert late.has(0)
