"""`odradek import` into a directory that is in use, or new, stopped at every step of its own.

Its steps are the lines of its two modules and of those that write for it, and what they remove;
tried are those around each change in the directory. There the process is gone (a kill), or goes on
with what an interrupt leaves to it; then a broker starts, or the import comes again, with another
source.
"""

import linecache
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import pytest
from tests.unit.cli.data_directory.test_import import source_dir

import odradek
from odradek.cli.data_directory import import_kafka, unfinished_import
from odradek.cli.data_directory.fsck import read_metadata
from odradek.cli.main import INTERRUPTED, main
from odradek.metadata.sqlite.database import Database
from odradek.metadata.store import MetadataStoreError
from odradek.model import TopicPartition
from odradek.storage import checkpoint_file, checkpoints, files, names

FILES = {each.__file__ for each in (import_kafka, unfinished_import, checkpoint_file, files)}
# What comes before does not touch the data directory.
FIRST = "_check_identity"
CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
)
OURS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


Stop = Callable[[pytest.MonkeyPatch], None]
OnStep = Callable[[pytest.MonkeyPatch, int], None]


class Killed(BaseException):
    """The process is gone."""


class Steps:
    """Counts the steps of an import; stops it at one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, on_step: Callable[[int], None]) -> None:
        self.count = 0
        self._on_step = on_step
        self._has_begun = False
        for name in ("unlink", "rmdir"):
            patch.setattr(os, name, self._counted(getattr(os, name)))

    def step(self) -> None:
        if self._has_begun:
            self.count += 1
            self._on_step(self.count)

    def _counted(self, call: Callable[..., None]) -> Callable[..., None]:
        def counted(*arguments: object, **named: object) -> None:
            self.step()
            call(*arguments, **named)

        return counted

    def trace(self, frame: FrameType, event: str, _: object) -> object:
        code = frame.f_code
        if code.co_filename not in FILES or code.co_name.startswith("<"):
            return None
        self._has_begun = self._has_begun or code.co_name == FIRST
        # A block that ends passes its `with` again, where nothing has happened since the last line.
        if event == "line" and not _line(frame).startswith("with "):
            self.step()
        return self.trace


def _line(frame: FrameType) -> str:
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()


def kill(patch: pytest.MonkeyPatch) -> None:
    """Ends the import: the code that removes its rest would first read the metadata."""

    def read(_: Database) -> None:
        raise Killed

    patch.setattr(Database, "read", read)
    raise Killed


def kill_one_that_fails(patch: pytest.MonkeyPatch) -> None:
    """As a kill, of an import that cannot commit, or is removing what it has made."""
    kill(patch)


def interrupt(_: pytest.MonkeyPatch) -> None:
    raise KeyboardInterrupt


def refuse(_: Database, __: object) -> None:
    raise MetadataStoreError("no space left")


def watched_import(words: list[str], stop: Stop, on_step: OnStep) -> int:
    """The status of an import that may be stopped at any step, -1 if it was killed."""
    before = sys.gettrace()
    with pytest.MonkeyPatch.context() as patch:
        if stop is kill_one_that_fails:
            patch.setattr(Database, "write", refuse)
        sys.settrace(Steps(patch, partial(on_step, patch)).trace)
        try:
            return main(words)
        except Killed:
            return -1
        finally:
            sys.settrace(before)


def stopped_import(words: list[str], stop: Stop, number: int) -> int:
    """The status of an import that is stopped at step `number`."""

    def on_step(patch: pytest.MonkeyPatch, count: int) -> None:
        if count == number:
            stop(patch)

    return watched_import(words, stop, on_step)


def steps_to_stop_at(words: list[str], stop: Stop, target: Path) -> list[int]:
    """The numbers of the steps before which something has changed, and of those beside them."""
    found: set[int] = set()
    states: list[dict[Path, bytes | bool]] = []
    total = 0

    def on_step(_: pytest.MonkeyPatch, count: int) -> None:
        nonlocal total
        total = count
        del states[:-1]
        states.append({path: path.is_file() and path.read_bytes() for path in target.rglob("*")})
        # A commit changes no sizes.
        if states[-2:-1] != states[-1:]:
            found.update((count - 1, count, count + 1))

    assert watched_import(words, stop, on_step) == int(stop is kill_one_that_fails)
    assert total > 200
    return sorted(found - {0})


def entries(directory: Path) -> dict[str, dict[TopicPartition, int]]:
    """The entries of the checkpoints about the imported topic."""
    found = {}
    for name in CHECKPOINTS:
        path = directory / name
        offsets = checkpoints.parse_offsets(path.read_bytes()) if path.exists() else {}
        found[name] = {each: offsets[each] for each in OURS if each in offsets}
    return found


def state_of(directory: Path) -> frozenset[str]:
    """The names in a directory, and whether the import is done."""
    if not directory.exists():
        return frozenset()
    found = {str(path.relative_to(directory)) for path in directory.rglob("*")}
    is_done = "orders" in topics_of(directory)
    return frozenset({*found, f"done: {is_done}", str(entries(directory))})


def topics_of(directory: Path) -> list[str]:
    return [topic.name for topic in read_metadata(str(directory)).topics]


@pytest.fixture(autouse=True)
def without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves time: the steps are many, and no power fails here."""
    execute = Database._execute

    def execute_unsynced(database: Database, sql: str) -> None:
        execute(database, sql.replace("synchronous = FULL", "synchronous = OFF"))

    monkeypatch.setattr(Database, "_execute", execute_unsynced)
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A directory in use; a source with checkpoints, and one without."""
    with odradek.Broker(data_dir=str(tmp_path / "in use")) as broker:
        broker.produce("lines", "x")
    first = source_dir(tmp_path / "first", 0, 1)
    for name in CHECKPOINTS:
        offsets = dict.fromkeys(OURS, 2)
        (first / name).write_bytes(checkpoints.encode_offsets(offsets))
    source_dir(tmp_path / "second", 0)
    return tmp_path


@pytest.mark.parametrize("is_new", [False, True], ids=["in use", "new"])
@pytest.mark.parametrize("stop", [kill, kill_one_that_fails, interrupt])
def test_an_import_that_stops_anywhere_is_done_or_leaves_nothing_in_the_way(
    prepared: Path, stop: Stop, is_new: bool
) -> None:
    """Logs without metadata would be "a topic already", a committed topic would lose its logs, and
    the next import of the topic would take over offsets of this one.
    """
    target, seen = prepared / "target", set()
    words = ["import", str(prepared / "first"), "--data-dir", str(target)]

    def begin() -> None:
        shutil.rmtree(target, ignore_errors=True)
        if not is_new:
            shutil.copytree(prepared / "in use", target)

    begin()
    for number in steps_to_stop_at(words, stop, target):
        begin()
        assert stopped_import(words, stop, number) == (INTERRUPTED if stop is interrupt else -1)
        state = state_of(target)
        if state not in seen:
            seen.add(state)
            try:
                check(prepared, target, is_new=is_new, was_killed=stop is not interrupt)
            except BaseException as error:
                error.add_note(f"step {number}")
                raise
    assert len(seen) > (1 if stop is interrupt else 15)


def check(prepared: Path, target: Path, *, is_new: bool, was_killed: bool) -> None:
    """A broker finds all of the import or nothing, and so does the next import."""
    is_done = target.exists() and "orders" in topics_of(target)
    if not is_done and not was_killed:
        assert not list(target.glob("orders*"))
        assert not any(entries(target).values())
        assert target.exists() != is_new
    if target.exists():
        beside = prepared / "beside"
        shutil.copytree(target, beside)
        check_broker(beside, is_new=is_new, orders=6 if is_done else None)
        shutil.rmtree(beside)
    status = main(["import", str(prepared / "second"), "--data-dir", str(target)])
    assert status == int(is_done), "refused if, and only if, the topic is there"
    wanted = dict.fromkeys(OURS, 2) if is_done else {}
    assert entries(target) == dict.fromkeys(CHECKPOINTS, wanted)
    assert not (target / unfinished_import.FOLDER).exists()
    check_broker(target, is_new=is_new, orders=6 if is_done else 3)


def check_broker(directory: Path, *, is_new: bool, orders: int | None) -> None:
    with odradek.Broker(data_dir=str(directory)) as broker:
        if not is_new:
            assert len(broker.records("lines")) == 1
        assert ("orders" in broker.topics()) == (orders is not None)
        if orders is not None:
            assert len(broker.records("orders")) == orders


def test_a_topic_that_comes_again_begins_with_its_own_checkpoints(prepared: Path) -> None:
    """Entries of an earlier topic of that name, from a broker that was killed, would hide records
    of the imported one, or keep them from being compacted.
    """
    target = prepared / "in use"
    for name in (*CHECKPOINTS, names.CLEANER_CHECKPOINT):
        (target / name).write_bytes(checkpoints.encode_offsets(dict.fromkeys(OURS, 2)))
    assert main(["import", str(prepared / "second"), "--data-dir", str(target)]) == 0
    for name in (*CHECKPOINTS, names.CLEANER_CHECKPOINT):
        held = checkpoints.parse_offsets((target / name).read_bytes())
        assert OURS[0] not in held, name
