"""A stream's table and its checkpoint, without Spark: if these fail, a batch that comes again is
there twice, or is passed over though it has other records.
"""

import json
import os
import pickle
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_odradek.pipelines.ends.batches import Output
from pyspark_odradek.pipelines.ends.checkpoints import Checkpoint
from pyspark_odradek.pipelines.ends.files import LocalFiles
from pyspark_odradek.pipelines.ends.owners import Lock
from pyspark_odradek.pipelines.ends.sealed import Document
from pyspark_odradek.pipelines.ends.tables import Number, Table
from pyspark_odradek.pipelines.running.settings import PipelineError

NO_SPARK = cast(SparkSession, None)


class Query:
    """The files that Spark keeps of a query; each batch goes one offset on."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.checkpoint = directory / "_checkpoint"

    def output(self) -> Output:
        return Output(NO_SPARK, str(self.directory), str(self.checkpoint))

    def plan(self, batch: int, end: int | None = None, query: str = "q") -> None:
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": query}))
        offsets = self.checkpoint / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        line = f'{{"t": {{"0": {batch if end is None else end}}}}}'
        (offsets / str(batch)).write_text(f"v1\n{{}}\n{line}\n")

    def done(self, batch: int) -> None:
        commits = self.checkpoint / "commits"
        commits.mkdir(parents=True, exist_ok=True)
        (commits / str(batch)).write_text("v1\n{}")

    def run(self, *batches: int) -> Output:
        output = self.output()
        for batch in batches:
            self.plan(batch)
            if not output.has(batch):
                output.commit(batch, [])
            self.done(batch)
        return output


def compact(output: Output) -> None:
    snapshot = output.table.snapshot()
    offsets = snapshot.documents[-1]["offsets"]
    output.table.commit(snapshot.next_compaction(), {"files": [], "offsets": offsets})
    output.table.sweep()


@pytest.mark.parametrize("is_compacted", [False, True])
def test_the_last_batch_may_come_again(tmp_path: Path, is_compacted: bool) -> None:
    query = Query(tmp_path)
    output = query.run(0, 1)
    if is_compacted:
        compact(output)
    assert output.has(1)
    assert query.run(1, 2).table.last_batch() == 2


def test_a_batch_does_not_list_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a batch each minute it had half a million names after a year, listed for each."""
    query = Query(tmp_path)
    query.run(0, 1)
    listed: list[str] = []
    names = LocalFiles.names

    def noted(files: LocalFiles, directory: str) -> list[str]:
        listed.append(directory)
        return names(files, directory)

    monkeypatch.setattr(LocalFiles, "names", noted)
    manifest = str(tmp_path / "_manifest")
    query.run(2)
    once = listed.count(manifest)
    assert once > 0, "a run looks where it goes on"
    listed.clear()
    query.run(3, 4, 5, 6)
    assert listed.count(manifest) == once


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_checkpoint_from_a_backup_is_refused(tmp_path: Path, is_compacted: bool) -> None:
    """It plans a batch anew, with more records: they would be passed over as done."""
    query = Query(tmp_path)
    output = query.run(0, 1, 2)
    if is_compacted:
        compact(output)
    (tmp_path / "_checkpoint/commits/2").unlink()
    (tmp_path / "_checkpoint/commits/1").unlink()
    query.plan(1, end=50)
    with pytest.raises(PipelineError, match="has batch 1 with other offsets"):
        query.output().has(1)


def test_a_table_and_a_checkpoint_belong_together(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.run(0, 1)
    (tmp_path / "_manifest/batch-1.json").unlink()
    with pytest.raises(PipelineError, match="with batch 1 and a manifest up to 0: part"):
        query.output()
    query.checkpoint.rename(tmp_path / "elsewhere")
    with pytest.raises(PipelineError, match="whose checkpoint is gone"):
        query.output()


def test_only_what_was_never_committed_is_taken_back(tmp_path: Path) -> None:
    query = Query(tmp_path)
    output = query.output()
    query.plan(0)
    place = Path(output.table.place_of(Number(0), output.run))
    place.mkdir()
    output.take_back()
    assert not place.exists()
    assert not query.checkpoint.exists()
    output = query.output()
    query.plan(0)
    output.commit(0, [])
    # Spark does not know yet that it is done.
    output.take_back()
    assert query.checkpoint.exists()
    assert query.output().has(0)


def test_a_checkpoint_with_a_batch_that_is_done_stays(tmp_path: Path) -> None:
    """Whatever else is asked: without it nobody knows what was read."""
    query = Query(tmp_path)
    checkpoint = query.output().checkpoint
    query.plan(0)
    query.done(0)
    checkpoint.take_back()
    assert query.checkpoint.exists()


def test_a_checkpoint_that_is_taken_back_keeps_the_lock_in_it(tmp_path: Path) -> None:
    """`dedup --to-topic` has no other directory: two of its runs wrote at once."""
    files, path = LocalFiles(), str(tmp_path / "kept")
    with Lock(files, path):
        checkpoint = Checkpoint(files, path)
        assert not checkpoint.was_there
        files.replace(f"{path}/metadata", "{}")
        checkpoint.take_back_unless_planned()
        assert os.listdir(path) == ["_lock"]
        with pytest.raises(PipelineError, match="is being written to"):
            Lock(files, path).take()
        files.replace(f"{path}/offsets/0", "")
        checkpoint.take_back_unless_planned()
        assert Checkpoint(files, path).was_there


def test_a_run_that_was_taken_for_dead_takes_nothing_back(tmp_path: Path) -> None:
    """It removed the checkpoint of the run that had come in its place."""
    query = Query(tmp_path)
    dead, living = query.output(), query.output()
    job = dead.job(FailingWriter(query, living))  # type: ignore[arg-type]
    with pytest.raises(PySparkException):
        job.run()
    assert query.checkpoint.exists()


class FailingWriter:
    """A stream that fails when another run has taken the lock, and has planned a batch."""

    def __init__(self, query: Query, other: Output) -> None:
        self._query, self._other = query, other

    def foreachBatch(self, _: object) -> "FailingWriter":  # noqa: N802
        return self

    def option(self, *_: object) -> "FailingWriter":
        return self

    def start(self) -> None:
        mark = self._query.directory / "_lock/write-0.json"
        mark.write_text(json.dumps({**json.loads(mark.read_text()), "started": "0"}))
        # As of a process that is there no more.
        with self._other.alone():
            self._query.plan(0)
        raise PySparkException("it failed")


def test_an_output_can_be_sent_to_where_batches_are_written(tmp_path: Path) -> None:
    """Over Spark Connect that is the server, which gets it with the function for a batch."""
    query = Query(tmp_path)
    output = query.run(0)
    with output.alone():
        pass
    assert pickle.loads(pickle.dumps(output)).has(0)


def test_another_run_that_was_quicker_is_found_out(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.plan(0)
    slow = query.output()
    query.checkpoint.mkdir(exist_ok=True)
    query.output().commit(0, [])
    with pytest.raises(PipelineError, match="has another batch-0 already: two runs write to it"):
        slow.commit(0, [])


def test_what_a_batch_goes_on_from_has_to_be_there(tmp_path: Path) -> None:
    query = Query(tmp_path)
    output = query.run(0)
    assert output.left_by_the_one_before(0) is None
    assert output.left_by_the_one_before(1) is not None
    with pytest.raises(PipelineError, match="has no batch 1"):
        output.left_by_the_one_before(2)


def test_what_a_batch_was_to_be_is_taken_up_by_its_next_attempt(tmp_path: Path) -> None:
    """A record would be neither in the table nor in the topic, or in both."""
    query = Query(tmp_path)
    query.plan(0)
    first, second = query.output(), query.output()
    assert first.draft(0) is None
    kept = first.keep_draft(0, {"files": [1]})
    assert second.keep_draft(0, {"files": [2]}) == kept, "the first one counts"
    third = query.output()
    assert third.draft(0) == kept
    third.commit(0, [])
    assert third.draft(1) is None


@pytest.mark.parametrize("other", [{"end": 50}, {"query": "another"}])
def test_a_draft_of_another_batch_is_not_taken_up(tmp_path: Path, other: dict[str, Any]) -> None:
    """The records that the batch has now would be left out."""
    query = Query(tmp_path)
    query.plan(0)
    query.output().keep_draft(0, {"files": [1]})
    query.plan(0, **other)
    output = query.output()
    assert output.draft(0) is None
    assert output.keep_draft(0, {"files": [2]})["files"] == [2]
    found = query.output().draft(0)
    assert found is not None
    assert found["files"] == [2]


@pytest.mark.parametrize("other", [{"end": 50}, {"query": "another"}])
def test_a_draft_of_another_batch_is_not_kept_in_place_of_ours(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    """It came behind our look, from a run that was held up: its files were committed as ours."""
    query = Query(tmp_path)
    query.plan(0)
    held_up, ours = query.output(), query.output()
    query.plan(0, **other)
    assert ours.draft(0) is None
    query.plan(0)
    held_up.keep_draft(0, {"files": [1]})
    query.plan(0, **other)
    assert ours.keep_draft(0, {"files": [2]})["files"] == [2]
    assert query.output().draft(0) == ours.draft(0)


def test_who_decides_when_a_batch_is_committed_keeps_nothing(tmp_path: Path) -> None:
    """A run that was taken for dead put its draft in the place of the one that was gone with its
    batch, and wrote letters of records that the table has as rows by then."""
    query = Query(tmp_path)
    query.plan(0)
    dead, living = query.output(), query.output()
    assert dead.draft(0) is None
    living.keep_draft(0, {"files": [], "letters": []})
    living.commit(0, [])
    living.drop_draft(0)
    with pytest.raises(PipelineError, match="has another batch-0 already: two runs write to it"):
        dead.keep_draft(0, {"files": [], "letters": ["b"]})
    assert os.listdir(tmp_path / "_manifest") == ["batch-0.json"]


def test_who_finds_a_draft_of_a_batch_that_is_committed_meanwhile_takes_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there, and gone when it was to be read."""
    query = Query(tmp_path)
    query.plan(0)
    dead, living = query.output(), query.output()
    living.keep_draft(0, {"files": []})
    keep = Table.keep_draft

    def slow(table: Table, batch_id: int, name: str, document: Document) -> bool:
        is_kept = keep(table, batch_id, name, document)
        living.commit(0, [])
        living.drop_draft(0)
        return is_kept

    monkeypatch.setattr(Table, "keep_draft", slow)
    with pytest.raises(PipelineError, match="has another batch-0 already"):
        dead.keep_draft(0, {"files": [1]})


def test_what_a_late_run_cuts_again_is_not_in_place_of_what_was_written(tmp_path: Path) -> None:
    """A run that was taken for dead replaced the draft of which the letters were in the topic by
    then: no later run could repeat these."""
    query = Query(tmp_path)
    query.plan(0)
    query.output().keep_draft(0, {"files": [], "letters": ["whole"]})
    dead, living = query.output(), query.output()
    written = living.draft(0)
    assert dead.draft(0) == written
    dead.keep_variant(0, {"letters": ["cut"]})
    after = query.output()
    assert after.draft(0) == written
    assert after.variants(0) == [{"letters": ["cut"]}]
    after.commit(0, [])
    assert after.variants(1) == []
    assert os.listdir(tmp_path / "_manifest") == ["batch-0.json"]


def test_what_was_left_behind_a_commit_goes_with_the_next_run(tmp_path: Path) -> None:
    """Drafts, and files that another attempt had written."""
    query = Query(tmp_path)
    query.plan(0)
    killed, late = query.output(), query.output()
    killed.keep_draft(0, {"files": []})
    late.keep_variant(0, {"letters": ["cut"]})
    killed.table.commit(Number(0), {"files": [], "offsets": killed.checkpoint.offsets(0)})
    place = Path(late.table.place_of(Number(0), late.run))
    place.mkdir()
    after = query.output()
    assert after.has(0)
    after.clear(0)
    assert os.listdir(tmp_path / "_manifest") == ["batch-0.json"]
    assert not place.exists()


def test_a_job_that_is_run_again_takes_up_what_its_last_run_has_left(tmp_path: Path) -> None:
    """It decided anew, and wrote over the files that the draft names; and it passed for the run
    before, which another one may have fenced meanwhile."""
    query = Query(tmp_path)
    query.plan(0)
    output = query.output()
    with output.alone():
        output.commit(0, [])
        query.done(0)
        query.plan(1)
        draft = output.keep_draft(1, {"files": [1]})
        first = output.run
    with output.alone():
        assert output.draft(1) == draft
        assert output.run != first
