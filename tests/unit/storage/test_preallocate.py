"""`preallocate`: files have their full size from the beginning, and nobody reads the zeros."""

import os

import pytest

from odradek.kafka_files.check import DirectoryCheck
from odradek.testing.faulty_files import Crashed, FaultyFileSystem

SIZE = 1000
RESERVED = {"preallocate": "true", "segment_bytes": str(SIZE), "index_interval_bytes": "100"}


def lengths(log) -> list[int]:
    return [os.stat(segment.file.path).st_size for segment in log.segments.all()]


def fill(log, batches, count: int, first: int = 0) -> list[bytes]:
    texts = [b"%03d" % n for n in range(first, first + count)]
    for text in texts:
        (result,) = log.appender.append_as_leader([batches(text)], 0)
        assert result.first_offset >= 0
    return texts


def test_a_segment_has_its_full_size_until_it_is_closed(world, batches, values):
    """Space would run out in the midst of a segment, or closed ones waste it."""
    manager = world.start()
    log = world.log(manager, **RESERVED)
    assert lengths(log) == [SIZE]
    texts = fill(log, batches, 30)
    *closed, active = lengths(log)
    assert closed == [segment.size_bytes for segment in log.segments.all()[:-1]]
    assert len(closed) > 1
    assert active == SIZE > log.segments.active.size_bytes > 0
    assert values(log) == texts
    assert log.segments.size_bytes == sum(closed) + log.segments.active.size_bytes
    manager.shutdown()
    assert lengths(log) == [segment.size_bytes for segment in log.segments.all()]
    assert values(world.log(**RESERVED)) == texts


def test_an_empty_segment_is_cut_at_the_end_too(world):
    """A start would take the zeros for records."""
    manager = world.start()
    log = world.log(manager, **RESERVED)
    manager.shutdown()
    assert lengths(log) == [0]


@pytest.mark.parametrize("count", [0, 1, 5, 12])
def test_zeros_are_no_records_after_a_crash(world, batches, values, count, caplog):
    """The log would end in something that is no batch, or not be opened at all."""
    manager = world.start()
    log = world.log(manager, **RESERVED)
    texts = fill(log, batches, count)
    world.crash(manager)
    assert lengths(log)[-1] == SIZE
    manager = world.start()
    log = world.log(manager, **RESERVED)
    assert lengths(log) == [segment.size_bytes for segment in log.segments.all()]
    assert log.log_end_offset == count
    assert "zeros follow" in caplog.text
    texts += fill(log, batches, 8, count)
    assert values(log) == texts
    manager.shutdown()
    findings: list[object] = []
    DirectoryCheck(world.directories[0], None, findings.append).run()
    assert findings == []


def test_what_is_cut_off_is_not_read_again(world, batches, values):
    """A reader at the end would get zeros, or records that were taken back."""
    manager = world.start()
    log = world.log(manager, **RESERVED)
    fill(log, batches, 6)
    end = log.segments.active.size_bytes
    assert log.segments.active.file.read(end - 4, 100) == log.segments.active.file.read(end - 4, 4)
    assert log.segments.active.file.read(end + 10, 100) == b""
    log.truncate_to(3)
    fill(log, batches, 2, 50)
    assert values(log) == [b"000", b"001", b"002", b"050", b"051"]


def test_a_crash_at_any_operation_leaves_what_was_acknowledged(world, batches, values):
    """Between making a file, its room and its cutting, a crash would lose records."""
    for crash_at in range(1, 200):
        files = FaultyFileSystem()
        world.directories[:] = [f"{world.directories[0].partition('-at-')[0]}-at-{crash_at}"]
        manager = world.start(files)
        files.crash_at = files.operations + crash_at
        texts: list[bytes] = []
        try:
            log = world.log(manager, **RESERVED)
            for n in range(24):
                texts += fill(log, batches, 1, n)
            manager.shutdown()
        except Crashed:
            world.crash(manager)
            found = values(world.log(**RESERVED))
            assert found[: len(texts)] == texts
            assert len(found) <= len(texts) + 1
        else:
            break
    assert crash_at > 30
