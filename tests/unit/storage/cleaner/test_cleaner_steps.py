"""The steps of a round of compaction: how long each is, and where it may run."""

import itertools
import os

import pytest

from odradek.background import InlineBackground
from odradek.errors import BrokerError
from odradek.records.builder import RecordBatchBuilder
from odradek.records.legacy import build_message_set
from odradek.records.reader import iter_records
from odradek.storage.cleaner.segment_cleaner import Source
from odradek.testing.faulty_files import FaultyFileSystem

COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}


class NotingBackground(InlineBackground):
    """Does everything at once; notes what each step that is for the loop does to files."""

    def __init__(self, files: FaultyFileSystem) -> None:
        self.touched: list[int] = []
        self._files = files

    def defer(self, action) -> None:
        before = self._files.operations + self._files.reads
        action()
        self.touched.append(self._files.operations + self._files.reads - before)


class StoppingBackground(InlineBackground):
    """Stops the cleaner with the step of this number, and counts on."""

    def __init__(self, number: int) -> None:
        self.cleaner = None
        self.steps = 0
        self._number = number

    def submit(self, work, on_done, on_error) -> None:
        self._count()
        super().submit(work, on_done, on_error)

    def defer(self, action) -> None:
        self._count()
        super().defer(action)

    def _count(self) -> None:
        if self.cleaner is None:
            return
        self.steps += 1
        if self.steps == self._number:
            self.cleaner.stop()


def a_batch(first: int, records: int, codec: int = 0, value: bytes = b"v" * 80) -> bytearray:
    builder = RecordBatchBuilder(codec)
    for number in range(first, first + records):
        builder.append(1, b"key-%d" % (number % 7), value, [])
    return bytearray(builder.build())


def filled(world, manager, codec: int = 0):
    """A log with a rolled segment of forty batches."""
    log = world.log(manager, **COMPACT)
    for number in range(40):
        batch = memoryview(a_batch(number * 10, 10, codec))
        assert not isinstance(log.appender.append_as_leader([batch], 0)[0], BrokerError)
    log.update_high_watermark(log.log_end_offset)
    log.appender.roll()
    return log


def source_of(tmp_path, data: bytes) -> Source:
    path = tmp_path / "segment"
    path.write_bytes(data)
    return Source(FaultyFileSystem().open(str(path)), 0)


def numbered(batches: list[bytearray], records: int) -> bytes:
    for index, batch in enumerate(batches):
        batch[:8] = (index * records).to_bytes(8)
    return b"".join(batches)


def test_what_runs_on_the_event_loop_leaves_the_disk_alone(world):
    """All clients would wait for a slow disk."""
    files = FaultyFileSystem()
    background = NotingBackground(files)
    manager = world.start(files, background=background)
    log = filled(world, manager)
    manager.cleaner.look()
    assert log.cleaned_offset == 400
    assert len(background.touched) > 10, "the work is done somewhere else"
    assert set(background.touched) == {0}


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_batches_are_unpacked_in_the_background(world, codec):
    """The loop would stand still for the milliseconds that compression takes."""
    files = FaultyFileSystem()
    background = NotingBackground(files)
    manager = world.start(files, background=background)
    log = filled(world, manager, codec)
    manager.cleaner.look()
    assert log.cleaned_offset == 400
    assert background.touched == [0], "no more than the map is cleared"


@pytest.mark.parametrize(
    ("records", "value_bytes", "codec", "slice_bytes"),
    [(1, 10, 0, 8192), (10, 80, 0, 8192), (2, 20_000, 0, 8192), (10, 80, 3, 2048)],
)
def test_a_step_ends_after_a_few_batches(tmp_path, records, value_bytes, codec, slice_bytes):
    """Requests would wait for a whole window, a millisecond where batches are small."""
    batches = [
        a_batch(n * records, records, codec, os.urandom(4) + b"v" * value_bytes) for n in range(40)
    ]
    source = source_of(tmp_path, numbered(batches, records))
    source.fill(1 << 20)
    sizes = [header.size_bytes for _, header in source.batches()]
    assert source.position == sum(sizes)
    assert sum(sizes[:-1]) < slice_bytes
    assert len(sizes) == 16 or slice_bytes <= sum(sizes)


def test_only_plain_batches_are_for_the_loop(tmp_path):
    """Batches that have to be unpacked would be taken for quick work."""
    old = bytearray(build_message_set(list(iter_records(a_batch(0, 1))), 1, 0))
    mixed = [a_batch(0, 1), a_batch(0, 1, 4), a_batch(0, 1), old, a_batch(0, 1)]
    source = source_of(tmp_path, numbered(mixed, 1))
    source.fill(1 << 20)
    turns = []
    while source.has_batch:
        is_plain = source.is_plain
        turns.append((is_plain, len(list(source.batches()))))
    assert turns == [(True, 1), (False, 1), (True, 1), (False, 1), (True, 1)]
    assert source.is_done


def test_damage_anywhere_in_a_batch_is_told_as_such(tmp_path):
    """The round would end with a mistake of ours, and the cleaner never look at the log again."""
    sound = numbered([a_batch(0, 2), a_batch(0, 2)], 2)
    second = len(sound) // 2
    damaged = [sound[:end] for end in range(second + 1, len(sound))]
    # A last batch that is as short as its length says, and too short for that.
    damaged += [sound[: second + 8] + size.to_bytes(4) + b"\2" * size for size in range(49)]
    damaged += [sound[: second + 8] + b"\xff\xff\xff\xf0" + bytes(4)]
    for data in damaged:
        source = source_of(tmp_path, data)
        with pytest.raises(BrokerError):
            walk(source)


def walk(source: Source) -> None:
    while not source.is_done:
        source.fill(1024)
        while source.has_batch:
            assert source.is_plain in (True, False)
            list(source.batches())


def test_a_round_ends_with_the_step_in_which_the_broker_stops(world):
    """A broker would not end before its compaction does."""
    for number in itertools.count(1):
        world.directories = [f"{world.directories[0].split('@')[0]}@{number}"]
        background = StoppingBackground(number)
        manager = world.start(FaultyFileSystem(), background=background)
        log = filled(world, manager)
        log.local.flush()
        background.cleaner = manager.cleaner
        manager.cleaner.look()
        if background.steps < number:
            break
        background.cleaner = None
        assert background.steps == number, "another one was begun"
        manager.shutdown()
        reopened = world.log(**COMPACT)
        assert reopened.log_end_offset == 400
        assert not [name for name in os.listdir(reopened.local.path) if name.endswith(".cleaned")]
    assert number > 10
