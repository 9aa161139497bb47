"""`odradek import` into a directory that is in use, or new, stopped at every step of its own.

Its steps are the lines of its two modules, and whatever they remove. After each of them the process
is gone (a kill), or goes on with what an interrupt leaves to it; then a broker starts, or the
import comes again, with another source.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from tests.unit.cli.data_directory.test_import import source_dir

import odradek
from odradek.cli.data_directory import import_kafka, unfinished_import
from odradek.cli.data_directory.fsck import read_metadata
from odradek.cli.main import INTERRUPTED, main
from odradek.model import TopicPartition
from odradek.storage import checkpoints, names

FILES = {import_kafka.__file__, unfinished_import.__file__}
# What comes before does not touch the data directory.
FIRST = "_check_identity"
CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
)
OURS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


class Killed(BaseException):
    """The process is gone."""


class Steps:
    """Counts the steps of an import; stops it at one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, stop_at: int, stop: Callable[[], None]) -> None:
        self.count = 0
        self.where = ""
        self._stop_at = stop_at
        self._stop = stop
        self._has_begun = False
        for name in ("unlink", "rmdir"):
            patch.setattr(os, name, self._counted(getattr(os, name)))

    def step(self, where: str) -> None:
        self.count += self._has_begun
        if self._has_begun and self.count == self._stop_at:
            self.where = where
            self._stop()

    def _counted(self, call: Callable[..., None]) -> Callable[..., None]:
        def counted(*arguments: object, **named: object) -> None:
            self.step(f"{call.__name__} {arguments}")
            call(*arguments, **named)

        return counted

    def trace(self, frame: FrameType, event: str, _: object) -> object:
        code = frame.f_code
        if code.co_filename not in FILES or code.co_name.startswith("<"):
            return None
        self._has_begun = self._has_begun or code.co_name == FIRST
        if event == "line":
            self.step(f"{code.co_name}, line {frame.f_lineno}")
        return self.trace


def kill(patch: pytest.MonkeyPatch) -> None:
    """Nothing of the import runs any more, and what was not committed is not."""
    patch.setattr(import_kafka.Import, "_leave_nothing", lambda *_: None)
    raise Killed


def interrupt(_: pytest.MonkeyPatch) -> None:
    raise KeyboardInterrupt


def stopped_import(
    words: list[str], stop_at: int, stop: Callable[[pytest.MonkeyPatch], None]
) -> tuple[int, Steps]:
    """The status of an import that is stopped at a step, -1 if it was killed."""
    before = sys.gettrace()
    with pytest.MonkeyPatch.context() as patch:
        steps = Steps(patch, stop_at, lambda: stop(patch))
        sys.settrace(steps.trace)
        try:
            return main(words), steps
        except Killed:
            return -1, steps
        finally:
            sys.settrace(before)


def entries(directory: Path) -> dict[str, dict[TopicPartition, int]]:
    """What the checkpoints have about the imported topic."""
    found = {}
    for name in CHECKPOINTS:
        path = directory / name
        offsets = checkpoints.parse_offsets(path.read_bytes()) if path.exists() else {}
        found[name] = {each: offsets[each] for each in OURS if each in offsets}
    return found


def state_of(directory: Path) -> frozenset[str]:
    """The names in a directory, and whether the import is done."""
    found = {str(path.relative_to(directory)) for path in directory.rglob("*")}
    is_done = directory.exists() and "orders" in topics_of(directory)
    return frozenset({*found, f"done: {is_done}", str(entries(directory))})


def topics_of(directory: Path) -> list[str]:
    return [topic.name for topic in read_metadata(str(directory)).topics]


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A directory in use; a source with checkpoints, and one without."""
    with odradek.Broker(data_dir=str(tmp_path / "in use")) as broker:
        broker.produce("lines", "x")
    first = source_dir(tmp_path / "first", 0, 1)
    for name in CHECKPOINTS:
        offsets = {each: 2 for each in OURS}
        (first / name).write_bytes(checkpoints.encode_offsets(offsets))
    source_dir(tmp_path / "second", 0)
    return tmp_path


@pytest.mark.parametrize("is_new", [False, True], ids=["in use", "new"])
@pytest.mark.parametrize("stop", [kill, interrupt])
def test_an_import_that_stops_anywhere_is_done_or_leaves_nothing_in_the_way(
    prepared: Path, stop: Callable[[pytest.MonkeyPatch], None], is_new: bool
) -> None:
    """Logs without metadata would be "a topic already", a committed topic would lose its logs, and
    the next import of the topic would take over offsets of this one.
    """
    target, seen = prepared / "target", set()
    words = ["import", str(prepared / "first"), "--data-dir", str(target)]
    for number in range(1, 10_000):
        if not is_new:
            shutil.copytree(prepared / "in use", target)
        status, steps = stopped_import(words, number, stop)
        if not steps.where:
            break
        state = state_of(target) if target.exists() else frozenset()
        if state not in seen:
            seen.add(state)
            try:
                assert status == (-1 if stop is kill else INTERRUPTED)
                check(prepared, target, is_new=is_new, was_killed=stop is kill)
            except BaseException as error:
                error.add_note(f"step {number}: {steps.where}")
                raise
        shutil.rmtree(target, ignore_errors=True)
    assert status == 0
    assert steps.count == number - 1 > 50
    assert len(seen) > (10 if stop is kill else 1)


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
        (target / name).write_bytes(checkpoints.encode_offsets({each: 2 for each in OURS}))
    assert main(["import", str(prepared / "second"), "--data-dir", str(target)]) == 0
    for name in (*CHECKPOINTS, names.CLEANER_CHECKPOINT):
        held = checkpoints.parse_offsets((target / name).read_bytes())
        assert OURS[0] not in held, name
