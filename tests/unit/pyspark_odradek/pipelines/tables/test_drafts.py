"""Several runs decide about the same batch, without Spark: which records are rows of a table
and which are letters in a topic.

If these fail, a record is in the table and in the topic, or in neither, after a run was taken for
dead that was not, or a store did not say that it has what it was given.
"""

import json
import os
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.interleaving import take_turns
from tests.rounds import rounds
from tests.unit.pyspark_odradek.pipelines.tables.test_tables import (
    WATCHED,
    Killed,
    Mortal,
    again_and_again,
    rows_of,
)

from pyspark_odradek.pipelines.ends import batches
from pyspark_odradek.pipelines.ends.batches import Output
from pyspark_odradek.pipelines.ends.files import Files, LocalFiles
from pyspark_odradek.pipelines.ends.tables import Number, Table
from pyspark_odradek.pipelines.running.settings import PipelineError

BATCHES, ROWS = 11, 3


class Unanswering(Mortal):
    """A store that is asked again each time, and takes its own text for created: of two runs that
    create the same, both have."""

    def create(self, path: str, text: str) -> bool:
        if super().create(path, text):
            return True
        with suppress(FileNotFoundError):
            return self.read(path) == text
        return False


class Topic:
    """Takes the letters of a batch once, from whoever comes first; others have to have the same."""

    def __init__(self) -> None:
        self.letters: dict[int, list[int]] = {}

    def write(self, batch: int, letters: list[int]) -> None:
        if letters and self.letters.setdefault(batch, letters) != letters:
            raise PipelineError("others were written")


class Query:
    """A query that decides by chance, as if schemas came all the time; and its checkpoint."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.directory = str(directory / "table")
        self.checkpoint = directory / "checkpoint"
        self.topic = Topic()
        self.done = -1
        self._rng = rng
        files = LocalFiles()
        files.replace(f"{self.checkpoint}/metadata", json.dumps({"id": "q"}))
        for batch in range(BATCHES):
            files.replace(f"{self.checkpoint}/offsets/{batch}", f"v1\n{{}}\n{batch}\n")

    def output(self, files: Any) -> Output:
        return Output(files, self.directory, str(self.checkpoint))

    def run(self, files: Files) -> None:
        """Without the lock, as one that is taken for dead."""
        output = self.output(files)
        for batch in range(self.done + 1, BATCHES):
            if output.has(batch):
                output.clear(batch)
            else:
                draft = output.draft(batch) or self._decide(files, output, batch)
                self.topic.write(batch, draft["letters"])
                output.commit(batch, draft["files"])
                output.drop_draft(batch)
            self.done = max(self.done, batch)

    def _decide(self, files: Files, output: Output, batch: int) -> dict[str, Any]:
        # Some batches have no records at all: all runs commit the same.
        records = list(range(batch * ROWS, (batch + 1) * ROWS)) if batch % 3 else []
        cut = self._rng.choice((0, 1, len(records)))
        rows, letters = records[:cut], records[cut:]
        place = output.table.place_of(Number(batch), output.run)
        if rows:
            files.replace(f"{place}/part-0.parquet", json.dumps(rows))
        return output.keep_draft(batch, {"files": output.table.listed(place), "letters": letters})

    def rows(self) -> list[int]:
        """The records in the table."""
        snapshot = Table(LocalFiles(), self.directory).snapshot()
        return rows_of(LocalFiles(), self.directory, snapshot.files)


@pytest.mark.parametrize("seed", range(rounds(8)))
@pytest.mark.parametrize("store", [Mortal, Unanswering])
def test_every_record_is_a_row_or_a_letter_once_whoever_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, store: type[Mortal]
) -> None:
    monkeypatch.setattr(batches, "FileSystem", lambda files: files)
    rng = random.Random(seed)
    query = Query(tmp_path, rng)

    # What one has written may be swept before it is whole.
    def writer() -> None:
        again_and_again(lambda: query.run(store(rng.randrange(60))), FileNotFoundError, times=6)

    def sweeper() -> None:
        again_and_again(Table(store(rng.randrange(40)), query.directory).sweep, times=8)

    counts = [rng.randint(1, 60) * rng.choice((1, 1, 20)) for _ in range(600)]
    take_turns(counts, WATCHED, writer, sweeper, writer, writer)
    query.run(LocalFiles())
    letters = [row for each in query.topic.letters.values() for row in each]
    expected = [row for row in range(BATCHES * ROWS) if row // ROWS % 3]
    assert sorted([*query.rows(), *letters]) == expected
    query.output(LocalFiles()).clear(BATCHES - 1)
    manifest = os.listdir(f"{query.directory}/_manifest")
    assert set(manifest) == {f"batch-{batch}.json" for batch in range(BATCHES)}


@pytest.mark.parametrize("batch", [0, 1])
def test_of_two_runs_that_commit_the_same_neither_takes_anything_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """A store told both that they have created the document: they took up the same draft, or have
    no records."""
    monkeypatch.setattr(batches, "FileSystem", lambda files: files)
    query = Query(tmp_path, random.Random(1))
    for before in range(batch):
        query.output(LocalFiles()).commit(before, [])
        query.done = before
    first, second = (query.output(Unanswering()) for _ in range(2))
    drafts = [query._decide(Unanswering(), output, batch) for output in (first, second)]
    assert drafts[0] == drafts[1]
    for output, draft in zip((first, second), drafts, strict=True):
        output.commit(batch, draft["files"])
        output.drop_draft(batch)
        assert len(query.rows()) + len(draft["letters"]) == batch * ROWS
    query.run(LocalFiles())
    assert query.output(LocalFiles()).table.last_batch() == BATCHES - 1


def test_the_store_of_these_tests_takes_no_other_text_for_created(tmp_path: Path) -> None:
    files = Unanswering()
    assert files.create(f"{tmp_path}/a", "text")
    assert files.create(f"{tmp_path}/a", "text")
    assert not files.create(f"{tmp_path}/a", "other")
    with pytest.raises(Killed):
        Unanswering(0).create(f"{tmp_path}/b", "text")
