"""The aborted transactions of a read, compared with a model of a log in small segments."""

import random
import struct

import pytest
from tests.unit.storage.cleaner.compacted import batches_of, marker

from odradek.testing.faulty_files import FaultyFileSystem


def fill(world, log, batches, choices):
    """Transactions of five producers, one within another; (first, marker) of the aborted ones."""
    opened: dict[int, int] = {}
    sequences = dict.fromkeys(range(1, 6), 0)
    aborted = []
    for _ in range(40):
        producer_id = choices.randint(1, 5)
        if producer_id in opened and choices.random() < 0.5:
            is_commit = choices.random() < 0.3
            first, end = opened.pop(producer_id), log.log_end_offset
            marker(world, log, producer_id, commit=is_commit)
            if not is_commit:
                aborted.append((producer_id, first, end))
            continue
        values = [b"x" * 10] * choices.randint(1, 3)
        opened.setdefault(producer_id, log.log_end_offset)
        sequence = sequences[producer_id]
        sequences[producer_id] += len(values)
        fields = {"producer_id": producer_id, "base_sequence": sequence}
        log.appender.append_as_leader([batches(*values, is_transactional=True, **fields)], 0)
    log.update_high_watermark(log.log_end_offset)
    return aborted


def reads(log):
    """Each fetch offset with each size at which its read ends with a batch, or within the next."""
    headers = [each for each in batches_of(log) if each.base_offset < log.last_stable_offset]
    for index, first in enumerate(headers):
        size_bytes = 0
        for last in headers[index : index + 8]:
            size_bytes += last.size_bytes
            for offset in {first.base_offset, first.last_offset}:
                for more in (0, 7, 8, 60):
                    yield offset, size_bytes + more


def end_of(log, found):
    """The end of the whole batches of a read, walked one by one."""
    data, end = b"".join(found.records), 0
    ends = {each.base_offset: each.last_offset + 1 for each in batches_of(log)}
    while len(data) >= 12 and len(data) >= (size := 12 + int.from_bytes(data[8:12])):
        end = ends[int.from_bytes(data[:8])]
        data = data[size:]
    return end


@pytest.mark.parametrize("interval", ["0", "200", "4096"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_read_names_what_was_aborted_among_its_records_and_nothing_behind(
    world, batches, interval, seed
):
    """Fails when a reader of committed records is shown aborted ones, or is sent the whole list."""
    log = world.log(segment_bytes="700", index_interval_bytes=interval)
    aborted = fill(world, log, batches, random.Random(seed))
    assert len(log.segments) > 3
    for offset, size_bytes in reads(log):
        found = log.read(offset, size_bytes, log.last_stable_offset, True)
        end = end_of(log, found)
        assert log.reader.end_of(found) == end
        wanted = [(who, first) for who, first, last in aborted if first < end and last >= offset]
        assert log.reader.aborted_transactions(offset, end) == wanted


@pytest.mark.leaves_damage
@pytest.mark.parametrize("shift", [-1, 1, 70])
def test_a_damaged_index_hides_no_aborted_transaction(world, batches, shift):
    """Fails when a reader of committed records is shown aborted ones, or is told that they are
    damaged, since an entry of the index names a place within a batch."""
    log = world.log(index_interval_bytes="0")
    for producer_id in range(3):
        data = batches(bytes(100), producer_id=producer_id, base_sequence=0, is_transactional=True)
        log.appender.append_as_leader([data], 0)
        marker(world, log, producer_id, commit=False)
    index = log.segments.active.offset_index
    with open(index.path, "r+b") as file:
        for number in range(index.entry_count):
            file.seek(8 * number)
            relative, position = struct.unpack(">ii", file.read(8))
            file.seek(8 * number)
            file.write(struct.pack(">ii", relative, position + shift))
    found = log.read(0, 10_000, log.last_stable_offset, True)
    assert log.reader.end_of(found) == log.log_end_offset == 6


@pytest.mark.parametrize("size_bytes", [500, 10_000])
def test_the_end_of_a_read_is_found_in_what_was_read(world, batches, size_bytes):
    """Each read of committed records would read the file once more, on the event loop."""
    files = FaultyFileSystem()
    log = world.log(world.start(files), index_interval_bytes="0")
    for _ in range(20):
        log.appender.append_as_leader([batches(bytes(100))], 0)
    log.update_high_watermark(log.log_end_offset)
    found = log.read(0, size_bytes, log.last_stable_offset, True)
    end, reads = end_of(log, found), files.reads
    assert log.reader.end_of(found) == end > 1
    assert files.reads == reads
