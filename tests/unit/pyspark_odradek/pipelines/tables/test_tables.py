"""The commit protocol of all pipelines, without Spark: writers, compactions and readers at once,
each killed wherever it changes a file.

If these fail, a batch is lost or there twice after a crash, or a reader misses what was there when
it began.
"""

import atexit
import errno
import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.interleaving import take_turns
from tests.rounds import rounds

from odradek.clock import ManualClock
from pyspark_odradek.pipelines.ends import owners, tables
from pyspark_odradek.pipelines.ends.files import Files, LocalFiles
from pyspark_odradek.pipelines.ends.owners import Lock, Owner, Reader, has_readers
from pyspark_odradek.pipelines.ends.tables import Number, Snapshot, Table
from pyspark_odradek.pipelines.running.settings import PipelineError

ROUNDS = rounds(8)
BATCHES, ROWS = 6, 3
WATCHED = (str(Path(tables.__file__).parent),)


class Killed(BaseException):
    """The process ended here: nothing that it would have done at its end is done."""


class Mortal(LocalFiles):
    """Files for a process that ends before its next change when its changes are used up."""

    def __init__(self, changes: int | None = None) -> None:
        self.left = changes

    def _change(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed

    def create(self, path: str, text: str) -> bool:
        self._change()
        return super().create(path, text)

    def replace(self, path: str, text: str) -> None:
        self._change()
        super().replace(path, text)

    def remove(self, path: str) -> None:
        self._change()
        super().remove(path)


class Watched(LocalFiles):
    """Files for somebody who is interrupted when he has listed a directory for the nth time."""

    def __init__(self, directory: str, meanwhile: Callable[[], object], nth: int = 1) -> None:
        self._directory = directory
        self._meanwhile = meanwhile
        self._left = nth

    def names(self, directory: str) -> list[str]:
        found = super().names(directory)
        if directory == self._directory:
            self._left -= 1
            if self._left == 0:
                self._meanwhile()
        return found


class Stream:
    """A query on a table: what Spark keeps of it, and its runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.done = -1
        self._runs = 0

    def run(self, files: Files, *, is_locked: bool = True) -> None:
        table = Table(files, self.directory)
        self._runs += 1
        run = f"run{self._runs}"
        with Lock(files, self.directory) if is_locked else nullcontext():
            last = table.last_batch()
            for batch in range(self.done + 1, BATCHES):
                if batch > last:
                    self._write(files, table, batch, run)
                self.done = max(self.done, batch)

    def _write(self, files: Files, table: Table, batch: int, run: str) -> None:
        place = table.place_of(Number(batch), run)
        for row in range(ROWS):
            files.replace(f"{place}/part-{row}.parquet", json.dumps([batch * ROWS + row]))
        document = {"files": table.listed(place)}
        table.commit(Number(batch), document)
        table.clear(batch, document)


class Compaction:
    """One attempt at a compaction, step by step."""

    def __init__(self, files: Files, directory: str, run: str) -> None:
        self._files = files
        self._directory = directory
        self._run = run
        self._table = Table(files, directory)

    def stage(self, snapshot: Snapshot, large: int = 0) -> None:
        """A file that is large enough stays where it is: each fourth one, from the one of this
        index."""
        self.number = snapshot.next_compaction()
        place = self._table.place_of(self.number, self._run)
        kept = snapshot.files[large::4]
        small = [file for file in snapshot.files if file not in kept]
        rows = rows_of(self._files, self._directory, small)
        self._files.replace(f"{place}/part-0.parquet", json.dumps(rows))
        self._listed = [*kept, *self._table.listed(place)]

    def commit(self) -> None:
        self._table.commit(self.number, {"files": self._listed, "at": 0})


def compact(
    files: Files, directory: str, run: str, *, is_locked: bool = True, large: int = 0
) -> None:
    """Without its lock, it is taken for dead as a reader too."""
    table, attempt = Table(files, directory), Compaction(files, directory, run)
    with Lock(files, directory, "compact") if is_locked else nullcontext():
        with table.reading() if is_locked else nullcontext(table.snapshot()) as snapshot:
            if snapshot.last_batch >= 0:
                attempt.stage(snapshot, large)
                attempt.commit()
        table.sweep()


def rows_of(files: Files, directory: str, listed: list[dict[str, object]]) -> list[int]:
    return [row for file in listed for row in json.loads(files.read(f"{directory}/{file['path']}"))]


def read(directory: str) -> int:
    """Reads a table as it is, checks that it is whole, and gives its last batch."""
    files = LocalFiles()
    with Table(files, directory).reading() as snapshot:
        rows = rows_of(files, directory, snapshot.files)
        assert sorted(rows) == list(range((snapshot.last_batch + 1) * ROWS))
        return snapshot.last_batch


def again_and_again(act: Callable[[], object], *more: type[Exception], times: int = 4) -> None:
    """A schedule beside jobs that are killed, or refused since another one is at it."""
    for _ in range(times):
        with suppress(Killed, PipelineError, *more):
            act()


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("is_locked", [True, False], ids=["locked", "taken for dead"])
def test_every_row_is_there_once_whoever_is_killed(
    tmp_path: Path, seed: int, is_locked: bool
) -> None:
    """Two runs of a stream, three compactions, a sweep and a reader; without locks all of them do
    write, and those who were taken for dead commit after what they read was removed."""
    rng = random.Random(seed)
    stream = Stream(tmp_path)
    seen = [-1]

    def mortal() -> Mortal:
        return Mortal(rng.randrange(60))

    def reader() -> None:
        for _ in range(4):
            last = read(stream.directory)
            assert last >= seen[-1]
            seen.append(last)

    # Whoever is taken for dead may find files gone: of a batch that another has committed, or
    # of what another has compacted.
    may_fail = () if is_locked else (FileNotFoundError,)

    def writer() -> None:
        again_and_again(lambda: stream.run(mortal(), is_locked=is_locked), *may_fail)

    def compactor() -> None:
        def work() -> None:
            run, large = f"c{rng.random()}"[3:], rng.randrange(4)
            compact(mortal(), stream.directory, run, is_locked=is_locked, large=large)

        again_and_again(work, *may_fail)

    def sweeper() -> None:
        again_and_again(Table(mortal(), stream.directory).sweep, times=8)

    # Now and then one goes on for long: whoever waits meanwhile is late by compactions and sweeps.
    counts = [rng.randint(1, 120) * rng.choice((1, 1, 1, 30)) for _ in range(600)]
    works = (writer, reader, compactor, writer, compactor, sweeper, compactor)
    take_turns(counts, WATCHED, *works)
    stream.run(LocalFiles())
    assert read(stream.directory) == BATCHES - 1
    compact(LocalFiles(), stream.directory, "last")
    assert read(stream.directory) == BATCHES - 1
    table = Table(LocalFiles(), stream.directory)
    snapshot = table.snapshot()
    assert table.unnamed(snapshot) == []
    assert snapshot.superseded == []
    assert len(os.listdir(tmp_path / "_manifest")) == 1


def batches(directory: Path, count: int) -> tuple[Stream, Table]:
    """A table of some batches."""
    stream = Stream(directory)
    table = Table(LocalFiles(), stream.directory)
    for batch in range(count):
        stream._write(LocalFiles(), table, batch, "a")
    return stream, table


def test_what_a_compaction_has_staged_stays_until_its_number_is_committed(tmp_path: Path) -> None:
    """It was taken for dead, what it had staged was removed, and it committed: after the next sweep
    no file was left."""
    stream, table = batches(tmp_path, 2)
    early, late = (Compaction(LocalFiles(), stream.directory, run) for run in ("b", "c"))
    early.stage(table.snapshot())
    early.commit()
    stream._write(LocalFiles(), table, 2, "a")
    late.stage(table.snapshot())
    table.sweep()
    late.commit()
    table.sweep()
    assert read(stream.directory) == 2


def test_of_compactions_of_one_snapshot_one_is_committed(tmp_path: Path) -> None:
    """The second kept a file where it was that the first had put together with others, and that
    was removed; a batch between them made them two numbers."""
    stream, table = batches(tmp_path, 2)
    early, late = (Compaction(LocalFiles(), stream.directory, run) for run in ("b", "c"))
    early.stage(table.snapshot(), large=0)
    stream._write(LocalFiles(), table, 2, "a")
    late.stage(table.snapshot(), large=1)
    early.commit()
    table.sweep()
    with pytest.raises(PipelineError, match="has another compacted-0 already"):
        late.commit()
    table.sweep()
    assert read(stream.directory) == 2
    assert table.unnamed(table.snapshot()) == []


def test_a_compaction_that_commits_after_its_number_was_removed_counts_no_more(
    tmp_path: Path,
) -> None:
    stream, table = batches(tmp_path, 2)
    late = Compaction(LocalFiles(), stream.directory, "late")
    late.stage(table.snapshot(), large=1)
    for run in ("b", "c"):
        compact(LocalFiles(), stream.directory, run)
    assert os.listdir(tmp_path / "_manifest") == ["compacted-1.json"]
    late.commit()
    assert read(stream.directory) == 1
    table.sweep()
    assert read(stream.directory) == 1
    assert os.listdir(tmp_path / "_manifest") == ["compacted-1.json"]


def test_a_batch_that_is_committed_after_it_was_compacted_takes_nothing_away(
    tmp_path: Path,
) -> None:
    """The writer was taken for dead; it removed the other attempt at the batch, of which the
    compaction had kept a file."""
    stream, table = batches(tmp_path, 2)
    files, place = LocalFiles(), table.place_of(Number(1), "late")
    for row in range(ROWS):
        files.replace(f"{place}/part-{row}.parquet", json.dumps([ROWS + row]))
    document = {"files": table.listed(place)}
    # The first file of batch 1 is large enough.
    compact(files, stream.directory, "c", large=ROWS)
    table.commit(Number(1), document)
    table.clear(1, document)
    assert read(stream.directory) == 1
    table.sweep()
    assert read(stream.directory) == 1
    assert table.unnamed(table.snapshot()) == []


def test_what_is_committed_after_a_sweep_has_looked_is_not_removed(tmp_path: Path) -> None:
    """Its place was listed, and not in the manifest as the sweep had listed it before."""
    stream, _ = batches(tmp_path, 2)

    def meanwhile() -> None:
        compaction = Compaction(LocalFiles(), stream.directory, "b")
        compaction.stage(Table(LocalFiles(), stream.directory).snapshot())
        compaction.commit()

    files = Watched(f"{tmp_path}/_manifest", meanwhile)
    Table(files, stream.directory).sweep()
    assert read(stream.directory) == 1


def test_two_sweeps_at_once_do_not_hurt_each_other(tmp_path: Path) -> None:
    """The slower one ended with the name of a file that the other had removed."""
    stream, table = batches(tmp_path, 2)
    for run in ("b", "c"):
        compaction = Compaction(LocalFiles(), stream.directory, run)
        compaction.stage(table.snapshot())
        compaction.commit()
    swept: list[bool] = []

    def meanwhile() -> None:
        table.sweep()
        swept.append(True)

    files = Watched(f"{tmp_path}/_manifest", meanwhile, nth=2)
    Table(files, stream.directory).sweep(replaced_before_ms=0)
    assert swept == [True]
    assert read(stream.directory) == 1


def test_who_begins_to_read_while_a_sweep_begins_loses_nothing(tmp_path: Path) -> None:
    """The sweep asked for readers, then one began, and then it looked what was to be removed."""
    stream, table = batches(tmp_path, 2)
    compact(LocalFiles(), stream.directory, "b")
    stream._write(LocalFiles(), table, 2, "a")
    reading = table.reading()
    found: list[Snapshot] = []

    def meanwhile() -> None:
        found.append(reading.__enter__())
        compaction = Compaction(LocalFiles(), stream.directory, "c")
        compaction.stage(found[0], large=1)
        compaction.commit()

    Table(Watched(f"{tmp_path}/_readers", meanwhile), stream.directory).sweep()
    assert len(rows_of(LocalFiles(), stream.directory, found[0].files)) == 3 * ROWS
    reading.__exit__(None, None, None)


def test_a_listing_that_a_compaction_came_into_is_made_again(tmp_path: Path) -> None:
    """Large directories are listed in pieces: batches were missed that were there no more."""
    stream, table = batches(tmp_path, 2)
    compaction = Compaction(LocalFiles(), stream.directory, "b")
    compaction.stage(table.snapshot())
    stream._write(LocalFiles(), table, 2, "a")

    def meanwhile() -> None:
        compaction.commit()
        table.sweep()

    class InPieces(Watched):
        def names(self, directory: str) -> list[str]:
            return [name for name in super().names(directory) if Path(directory, name).exists()]

    files = InPieces(f"{tmp_path}/_manifest", meanwhile)
    assert Table(files, stream.directory).snapshot().last_batch == 2


def test_a_compaction_is_of_what_was_listed_and_not_of_what_came_meanwhile(tmp_path: Path) -> None:
    """The batch that was archived between two looks was deleted, and audit found nothing."""
    stream, table = batches(tmp_path, 2)
    compaction = Compaction(LocalFiles(), stream.directory, "c")
    with table.reading() as snapshot:
        stream._write(LocalFiles(), table, 2, "a")
        compaction.stage(snapshot)
        assert compaction.number == Number(1, 0)
        compaction.commit()
    table.sweep()
    assert read(stream.directory) == 2


def test_what_a_reader_has_listed_stays_until_it_has_read(tmp_path: Path) -> None:
    files = LocalFiles()
    stream = Stream(tmp_path)
    stream.run(files)
    table = Table(files, stream.directory)
    with table.reading() as snapshot:
        compact(files, stream.directory, "c")
        assert len(rows_of(files, stream.directory, snapshot.files)) == BATCHES * ROWS
    table.sweep()
    gone = [f for f in snapshot.files if not (tmp_path / f["path"]).exists()]
    assert len(gone) == len(snapshot.files) * 3 // 4


def test_what_a_compaction_has_replaced_stays_for_who_reads_a_lake(tmp_path: Path) -> None:
    """Readers of Delta and Iceberg say nothing to us, and their files were gone."""
    clock, files = ManualClock(wall_ms=0), LocalFiles()
    stream, table = Stream(tmp_path), Table(LocalFiles(), str(tmp_path), clock=clock)

    def batch(number: int) -> str:
        stream._write(files, table, number, "a")
        return f"batch={number}-a/part-1.parquet"

    def compacted(run: str) -> str:
        with table.reading() as snapshot:
            number, place = snapshot.next_compaction(), f"{run}.parquet"
            kept = snapshot.files[:1]
            rows = rows_of(files, stream.directory, snapshot.files[1:])
            files.replace(f"{table.place_of(number, run)}/{place}", json.dumps(rows))
            new = table.listed(table.place_of(number, run))
            table.commit(number, {"files": [*kept, *new], "at": clock.wall_ms()})
        return str(new[0]["path"])

    def there(*paths: str) -> list[bool]:
        return [(tmp_path / path).exists() for path in paths]

    old = [batch(0), batch(1), compacted("b")]
    clock.advance(10)
    # The first without a batch between: its place is beside the one of what it replaces.
    new = [compacted("c"), batch(2), compacted("d")]
    table.sweep(replaced_before_ms=0)
    assert all(there(*old, *new))
    assert table.unnamed(table.snapshot()) == []
    table.sweep(replaced_before_ms=10)
    assert there(*old, *new) == [False, False, True, True, True, True]
    assert read(stream.directory) == 2
    table.sweep(replaced_before_ms=11)
    assert there(*old, *new) == [False] * 5 + [True]
    assert read(stream.directory) == 2


def test_a_reader_that_died_is_forgotten(tmp_path: Path) -> None:
    """At once on this machine; one of another, of which nobody knows, after a day."""
    files, clock, directory = LocalFiles(), ManualClock(wall_ms=0), str(tmp_path)
    with killed(Reader(files, directory, clock)):
        assert has_readers(files, directory, clock)
    assert os.listdir(tmp_path / "_readers") != []
    assert not has_readers(files, directory, clock)
    assert os.listdir(tmp_path / "_readers") == []
    reader = Reader(files, directory, clock)
    with killed(reader):
        elsewhere(Path(reader.path))
    assert has_readers(files, directory, clock)
    clock.advance(86_400_000)
    assert not has_readers(files, directory, clock)


def test_a_process_that_ends_takes_back_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another container each `read_table` kept for a day what `latest` writes anew each hour."""
    at_exit: list[tuple[Callable[..., None], str, int]] = []
    monkeypatch.setattr(atexit, "register", lambda *given: at_exit.append(given))
    _, table = batches(tmp_path, 2)
    for _ in range(2):
        table.snapshot_for_process()
    [(remove, path, pid)] = at_exit
    remove(path, pid + 1)
    assert os.listdir(tmp_path / "_readers") == [Path(path).name]
    for _ in range(2):
        remove(path, pid)
    assert os.listdir(tmp_path / "_readers") == []


class ReadOnly(LocalFiles):
    """A file system that is mounted so: what is not there cannot be removed either."""

    def replace(self, path: str, text: str) -> None:
        raise OSError(errno.EROFS, "Read-only file system", path)

    def remove(self, path: str) -> None:
        raise OSError(errno.EROFS, "Read-only file system", path)


def test_a_table_that_can_only_be_read_is_read(tmp_path: Path) -> None:
    """`audit`, `restore` and `reading_table` failed at their end."""
    stream, _ = batches(tmp_path, 2)
    with Table(ReadOnly(), stream.directory).reading() as snapshot:
        assert snapshot.last_batch == 1


class OfOneUser(LocalFiles):
    """Files for somebody who may read the marks of another user, or not even that."""

    def __init__(self, *, may_read: bool) -> None:
        self._may_read = may_read

    def read(self, path: str) -> str:
        if not self._may_read and "/_readers/" in path:
            raise PermissionError(13, "Permission denied", path)
        return super().read(path)

    def remove(self, path: str) -> None:
        if "/_readers/" in path:
            raise PermissionError(13, "Permission denied", path)
        super().remove(path)


def test_a_reader_of_another_user_does_not_keep_a_table_from_being_written(tmp_path: Path) -> None:
    """The next writer removes what `read_table` leaves behind: one that was not allowed to failed
    behind each commit."""
    clock, directory = ManualClock(wall_ms=0), str(tmp_path)
    reader = Reader(LocalFiles(), directory, clock)
    with reader:
        assert has_readers(OfOneUser(may_read=False), directory, clock)
    with killed(reader):
        pass
    assert not has_readers(OfOneUser(may_read=True), directory, clock)


@contextmanager
def killed(holder: AbstractContextManager[object]) -> Iterator[None]:
    """Dies with what it holds."""
    with suppress(Killed), holder:
        yield
        raise Killed


def elsewhere(path: Path) -> None:
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "host": "another"}))


def test_what_was_given_to_read_stays_until_the_process_has_ended(tmp_path: Path) -> None:
    """`read_table` gives a frame, of which nobody knows when it is read for the last time."""
    files = LocalFiles()
    stream, table = batches(tmp_path, 2)
    snapshots = [table.snapshot_for_process() for _ in range(2)]
    assert len(os.listdir(tmp_path / "_readers")) == 1
    compact(files, stream.directory, "c")
    for snapshot in snapshots:
        assert len(rows_of(files, stream.directory, snapshot.files)) == 2 * ROWS
    [mark] = (tmp_path / "_readers").iterdir()
    document = json.loads(mark.read_text())
    mark.write_text(json.dumps({**document, "started": "0"}))
    table.sweep()
    assert sorted(os.listdir(tmp_path / "_manifest")) == ["compacted-0.json"]


def test_who_reads_a_directory_that_is_none_makes_none(tmp_path: Path) -> None:
    table = Table(LocalFiles(), str(tmp_path / "mistyped"))
    assert table.snapshot_for_process().files == []
    with table.reading() as snapshot:
        assert snapshot.last_batch == -1
    assert os.listdir(tmp_path) == []


def test_a_batch_that_is_gone_from_the_manifest_is_missed(tmp_path: Path) -> None:
    stream, files = Stream(tmp_path), LocalFiles()
    stream.run(files)
    (tmp_path / "_manifest/batch-2.json").unlink()
    with pytest.raises(PipelineError, match="has no batch 2 in its manifest"):
        read(stream.directory)
    (tmp_path / "_manifest/batch-0.json").unlink()
    with pytest.raises(PipelineError, match="has no batch 0 in its manifest"):
        read(stream.directory)


def test_two_runs_do_not_write_at_once(tmp_path: Path) -> None:
    files, directory = LocalFiles(), str(tmp_path)
    with Lock(files, directory) as lock:
        with pytest.raises(PipelineError, match=f"written to by process {os.getpid()} on "):
            Lock(files, directory).take()
        with Lock(files, directory, "compact"):
            pass
    with Lock(files, directory) as next_lock:
        assert next_lock.epoch == lock.epoch + 1
    assert sorted(os.listdir(tmp_path / "_lock")) == [
        "compact-0.done", "compact-0.json", "write-1.done", "write-1.json",
    ]  # fmt: skip


def test_a_lock_whose_number_is_free_again_is_not_taken_beside_a_later_one(tmp_path: Path) -> None:
    """Two runs had it: since the first one had looked, others had come, gone and tidied up."""
    files, directory = LocalFiles(), str(tmp_path)
    with Lock(files, directory):
        pass
    with ExitStack() as held:

        def meanwhile() -> None:
            with Lock(files, directory):
                pass
            held.enter_context(Lock(files, directory))

        late = Lock(Watched(f"{directory}/_lock", meanwhile), directory)
        with pytest.raises(PipelineError, match="is being written to"):
            late.take()
        assert os.listdir(tmp_path / "_lock") == ["write-2.json"]


def test_one_who_was_killed_has_nothing(tmp_path: Path) -> None:
    files, directory = LocalFiles(), str(tmp_path)
    with killed(Lock(files, directory)):
        pass
    with Lock(files, directory) as lock:
        assert lock.epoch == 1


@pytest.mark.parametrize("beats", [True, False])
def test_one_on_another_machine_is_watched(tmp_path: Path, beats: bool) -> None:
    """Its process cannot be asked after; what it writes tells."""
    files, directory = LocalFiles(), str(tmp_path)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if beats and len(waited) == 3:
            files.replace(f"{directory}/_lock/write-0.beat", "1")

    with killed(Lock(files, directory)):
        elsewhere(tmp_path / "_lock/write-0.json")
    other = Lock(files, directory, wait=wait)
    if beats:
        with pytest.raises(PipelineError, match="on another"):
            other.take()
        assert len(waited) == 3
    else:
        other.take()
        assert other.epoch == 1
        assert sum(waited) == 30


def test_a_process_is_told_from_another_with_its_number() -> None:
    mine = Owner.here()
    assert mine.is_alive() is False
    with held(mine):
        assert mine.is_alive() is True
    parent = replace(mine, pid=os.getppid(), started=owners._started(os.getppid()))
    assert parent.is_alive() is True
    later = replace(parent, started="0")
    assert later.is_alive() is False
    assert Owner(mine.host, "another boot", 1, "0", "").is_alive() is None
    # In another container it may have any number here, or none.
    assert replace(parent, namespace="pid:[1]").is_alive() is None
    assert replace(later, namespace="pid:[1]").is_alive() is None


@contextmanager
def held(owner: Owner) -> Iterator[None]:
    owners._held.add(owner.token)
    yield
    owners._held.discard(owner.token)


def test_a_table_that_is_written_anew_has_its_newest_rows_only(tmp_path: Path) -> None:
    files, directory = LocalFiles(), str(tmp_path)
    table = Table(files, directory)
    for number in range(3):
        place = table.place_of(Number(number), "a")
        files.replace(f"{place}/part-0.parquet", json.dumps([number]))
        table.commit(Number(number), {"files": table.listed(place), "complete": True})
        assert rows_of(files, directory, table.snapshot().files) == [number]
        table.sweep()
    assert sorted(os.listdir(tmp_path)) == ["_manifest", "batch=2-a"]


def test_what_is_of_no_pipeline_is_never_removed(tmp_path: Path) -> None:
    """`latest` and `query` wiped what was hidden in a directory."""
    files = LocalFiles()
    names = (".git/HEAD", "_notes/a.txt", "batch=0/b.parquet", "batch=x/c", "photographs/d")
    for name in names:
        files.replace(f"{tmp_path}/{name}", "")
    stream = Stream(tmp_path)
    stream.run(files)
    compact(files, stream.directory, "c")
    assert all((tmp_path / name).exists() for name in names)


def test_compactions_of_an_earlier_version_are_not_passed_over(tmp_path: Path) -> None:
    """A table that an earlier version has compacted reads as an empty one."""
    manifest = tmp_path / "orders" / "_manifest"
    manifest.mkdir(parents=True)
    (manifest / "compacted-41.0.json").write_text("{}", encoding="utf-8")
    with pytest.raises(PipelineError, match="compacted by an earlier version"):
        Table(LocalFiles(), str(manifest.parent)).snapshot()
