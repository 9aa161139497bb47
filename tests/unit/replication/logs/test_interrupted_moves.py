"""A replica moves to another directory, and each operation of that is refused, or the last one.

What was acknowledged is there at the next start, as the log of one directory, and the move ends. A
power failure leaves what was on the disk by the log's own account, whichever of the two disks is
the quicker one.
"""

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, count
from pathlib import Path

import pytest
from tests.unit.replication.logs.test_alter_log_dirs import (
    SMALL,
    A,
    Directories,
    records_of,
    wait_for_swap,
)

from odradek.errors import BrokerError, ErrorCode
from odradek.testing.faulty_files import Crashed, FaultyFileSystem
from odradek.testing.volatile_files import VolatileFileSystem

CUT_AT = 6
STARTS_AT = 2


class Life:
    """A log that moves, is cut meanwhile, and begins later; and what was promised of it."""

    def __init__(self, root: Path, files: FaultyFileSystem) -> None:
        self.directories = Directories(root)
        self.cluster = self.directories.start(files)
        self.acknowledged: dict[int, bytes] = {}
        # What was sent and not acknowledged, or was cut off.
        self.undecided: set[bytes] = set()
        self.durable = 0

    def run(self) -> None:
        cluster = self.cluster
        cluster.create("orders", **SMALL)
        self.write(12)
        self.flush()
        for _ in range(3):  # a refused move is asked for again
            with suppress(BrokerError):
                cluster.replicas.log_dir_moves.alter(A, self.directories.paths[1])
                break
        self.wait(3)
        self.cut()
        cluster.change("orders", leader_epoch=1)
        self.write(4)
        with suppress(BrokerError):
            cluster.replicas.partition(A).delete_records(STARTS_AT)
        for _ in range(4):
            self.wait(5)
            self.write(1)
            self.flush()
        cluster.wait(1100)
        self.wait(10)
        self.write(1)
        self.flush()
        cluster.wait(20)
        self.directories.stop(cluster)

    def end(self) -> None:
        """The process is gone."""
        self.cluster.replicas.shutdown()
        for directory in self.cluster.log_manager.directories:
            directory.release_lock()

    def write(self, times: int) -> None:
        for _ in range(times):
            value = b"%03d" % (len(self.acknowledged) + len(self.undecided))
            self.undecided.add(value)
            (result,) = self.cluster.produce(A, value)
            if result.error_code == ErrorCode.NONE:
                self.undecided.discard(value)
                self.acknowledged[result.base_offset] = value
            self.note_durable()

    def cut(self) -> None:
        """Another leader has less."""
        for offset in [each for each in self.acknowledged if each >= CUT_AT]:
            self.undecided.add(self.acknowledged.pop(offset))
        self.durable = min(self.durable, CUT_AT)
        log = self.cluster.log_manager.get(A)
        if log is not None:
            with suppress(BrokerError):
                log.truncate_to(CUT_AT)

    def flush(self) -> None:
        log = self.cluster.log_manager.get(A)
        if log is not None:
            with suppress(BrokerError):
                log.local.flush()
        self.note_durable()

    def wait(self, steps: int) -> None:
        for _ in range(steps):
            self.cluster.wait(1)
            self.note_durable()

    def note_durable(self) -> None:
        log = self.cluster.log_manager.get(A)
        if log is not None and log.log_directory.failure is None:
            self.durable = log.local.recovery_point

    def check(self, root: Path, below: int) -> None:
        """Starts on what is left: what was promised below an offset is there, before the move ends
        and after it, and nothing that was never sent."""
        left = Directories(root)
        cluster = left.start()
        try:
            cluster.create("orders", **SMALL)
            for go_on in (lambda: None, lambda: wait_for_swap(cluster)):
                go_on()
                log = cluster.replicas.partition(A).leader_log()
                assert log.log_start_offset <= STARTS_AT
                found = {each.offset: bytes(each.value or b"") for each in records_of(log)}
                promised = {n for n in self.acknowledged if log.log_start_offset <= n < below}
                assert {n: found.get(n) for n in promised} == {
                    n: self.acknowledged[n] for n in promised
                }
                assert {v for n, v in found.items() if self.acknowledged.get(n) != v} <= (
                    self.undecided
                )
            names = [each for each in chain(*left.found()) if not each.endswith("-delete")]
            assert names == ["orders-0"]
            (result,) = cluster.produce(A, b"more")
            assert result.error_code == ErrorCode.NONE
            assert result.base_offset > max(found, default=-1)
        finally:
            left.stop(cluster)


def refuse(code: int, files: FaultyFileSystem, number: int) -> None:
    files.errno, files.fail_at = code, number


def kill(files: FaultyFileSystem, number: int) -> None:
    files.crash_at = number


FAULTS = {
    "killed": kill,
    "ENOSPC": partial(refuse, errno.ENOSPC),
    "EIO": partial(refuse, errno.EIO),
}


def interrupted_lives(
    root: Path,
    make_files: Callable[[Path], FaultyFileSystem],
    fault: Callable[[FaultyFileSystem, int], None],
) -> Iterator[tuple[Life, FaultyFileSystem]]:
    """Lives with one fault each, at one operation after the other behind the start."""
    for number in count(1):
        place = root / f"{number}"
        place.mkdir()
        files = make_files(place)
        life = Life(place, files)
        total = files.operations + number
        fault(files, total)
        with suppress(Crashed):
            life.run()
        was_met = files.operations >= total
        files.crash_at, files.fail_at, files.has_crashed = None, None, False
        life.end()
        yield life, files
        shutil.rmtree(place)
        if not was_met:
            assert number > 100
            return


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_move_meets_a_fault_at_each_operation(tmp_path: Path, fault: str) -> None:
    """Acknowledged records would be lost, or the log be in both directories, or in none."""
    for life, files in interrupted_lives(tmp_path, lambda _: FaultyFileSystem(), FAULTS[fault]):
        with told(files):
            life.check(Path(life.directories.paths[0]).parent, below=1 << 62)


@pytest.mark.slow
def test_the_power_fails_at_each_operation_of_a_move(tmp_path: Path) -> None:
    """As above, for what was on the disk: no later change of names is there, or each, or those of
    one disk."""
    lives = tmp_path / "lives"
    lives.mkdir()
    for life, files in interrupted_lives(lives, lambda at: VolatileFileSystem(str(at)), kill):
        states = [
            (0, None),
            *((files.pending_changes, each) for each in (None, *life.directories.paths[:2])),
        ]
        for kept, quick in states:
            left = tmp_path / "left"
            files.survive(str(left), kept, zeros=False, quick=quick)
            with told(files, f"{kept} changes, of {quick}"):
                life.check(left, below=life.durable)
            shutil.rmtree(left)


@contextmanager
def told(files: FaultyFileSystem, more: str = "") -> Iterator[None]:
    """Tells where the fault came."""
    try:
        yield
    except Exception as error:
        error.add_note(f"operation {files.operations}, {more}: {files.log[-5:]}")
        raise
