"""If these fail, what a query still reads is taken away, or nothing is ever taken again."""

import random
from pathlib import Path

import pytest
from tests.late_background import LateBackground
from tests.rounds import rounds
from tests.unit.storage.conftest import read_records

from odradek.errors import BrokerError
from odradek.records.builder import RecordBatchBuilder
from odradek.storage import OsFileSystem
from odradek.storage.leases import (
    Lease,
    held_from,
    is_lease_id,
    read_leases,
    release_lease,
    write_lease,
)
from odradek.storage.names import LONGEST_LEASE_MS

FILES = OsFileSystem(8, durable=False)
SMALL = {"segment_bytes": "300", "index_interval_bytes": "100"}
DELETED = {"cleanup_policy": "delete", "retention_bytes": "0", "retention_ms": "1000", **SMALL}
COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", **SMALL}
MINUTE_MS = 60_000


def append(world, log, *keys: bytes) -> None:
    for key in keys:
        builder = RecordBatchBuilder(0)
        builder.append(world.clock.wall_ms(), key, b"value", ())
        (info,) = log.appender.append_as_leader([memoryview(bytearray(builder.build()))], 0)
        assert not isinstance(info, BrokerError), info
    log.update_high_watermark(log.log_end_offset)


def hold(world, log, offset: int, duration_ms: int = MINUTE_MS, lease_id: str = "a") -> None:
    now_ms = world.clock.wall_ms()
    lease = Lease(lease_id, "a query", offset, now_ms + duration_ms)
    write_lease(FILES, log.local.path, lease, now_ms)


def offsets(log) -> list[int]:
    return [record.offset for record in read_records(log)]


def test_a_lease_is_written_renewed_and_given_back(world) -> None:
    log = world.log(**DELETED)
    now_ms = world.clock.wall_ms()
    hold(world, log, 5)
    hold(world, log, 3, 2 * MINUTE_MS)
    assert read_leases(FILES, log.local.path) == [Lease("a", "a query", 3, now_ms + 2 * MINUTE_MS)]
    hold(world, log, 7, lease_id="b")
    assert held_from(FILES, log.local.path, now_ms) == 3
    release_lease(FILES, log.local.path, "a")
    assert held_from(FILES, log.local.path, now_ms) == 7
    assert held_from(FILES, log.local.path, now_ms + MINUTE_MS) is None
    assert read_leases(FILES, log.local.path) == []


def test_a_lease_is_an_hour_at_most(world) -> None:
    log = world.log(**DELETED)
    hold(world, log, 5, 100 * LONGEST_LEASE_MS)
    (lease,) = read_leases(FILES, log.local.path)
    assert lease.expires_ms == world.clock.wall_ms() + LONGEST_LEASE_MS
    # One of a clock that goes ahead by years is none.
    Path(log.local.path, "a.lease").write_text(
        '{"offset": 0, "owner": "", "expires_ms": 4000000000000}'
    )
    assert held_from(FILES, log.local.path, world.clock.wall_ms()) is None


def test_what_is_no_lease_holds_nothing(world) -> None:
    log = world.log(**DELETED)
    for content in ("", "[]", '{"offset": 0}', "\0" * 20):
        Path(log.local.path, "a.lease").write_text(content)
        assert held_from(FILES, log.local.path, world.clock.wall_ms()) is None
    assert not any(map(is_lease_id, ("", "../a", "a/b", "a.b", "é", "a" * 65)))


def test_retention_leaves_what_is_held(world) -> None:
    log = world.log(**DELETED)
    append(world, log, *[b"k"] * 20)
    hold(world, log, 9)
    world.advance(2000)
    log.delete_old_segments(world.clock.wall_ms())
    first = log.log_start_offset
    assert 0 < first <= 9
    assert offsets(log) == list(range(first, 20))
    assert log.delete_old_segments(world.clock.wall_ms()) == 0
    world.advance(MINUTE_MS)
    assert log.delete_old_segments(world.clock.wall_ms()) > 0
    assert log.log_start_offset == 20


def test_records_that_a_person_deletes_are_deleted(world) -> None:
    log = world.log(**DELETED)
    append(world, log, *[b"k"] * 20)
    hold(world, log, 0)
    log.maybe_increment_log_start_offset(19)
    assert log.delete_old_segments(world.clock.wall_ms()) > 0
    assert log.segments.first.base_offset > 15


def test_queries_one_after_the_other_hold_nothing_for_ever(world) -> None:
    log = world.log(**DELETED)
    append(world, log, *[b"k"] * 20)
    world.advance(2000)
    held_ms = 0
    while log.log_start_offset == 0:
        hold(world, log, 0)
        log.delete_old_segments(world.clock.wall_ms())
        world.advance(MINUTE_MS // 2)
        held_ms += MINUTE_MS // 2
        assert held_ms <= 2 * LONGEST_LEASE_MS
    assert held_ms >= LONGEST_LEASE_MS
    # The next query finds a log whose time is counted anew.
    log.delete_old_segments(world.clock.wall_ms())
    append(world, log, *[b"k"] * 20)
    start = log.log_start_offset
    hold(world, log, start)
    world.advance(2000)
    log.delete_old_segments(world.clock.wall_ms())
    assert log.log_start_offset == start


def test_compaction_leaves_what_is_held(world) -> None:
    manager = world.start()
    log = world.log(manager, **COMPACTED)
    append(world, log, *[b"k"] * 40)
    hold(world, log, 20)
    world.advance(15_000)
    kept = offsets(log)
    assert kept[-20:] == list(range(20, 40))
    # What lies below is nobody's.
    assert len(kept) < 40
    hold(world, log, 20)
    world.advance(15_000)
    assert offsets(log) == kept
    world.advance(2 * MINUTE_MS)
    assert len(offsets(log)) < 20


@pytest.mark.parametrize("seed", range(rounds(4)))
def test_a_lease_that_comes_in_the_middle_of_a_round_is_heeded(world, seed: int) -> None:
    """A round that had begun before put its segments in place, and records were gone."""
    background = LateBackground()
    manager = world.start(background=background)
    background.run()
    log = world.log(manager, **COMPACTED)
    append(world, log, *[b"k"] * 40)
    rng = random.Random(seed)
    moment = rng.randrange(1, 60)
    seen: list[int] = []
    for step in range(2_000):
        if step == moment:
            seen = offsets(log)
            hold(world, log, 0)
        if not background.work:
            world.advance(500)
        for _ in range(min(len(background.work), rng.randrange(1, 3))):
            background.step()
        if seen and world.clock.wall_ms() < read_expiry(log):
            assert offsets(log) == seen
    assert len(offsets(log)) < 40


def read_expiry(log) -> int:
    return max([lease.expires_ms for lease in read_leases(FILES, log.local.path)], default=0)
