"""Compaction of an archive that is a table of a lake as well, without Spark and without a lake.

Archive and compaction are killed at every change of a file or of the table, and a batch may come
between any two steps of a compaction. If these fail, who reads the table finds a record twice or
not at all, or a file gone.
"""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.rounds import rounds

from pyspark_odradek.pipelines import compact
from pyspark_odradek.pipelines.bookkeeping import manifest as manifests
from pyspark_odradek.pipelines.bookkeeping.manifest import ArchivedFile, FileRange, Manifest
from pyspark_odradek.pipelines.ends.files import LocalFiles
from pyspark_odradek.pipelines.ends.tables import Number
from pyspark_odradek.pipelines.running.settings import PipelineError

ROUNDS = rounds(12)
STEPS, ROWS, FILE_BYTES = 24, 4, 60


class Killed(BaseException):
    """The process ended here: nothing that it would have done at its end is done."""


class Life:
    """How many changes of files or of the table are left, and what others do before each."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.is_of_table = False
        self.others: Callable[[], None] = lambda: None

    def change(self, *, of_table: bool = False) -> None:
        self.others()
        if self.left is not None and self.is_of_table == of_table:
            self.left -= 1
            if self.left < 0:
                raise Killed


class MortalFiles(LocalFiles):
    def __init__(self, life: Life) -> None:
        self._life = life

    def create(self, path: str, text: str) -> bool:
        self._life.change()
        return super().create(path, text)

    def replace(self, path: str, text: str) -> None:
        self._life.change()
        super().replace(path, text)

    def remove(self, path: str) -> None:
        self._life.change()
        super().remove(path)


class Lake:
    """A table as Delta and Iceberg have them: a commit is done or not."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self.files: set[str] = set()
        self.last_batch = -1

    def append(self, batch_id: int, files: Sequence[ArchivedFile]) -> None:
        self._life.change(of_table=True)
        if batch_id > self.last_batch:
            self.files |= {file.path for file in files}
            self.last_batch = batch_id
        self._life.change(of_table=True)

    def paths(self) -> set[str]:
        return set(self.files)

    def replace(self, old: Sequence[ArchivedFile], new: Sequence[ArchivedFile]) -> None:
        self._life.change(of_table=True)
        gone = {file.path for file in old}
        assert gone <= self.files
        self.files = self.files - gone | {file.path for file in new}
        self._life.change(of_table=True)

    def may_forget(self, _before_ms: int) -> bool:
        return True


class Archive:
    """An archive of one partition and two hours, and who works on it."""

    def __init__(self, directory: Path, life: Life) -> None:
        self.directory = directory
        self.manifest = Manifest(None, str(directory))  # type: ignore[arg-type]
        self.lake = Lake(life)
        # Up to which batch Spark knows that it is done.
        self.done = -1
        self._runs = 0

    def add_batch(self) -> None:
        batch, table = self.done + 1, self.manifest.table
        if table.last_batch() < batch:
            rows = range(batch * ROWS, (batch + 1) * ROWS)
            hours = {"03": list(rows[::2]), "04": list(rows[1::2])}
            files = [vars_of(file) for file in self._write(Number(batch), hours)]
            table.commit(Number(batch), {"files": files, "offsets": [f'{{"t": {{"0": {batch}}}}}']})
        self.lake.append(batch, self.manifest.batch_files(batch))
        self.done = batch

    def compact(self) -> None:
        compact.compact(self.manifest, FILE_BYTES, self.lake)

    def put_together(
        self, _manifest: Manifest, number: Number, small: list[ArchivedFile], _file_bytes: int
    ) -> list[ArchivedFile]:
        """In the place of what Spark does."""
        hours: defaultdict[str, list[int]] = defaultdict(list)
        for file in small:
            hours[file.times["hour"]] += self.rows_of([file.path])
        return self._write(number, hours)

    def _write(self, number: Number, hours: dict[str, list[int]]) -> list[ArchivedFile]:
        self._runs += 1
        place = Path(self.manifest.table.place_of(number, f"run{self._runs}"))
        files = []
        for hour, rows in hours.items():
            path = place / f"date=2026-11-22/hour={hour}/part-0.parquet"
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(rows))
            name = str(path.relative_to(self.directory))
            [checksum] = self.manifest.checksums([name]).values()
            ranges = [FileRange("t", 0, min(rows), max(rows) + 1, len(rows))]
            files.append(ArchivedFile(name, *checksum, ranges))
        return files

    def rows_of(self, paths: Sequence[str]) -> list[int]:
        return [row for path in paths for row in json.loads((self.directory / path).read_text())]

    def check(self) -> None:
        """The rows that a reader of the table finds."""
        found = sorted(self.rows_of(sorted(self.lake.files)))
        assert found == list(range((self.lake.last_batch + 1) * ROWS))


def vars_of(file: ArchivedFile) -> dict[str, object]:
    return {**vars(file), "ranges": [vars(piece) for piece in file.ranges]}


@pytest.fixture
def life(monkeypatch: pytest.MonkeyPatch) -> Life:
    life = Life()
    monkeypatch.setattr(manifests, "FileSystem", lambda _: MortalFiles(life))
    # What was replaced goes at once.
    monkeypatch.setattr(compact, "_KEPT_MS", -1_000_000)
    return life


@pytest.fixture
def archive(tmp_path: Path, life: Life, monkeypatch: pytest.MonkeyPatch) -> Archive:
    archive = Archive(tmp_path, life)
    monkeypatch.setattr(compact, "_written", archive.put_together)
    return archive


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_the_table_has_every_record_once(archive: Archive, life: Life, seed: int) -> None:
    rng = random.Random(seed)

    def a_batch_comes() -> None:
        if rng.random() < 0.1:
            left, others = life.left, life.others
            life.left, life.others = None, lambda: None
            archive.add_batch()
            life.left, life.others = left, others

    for _ in range(STEPS):
        is_compaction = rng.randrange(2) and archive.done >= 0
        life.is_of_table = bool(rng.randrange(2))
        life.left = rng.choice([None, rng.randrange(4 if life.is_of_table else 16)])
        life.others = a_batch_comes if is_compaction else lambda: None
        with suppress(Killed):
            (archive.compact if is_compaction else archive.add_batch)()
        archive.check()
    life.left, life.others = None, lambda: None
    archive.add_batch()
    archive.compact()
    archive.check()
    with archive.manifest.reading() as archived:
        assert archive.lake.files == {file.path for file in archived.files}
    assert archive.lake.last_batch == archive.done


def test_a_compaction_stands_for_the_batches_that_it_has_read(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that came between two looks was deleted, and an audit found nothing."""
    for _ in range(3):
        archive.add_batch()
    choose = compact.worth_it

    def while_one_comes(*arguments: Any) -> list[ArchivedFile]:
        archive.add_batch()
        return choose(*arguments)

    monkeypatch.setattr(compact, "worth_it", while_one_comes)
    archive.compact()
    archive.check()
    with archive.manifest.reading() as archived:
        assert archived.snapshot.last_batch == 3
        rows = archive.rows_of([file.path for file in archived.files])
    assert sorted(rows) == list(range(4 * ROWS))


def test_what_somebody_else_has_changed_is_left_alone(archive: Archive) -> None:
    """A row that was deleted in the table came back, or one was there twice."""
    for _ in range(3):
        archive.add_batch()
    missing = min(archive.lake.files)
    archive.lake.files.remove(missing)
    with pytest.raises(PipelineError, match="not in the table as it was added"):
        archive.compact()
    assert archive.manifest.table.snapshot().newest_compaction is None


def test_what_was_decided_is_not_done_to_a_table_that_somebody_has_changed(
    archive: Archive, life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        archive.add_batch()

    def dies(*_: object) -> None:
        raise Killed

    replace = archive.lake.replace
    monkeypatch.setattr(archive.lake, "replace", dies)
    with pytest.raises(Killed):
        archive.compact()
    monkeypatch.setattr(archive.lake, "replace", replace)
    before = set(archive.lake.files)
    archive.lake.files = {*sorted(before)[1:], "date=2026-11-22/optimized.parquet"}
    with pytest.raises(PipelineError, match="not in the table as it was added"):
        archive.compact()
    assert all((archive.directory / path).exists() for path in before)
