"""One checkpoint: what it may say after a power failure, and what lowering an entry costs."""

import errno

import pytest

from odradek.background import InlineBackground
from odradek.model import TopicPartition
from odradek.storage import names
from odradek.storage.checkpoint_file import CheckpointFile
from odradek.storage.log_directory import LogDirectory
from odradek.testing.faulty_files import Crashed
from odradek.testing.volatile_files import VolatileFileSystem

LOGS = [TopicPartition("orders", number) for number in range(1000)]
ORDERS = LOGS[0]
RECOVERY_POINTS = names.RECOVERY_POINT_CHECKPOINT


class Disk:
    """A directory of checkpoints, and what a power failure leaves of it."""

    def __init__(self, path) -> None:
        self.path = path
        (path / "root").mkdir()
        self.files = VolatileFileSystem(str(path / "root"))
        self.files.make_directory(str(path / "root" / "data"))
        self.failures = 0

    def checkpoint(self, name: str = RECOVERY_POINTS) -> CheckpointFile:
        return CheckpointFile(self.files, str(self.path / "root" / "data"), name)

    def refuse(self, doing: str, code: int) -> None:
        """Refuses the first change that is `doing`, of those that come."""
        change = self.files.change

        def refused(what: str, path: str, *, writes: bool = False) -> None:
            change(what, path, writes=writes)
            if self.files.log[-1] == doing:
                del self.files.change
                raise OSError(code, "refused", path)

        self.files.change = refused

    def entries_after_power_failure(self) -> list[dict[TopicPartition, int]]:
        """The entries in each of the states that the disk may have."""
        found = []
        for kept in range(self.files.pending_changes + 1):
            self.failures += 1
            left = self.path / f"left{self.failures}"
            self.files.survive(str(left), kept, zeros=False)
            found.append(CheckpointFile(self.files, str(left / "data"), RECOVERY_POINTS).read())
        return found


@pytest.fixture
def disk(tmp_path) -> Disk:
    return Disk(tmp_path)


def test_a_power_failure_does_not_bring_back_a_checkpoint_that_was_removed(disk):
    """It says more than is true: records that were never synced would not be checked."""
    checkpoint = disk.checkpoint()
    checkpoint.prepare({ORDERS: 100})()
    disk.files.is_full = True
    checkpoint.limit(ORDERS, 40)
    assert disk.entries_after_power_failure() == [{}]


def test_a_removal_that_cannot_be_synced_takes_the_directory_offline(disk):
    """The disk may hold one thing or the other, even where only room was missing."""
    checkpoint = disk.checkpoint()
    checkpoint.prepare({ORDERS: 100})()
    disk.files.is_full = True
    disk.refuse("sync data", errno.ENOSPC)
    with pytest.raises(OSError, match="half-way") as refused:
        checkpoint.limit(ORDERS, 40)
    assert refused.value.errno == errno.EIO


def test_a_write_whose_name_was_not_synced_is_not_relied_on(disk):
    """The file that is read has the low entry, and a power failure brings the high one back."""
    checkpoint = disk.checkpoint()
    checkpoint.prepare({ORDERS: 100})()
    disk.refuse("sync data", errno.ENOSPC)
    with pytest.raises(OSError, match="refused"):
        checkpoint.prepare({ORDERS: 30})()
    assert checkpoint.read() == {ORDERS: 30}
    assert {ORDERS: 100} in disk.entries_after_power_failure()
    checkpoint.limit(ORDERS, 40)
    assert disk.entries_after_power_failure() == [{ORDERS: 30}]


def test_a_start_makes_sure_of_the_names_that_it_reads(disk, world):
    """The last process was killed before it had synced them: a power failure, later, would bring
    back a checkpoint that this one has never seen.
    """
    disk.checkpoint().prepare({ORDERS: 100})()
    disk.files.crash_at = disk.files.operations + 4
    with pytest.raises(Crashed):
        disk.checkpoint().prepare({ORDERS: 30})()
    assert disk.files.log[-1] == "sync data"
    disk.files.has_crashed = False
    place, background = str(disk.path / "root" / "data"), InlineBackground()
    failed: list[LogDirectory] = []
    directory = LogDirectory(place, disk.files, world.clock, world.timer, background, failed.append)
    directory.open()
    directory.release_lock()
    assert directory.read_offsets(RECOVERY_POINTS) == {ORDERS: 30}
    assert {ORDERS: 100} not in disk.entries_after_power_failure()


def test_an_entry_that_is_low_enough_costs_nothing(disk):
    """A change of leaders cuts thousands of logs: each would read the whole file when it rolls."""
    checkpoint = disk.checkpoint()
    checkpoint.prepare(dict.fromkeys(LOGS, 9))()
    before = (disk.files.operations, disk.files.reads)
    for log in LOGS:
        checkpoint.limit(log, 9)
    assert (disk.files.operations, disk.files.reads) == before


@pytest.mark.parametrize(
    "name", [RECOVERY_POINTS, names.LOG_START_OFFSET_CHECKPOINT, names.CLEANER_CHECKPOINT]
)
def test_many_entries_are_lowered_in_few_writes(disk, name):
    """Each writes the whole file, on the event loop: a thousand logs would stop it for a minute.
    Log start offsets stay: deleted records would be back. So do the offsets of compaction: a copy
    that goes on would not know of tombstones that are gone.
    """
    checkpoint = disk.checkpoint(name)
    checkpoint.prepare(dict.fromkeys(LOGS, 100))()
    begin = len(disk.files.log)
    for log in LOGS[:10]:
        checkpoint.limit(log, 9)
    writes = sum(line.startswith("write") for line in disk.files.log[begin:])
    if name == RECOVERY_POINTS:
        assert writes < 10
        assert checkpoint.read() == {}
    else:
        assert checkpoint.read() == dict.fromkeys(LOGS, 100) | dict.fromkeys(LOGS[:10], 9)
    checkpoint.prepare(dict.fromkeys(LOGS, 9))()
    checkpoint.limit(ORDERS, 8)
    assert checkpoint.read() == dict.fromkeys(LOGS, 9) | {ORDERS: 8}


def test_a_write_that_waits_does_not_raise_an_entry_again(disk):
    """It was asked for before the log was cut."""
    checkpoint = disk.checkpoint()
    checkpoint.prepare({ORDERS: 5})()
    write = checkpoint.prepare({ORDERS: 100, LOGS[1]: 7})
    checkpoint.limit(ORDERS, 40)
    write()
    assert checkpoint.read() == {ORDERS: 40, LOGS[1]: 7}
