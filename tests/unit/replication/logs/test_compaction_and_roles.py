"""A round of compaction in which the broker's role changes, or the replica goes elsewhere.

As in Apache Kafka a change of roles alone leaves a round at work: the records are the same. A
follower that cuts its log, a deletion, a move to another directory and a failed disk end it.
"""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.late_background import LateBackground
from tests.unit.replication.fakes import Cluster

from odradek.model import AppendOrigin, TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.records.reader import iter_records
from odradek.storage import OsFileSystem
from odradek.storage.log.log import Log

A = TopicPartition("orders", 0)
SETTINGS = {
    "cleanup_policy": "compact",
    "segment_bytes": "300",
    "index_interval_bytes": "100",
    "min_cleanable_dirty_ratio": "0.01",
    "file_delete_delay_ms": "10",
}
BACKOFF_MS = 15_000
Contents = list[tuple[int, bytes | None, bytes | None]]


def batch(number: int, value: bytes) -> memoryview:
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, b"k%d" % (number % 3), value)
    return memoryview(bytearray(builder.build()))


def append(cluster: Cluster, numbers: range, value: bytes) -> None:
    partition = cluster.replicas.partition(A)
    for n in numbers:
        partition.append_to_leader([batch(n, value + b" %d" % n)], AppendOrigin.CLIENT, 0)
        partition.maybe_increment_leader_high_watermark()


def contents(log: Log) -> Contents:
    found: Contents = []
    for segment in log.segments.all():
        data = segment.read(0, segment.size_bytes)
        found += [(each.offset, each.key, each.value) for each in iter_records(data)]
    return found


class World:
    """A broker whose log is being compacted, step by step."""

    def __init__(self, root: Path) -> None:
        self.background = LateBackground(is_late=False)
        self.directories = [str(root / name) for name in "ab"]
        self.cluster = Cluster(
            self.directories[0],
            file_system=OsFileSystem(64, durable=False),
            more_directories=self.directories[1:],
            background=self.background,
        )
        self.cluster.create("orders", **SETTINGS)
        append(self.cluster, range(12), b"old")
        self.log = self.cluster.replicas.partition(A).leader_log()
        self.log.appender.roll()
        self.background.is_late = True
        self.cleaner = self.cluster.log_manager.cleaner
        self.cleaner.look()

    def half_written(self) -> list[str]:
        """The files of a round that nobody has ended, but in a log that is on its way out."""
        return [
            name
            for directory in self.directories
            for path, _, names in os.walk(directory)
            for name in names
            if name.endswith((".cleaned", ".swap")) and not path.endswith("-delete")
        ]

    def settle(self) -> None:
        """The round ends, and those that come of it."""
        self.background.catch_up()
        assert self.cleaner.running == 0
        assert self.cleaner.uncleanable == frozenset()
        assert self.half_written() == []


def interrupted(root: Path, number: int, change: Callable[[World], None]) -> tuple[World, bool]:
    """A world after a round into which the change came behind its first `number` steps; whether
    there were as many."""
    world = World(root / str(number))
    is_under_way = all(world.background.try_step() for _ in range(number))
    change(world)
    world.settle()
    return world, is_under_way


def follow(world: World) -> None:
    world.cluster.change("orders", leader=2, leader_epoch=1)


def follow_and_lead_again(world: World) -> None:
    follow(world)
    world.cluster.change("orders", leader=1, leader_epoch=2)


def resign(world: World) -> None:
    world.cluster.replicas.resign()


@pytest.mark.parametrize("change", [follow, follow_and_lead_again, resign])
def test_a_change_of_roles_leaves_a_round_at_work(
    tmp_path: Path, change: Callable[[World], None]
) -> None:
    """A log whose leader changes often would never be compacted; or lose more than it may."""
    for number in itertools.count():
        world, is_under_way = interrupted(tmp_path, number, change)
        assert contents(world.log) == [(n, b"k%d" % (n % 3), b"old %d" % n) for n in (9, 10, 11)]
        assert world.log.cleaned_offset == 12
        world.cluster.close()
        if not is_under_way:
            break
    assert number > 10


def test_a_follower_that_cuts_its_log_keeps_nothing_of_what_it_cut(tmp_path: Path) -> None:
    """Records that were cut would come back, and acknowledged ones of the new leader vanish."""

    def follow_and_cut(world: World) -> None:
        follow(world)
        world.log.truncate_to(5)
        world.cluster.change("orders", leader=1, leader_epoch=2)
        append(world.cluster, range(5, 9), b"new")
        written.append(contents(world.log))

    written: list[Contents] = []
    for number in itertools.count():
        world, is_under_way = interrupted(tmp_path, number, follow_and_cut)
        assert contents(world.log) == written.pop(), f"after {number} steps"
        world.cluster.close()
        if not is_under_way:
            break
    assert number > 10


def delete(world: World) -> None:
    world.cluster.delete("orders")


def leave(world: World) -> None:
    world.cluster.change("orders", replicas=(2,), isr=(2,), leader=2, leader_epoch=1)


@pytest.mark.parametrize("change", [delete, leave])
def test_a_replica_that_goes_takes_its_round_along(
    tmp_path: Path, change: Callable[[World], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Its files would stay, and a step that finds them gone would take the log directory offline;
    the replica that comes back would hold records of the one before."""
    for number in itertools.count():
        world, is_under_way = interrupted(tmp_path, number, change)
        cluster = world.cluster
        assert cluster.log_manager.offline_dirs == [], f"after {number} steps"
        cluster.wait(1_000)
        left = [each for path in world.directories for each in os.listdir(path)]
        assert not [each for each in left if A.topic in each]
        cluster.create("orders", **SETTINGS)
        append(cluster, range(3), b"new")
        cluster.wait(BACKOFF_MS)
        log = cluster.replicas.partition(A).leader_log()
        assert contents(log) == [(n, b"k%d" % n, b"new %d" % n) for n in range(3)]
        cluster.close()
        if not is_under_way:
            break
    assert number > 10
    assert not caplog.records


def test_a_log_that_moves_is_left_as_it_is_until_it_is_there(tmp_path: Path) -> None:
    """The copy would have records of which the log itself has forgotten the deletion, or lack the
    offsets that compaction has taken."""

    def move(world: World) -> None:
        before.append(contents(world.log))
        world.cluster.replicas.log_dir_moves.alter(A, world.directories[1])

    before: list[Contents] = []
    for number in itertools.count():
        world, is_under_way = interrupted(tmp_path, number, move)
        cluster = world.cluster
        assert contents(world.log) == before[-1], f"after {number} steps"
        while len(cluster.log_manager.futures):
            cluster.wait(1)
        moved = cluster.replicas.partition(A).leader_log()
        assert moved is not world.log
        assert contents(moved) == before.pop(), f"after {number} steps"
        moved.appender.roll()
        cluster.wait(BACKOFF_MS)
        assert [offset for offset, _, _ in contents(moved)] == [9, 10, 11]
        cluster.close()
        if not is_under_way:
            break
    assert number > 10


def test_a_step_that_comes_late_ends_in_the_log_that_was_moved_away(tmp_path: Path) -> None:
    """The new log would get the cleaned segments of the one before, or its directory fail."""
    for number in itertools.count():
        world = World(tmp_path / str(number))
        background, cluster = world.background, world.cluster
        is_under_way = all(background.try_step() for _ in range(number))
        late = list(background.work)
        background.work.clear()
        background.is_late = False
        cluster.replicas.log_dir_moves.alter(A, world.directories[1])
        while len(cluster.log_manager.futures):
            cluster.wait(1)
        moved = cluster.replicas.partition(A).leader_log()
        before = contents(moved)
        for step in late:
            step()
        assert contents(moved) in (before, before[-3:]), f"after {number} steps"
        assert cluster.log_manager.offline_dirs == []
        world.settle()
        cluster.close()
        if not is_under_way:
            break
    assert number > 10
