"""Opening many logs at once: in any order, on threads, with logs and disks that fail."""

import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

import pytest
from tests.rounds import rounds

from odradek.background import T, Work
from odradek.config.topic import LogConfig, parse_topic_settings
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.server.background import ThreadWorkers
from odradek.storage import File, LogManager, OsFileSystem

COUNT = 6
SMALL = LogConfig(parse_topic_settings({"segment.bytes": "300", "index.interval.bytes": "100"}))
FOUR_THREADS = {"num.recovery.threads.per.data.dir": "4"}


class ShuffledWorkers:
    """Does all pieces of all rows in an order of its own."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def run(self, rows: Sequence[Sequence[Work[T]]], threads: int) -> Iterator[T]:
        pieces = [work for row in rows for work in row]
        self._rng.shuffle(pieces)
        for work in pieces:
            results: list[T] = []
            work(results.append)
            yield from results


def partition(number: int) -> TopicPartition:
    return TopicPartition("many", number)


def write_logs(world, batches) -> dict[TopicPartition, list[bytes]]:
    """Logs of several segments in every directory, left behind by a crash."""
    manager = world.start()
    written = {}
    for number in range(COUNT):
        log = manager.get_or_create(partition(number), UUID(int=1), SMALL)
        texts = [b"%d-%03d" % (number, n) for n in range(9)]
        for text in texts:
            log.appender.append_as_leader([batches(text)], 0)
        written[log.topic_partition] = texts
    world.crash(manager)
    return written


def open_files(world) -> list[str]:
    """The files that this process holds open below the world's directories, the locks left out."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # that of the listing itself
        if path.startswith(world.directories[0]) and not path.endswith("/.lock"):
            found.append(path)
    return found


def held(manager: LogManager, values) -> dict[TopicPartition, list[bytes]]:
    return {log.topic_partition: values(log) for log in manager.logs()}


@pytest.mark.parametrize("seed", range(rounds(5)))
def test_the_order_in_which_logs_are_recovered_does_not_matter(world, batches, values, seed):
    """A log would get another one's records, offsets or directory, depending on luck."""
    world.directories.append(world.directories[0] + "2")
    written = write_logs(world, batches)
    seen = []
    manager = world.start(
        workers=ShuffledWorkers(seed),
        on_progress=lambda p: seen.append((p.loaded_logs, p.total_logs, p.checked_bytes)),
    )
    assert held(manager, values) == written
    assert seen == sorted(seen)
    assert seen[-1] == (COUNT, COUNT, sum(log.segments.size_bytes for log in manager.logs()))
    homes = [log.log_directory.path for log in manager.logs()]
    assert sorted(homes) == sorted(world.directories * (COUNT // 2))


def test_logs_are_recovered_on_threads(world, batches, values):
    """A start after a crash would use one core, or one thread would close another's files."""
    world.directories.append(world.directories[0] + "2")
    written = write_logs(world, batches)
    files = OsFileSystem(2, durable=False)
    abandoned = sorted(open_files(world))
    manager = world.start(files, FOUR_THREADS, ThreadWorkers())
    assert len(files.pool) == 0
    assert sorted(open_files(world)) == abandoned
    assert held(manager, values) == written
    assert len(files.pool) <= 2


def test_logs_are_flushed_on_threads_at_the_end(world, batches, values):
    """An orderly end would take as long as all disks one after the other."""
    world.directories.append(world.directories[0] + "2")
    written = write_logs(world, batches)
    files = OsFileSystem(2, durable=True)
    manager = world.start(files, FOUR_THREADS, ThreadWorkers())
    for log in manager.logs():
        log.appender.append_as_leader([batches(b"last")], 0)
        written[log.topic_partition].append(b"last")
    before = len(open_files(world))
    manager.shutdown()
    assert len(files.pool) == 0
    assert len(open_files(world)) < before
    for path in world.directories:
        assert os.path.exists(f"{path}/.kafka_cleanshutdown")
    assert held(world.start(), values) == written


@pytest.mark.leaves_damage
def test_a_log_that_cannot_be_read_does_not_stop_the_others(world, batches, values, caplog):
    """One damaged log would keep the broker from starting, and all other logs with it."""
    written = write_logs(world, batches)
    broken = partition(1)
    # Compaction was about to put this in place; what it replaces may be gone.
    swap = f"{world.directories[0]}/many-1/{0:020d}.log.swap"
    with open(swap, "wb") as file:
        file.write(b"\xff" * 100)
    manager = world.start(workers=ThreadWorkers())
    assert held(manager, values) == {tp: texts for tp, texts in written.items() if tp != broken}
    assert world.failed == []
    (said,) = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert "many-1 cannot be opened" in said
    assert swap in said
    with pytest.raises(BrokerError, match="many-1 could not be opened") as caught:
        manager.get_or_create(broken, UUID(int=1), SMALL)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert os.path.exists(swap)
    manager.delete(broken)
    assert not os.path.exists(swap)
    assert values(manager.get_or_create(broken, UUID(int=2), SMALL)) == []


@pytest.mark.leaves_damage
def test_a_log_that_cannot_be_read_has_the_id_of_its_topic(world):
    """The topic would get another id, and the log be set aside once it is mended."""
    manager = world.start()
    manager.get_or_create(partition(0), UUID(int=1), SMALL)
    manager.shutdown()
    folder = f"{world.directories[0]}/many-0"
    with open(f"{folder}/{0:020d}.log.swap", "wb") as file:
        file.write(b"\xff" * 100)
    manager = world.start()
    assert manager.get(partition(0)) is None
    assert manager.topic_ids == {"many": UUID(int=1)}
    os.remove(f"{folder}/partition.metadata")
    assert manager.topic_ids == {}


class HalfBrokenFileSystem(OsFileSystem):
    """Cannot read what lies below one directory."""

    def __init__(self, broken: str) -> None:
        super().__init__(64, durable=False)
        self._broken = broken
        self.refusals = 0

    def open(self, path: str, *, create: bool = False) -> File:
        if path.startswith(self._broken + "/"):
            self.refusals += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return super().open(path, create=create)


@pytest.mark.parametrize("workers", [lambda: ShuffledWorkers(3), ThreadWorkers])
def test_a_disk_that_fails_while_logs_are_opened_goes_alone(
    world, batches, values, workers: Callable[[], ShuffledWorkers | ThreadWorkers]
):
    """The broker would not start, or would serve half of a broken disk."""
    world.directories.append(world.directories[0] + "2")
    written = write_logs(world, batches)
    files = HalfBrokenFileSystem(world.directories[1])
    manager = world.start(files, {"num.recovery.threads.per.data.dir": "1"}, workers())
    assert world.failed == manager.offline_dirs == [world.directories[1]]
    assert held(manager, values) == {partition(n): written[partition(n)] for n in (0, 2, 4)}
    assert files.refusals >= 1
    with pytest.raises(BrokerError, match=r"may lie in .*data2, which is offline"):
        manager.get_or_create(partition(1), UUID(int=1), SMALL, is_new=False)
    new = manager.get_or_create(partition(COUNT), UUID(int=1), SMALL)
    assert new.log_directory.path == world.directories[0]


@pytest.mark.leaves_damage
@pytest.mark.parametrize(
    ("other", "advice"),
    [
        (b"", "whose topic id is not the topic's"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACQ", "whose topic id is not the topic's"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", "of the directory that has failed"),
    ],
)
def test_a_log_in_two_directories_is_refused_before_anything_is_opened(
    world, batches, other: bytes, advice: str
):
    """One of the two would win by luck, and the other's records would be lost without a word; who
    has put a repaired disk back would not know which of the two to take away."""
    write_logs(world, batches)
    world.directories.append(world.directories[0] + "2")
    os.makedirs(f"{world.directories[1]}/many-1")
    if other:
        with open(f"{world.directories[1]}/many-1/partition.metadata", "wb") as file:
            file.write(other)
    told = other.decode().rpartition(" ")[2] or "unknown"
    with pytest.raises(ValueError, match=rf"many-1 lies in both .*id {told}\).*{advice}"):
        world.start()
    assert len(os.listdir(f"{world.directories[1]}/many-1")) == bool(other)
