"""A partition's files are read while a real cleaner, and retention, change them.

If these fail, a Spark job over a compacted topic has fewer rows than the topic, in silence.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.rounds import rounds
from tests.unit.storage.conftest import ORDERS, World

from odradek.errors import BrokerError
from odradek.records.builder import RecordBatchBuilder
from odradek.records.reader import iter_records
from odradek.storage import Log
from odradek.tables.errors import MissingData
from odradek.tables.scan.segments import PartitionFiles
from odradek.testing.faulty_files import FaultyFileSystem

COMPACT = {
    "cleanup_policy": "compact",
    "segment_bytes": "400",
    "index_interval_bytes": "100",
    "min_cleanable_dirty_ratio": "0.01",
    "file_delete_delay_ms": "10",
}
BACKOFF_MS = 15_000


class WatchedFileSystem(FaultyFileSystem):
    """Lets somebody look at the directory before every change of it."""

    def __init__(self) -> None:
        super().__init__()
        self.before_change: Callable[[], None] = lambda: None

    def change(self, what: str, path: str, *, writes: bool = False) -> None:
        self.before_change()
        super().change(what, path, writes=writes)


class Topic:
    """A compacted partition, its files, and whoever reads them."""

    def __init__(self, world: World, files: FaultyFileSystem, **settings: str) -> None:
        self.world = world
        self.log: Log = world.log(world.start(files), **{**COMPACT, **settings})
        self.files = PartitionFiles(ORDERS, self.log.local.path)

    def fill(self, count: int, keys: int = 3) -> None:
        for _ in range(count):
            builder = RecordBatchBuilder(0)
            number = self.log.log_end_offset
            builder.append(self.world.clock.wall_ms(), b"k%d" % (number % keys), b"v%d" % number)
            (info,) = self.log.appender.append_as_leader(
                [memoryview(bytearray(builder.build()))], 0
            )
            assert not isinstance(info, BrokerError)
        self.log.update_high_watermark(self.log.log_end_offset)

    def clean(self) -> None:
        self.log.appender.roll()
        self.world.advance(BACKOFF_MS)
        self.world.advance(1000)

    def offsets(self) -> list[int]:
        """The content of the log now, by its own reckoning."""
        return [
            record.offset
            for segment in self.log.segments.all()
            for record in iter_records(segment.read(0, segment.size_bytes))
        ]

    def reader(self, start: int = 0) -> Iterator[list[int]]:
        """The offsets of a read to the end, chunk by chunk."""
        end = self.log.log_end_offset
        for chunk in self.files.read(start, end):
            found = [record.offset for record in iter_records(bytes(chunk.records))]
            yield [offset for offset in found if start <= offset < end]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World([str(tmp_path / "data")])
    yield world
    for manager in world.managers:
        world.crash(manager)


@pytest.fixture(autouse=True)
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.tables.scan.segments.READ_BYTES", 160)


def flat(chunks: Iterator[list[int]]) -> list[int]:
    return [offset for chunk in chunks for offset in chunk]


def test_a_cleaned_log_is_read_to_its_end(world) -> None:
    """Every cut of it, whatever is in the gap that it begins or ends in."""
    topic = Topic(world, FaultyFileSystem())
    topic.fill(40)
    topic.clean()
    topic.fill(3)
    kept = topic.offsets()
    assert kept == [37, 38, 39, 40, 41, 42]
    for start in range(44):
        for end in range(start, 44):
            found = [
                record.offset
                for chunk in topic.files.read(start, end)
                for record in iter_records(bytes(chunk.records))
            ]
            expected = [offset for offset in kept if start <= offset < end]
            assert [offset for offset in found if start <= offset < end] == expected


def test_whatever_the_cleaner_is_at_the_whole_log_is_there(world) -> None:
    """All that stays is there between any two changes, where a crash may leave the directory."""
    files = WatchedFileSystem()
    topic = Topic(world, files)
    topic.fill(60)
    seen: list[list[int]] = []
    files.before_change = lambda: seen.append(flat(topic.reader()))
    topic.clean()
    files.before_change = lambda: None
    kept = topic.offsets()
    assert len(seen) > 20
    for found in seen:
        assert found == sorted(set(found))
        assert set(kept) <= set(found) <= set(range(60))


def test_a_reader_in_the_middle_gets_all_that_stays(world) -> None:
    """A segment is merged with the one before it when a reader is between the two."""
    topic = Topic(world, FaultyFileSystem(), segment_bytes="1000")
    topic.fill(60, keys=50)
    readers = [topic.reader() for _ in range(60)]
    read: list[list[int]] = [[] for _ in readers]
    for steps, (found, reader) in enumerate(zip(read, readers, strict=True)):
        for _ in range(steps):
            found += next(reader, [])
    topic.clean()
    kept = topic.offsets()
    assert len(kept) == 50
    for found, reader in zip(read, readers, strict=True):
        found += flat(reader)
        assert found == sorted(set(found))
        assert set(kept) <= set(found)


@pytest.mark.parametrize("seed", range(rounds(6)))
def test_many_readers_beside_the_cleaner_lose_nothing(world, seed: int) -> None:
    """Readers that go on a step at a time, anywhere between the cleaner's own steps."""
    rng = random.Random(seed)
    files = WatchedFileSystem()
    topic = Topic(world, files, segment_bytes=str(rng.choice([250, 400, 1000])))
    topic.fill(rng.randrange(20, 80), keys=rng.randrange(1, 40))
    under_way: list[tuple[Iterator[list[int]], list[int], int]] = []

    def step() -> None:
        if rng.random() < 0.1:
            under_way.append((topic.reader(), [], topic.log.log_end_offset))
        for reader, found, _ in under_way:
            if rng.random() < 0.3:
                found += next(reader, [])

    files.before_change = step
    for _ in range(3):
        topic.fill(rng.randrange(20), keys=rng.randrange(1, 40))
        topic.clean()
    files.before_change = lambda: None
    kept = topic.offsets()
    assert len(under_way) > 3
    for reader, found, end in under_way:
        found += flat(reader)
        assert found == sorted(set(found))
        assert {offset for offset in kept if offset < end} <= set(found)


def test_segments_that_retention_took_are_missing_and_not_passed_over(world) -> None:
    """A reader that is behind retention would go on as if there had been nothing."""
    topic = Topic(world, FaultyFileSystem(), cleanup_policy="delete")
    topic.fill(60)
    reader = topic.reader()
    first = next(reader)
    topic.log.maybe_increment_log_start_offset(40)
    topic.log.delete_old_segments(world.clock.wall_ms())
    topic.world.advance(1000)
    with pytest.raises(MissingData, match="is wanted, the first is") as error:
        flat(reader)
    assert first == [0, 1]
    assert error.value.next_offset == topic.files.base_offsets()[0]


def test_a_gap_that_compaction_did_not_make_is_an_error(world) -> None:
    """A segment that somebody removed would be passed over."""
    topic = Topic(world, FaultyFileSystem(), cleanup_policy="delete")
    topic.fill(60)
    bases = topic.files.base_offsets()
    Path(topic.log.local.path, f"{bases[1]:020d}.log").unlink()
    with pytest.raises(MissingData, match="no trace of compaction") as error:
        flat(topic.reader())
    assert error.value.next_offset == bases[2]


def test_an_index_of_another_segment_is_not_believed(world) -> None:
    """Records before the position that it names would be left out."""
    topic = Topic(world, FaultyFileSystem(), segment_bytes="2000")
    topic.fill(20)
    index = Path(topic.log.local.path, f"{0:020d}.index")
    size_bytes = topic.log.segments.active.size_bytes
    for position in range(0, size_bytes + 10, 7):
        entry = (5).to_bytes(4, "big") + position.to_bytes(4, "big")
        index.write_bytes(entry)
        assert flat(topic.reader(5)) == list(range(5, 20)), position
