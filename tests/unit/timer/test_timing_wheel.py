"""The wheel by itself: which bucket, which level, when the hands move (R1)."""

import pytest

from odradek.timer import TimerTask, TimingWheel
from odradek.timer.timing_wheel import LONGEST_INTERVAL_MS, NEVER_MS


def place(wheel: TimingWheel, expiration_ms: int) -> tuple[int, int] | None:
    """Adds a task due at `expiration_ms`; its level (from 1) and slot, None if not added."""
    task = TimerTask(0)
    task.expiration_ms = expiration_ms
    if not wheel.add(task):
        return None
    for level, one in enumerate(wheel.levels(), 1):
        for slot, bucket in enumerate(one.buckets):
            if bucket is task.bucket:
                return level, slot
    raise AssertionError("added, and in no bucket")


@pytest.mark.parametrize(
    ("expiration_ms", "where"),
    [
        (-5, None),
        (0, None),
        (1, (1, 1)),
        (2, (1, 2)),
        (19, (1, 19)),
        (20, (2, 1)),
        (350, (2, 17)),
        (399, (2, 19)),
        (400, (3, 1)),
        (450, (3, 1)),
        (799, (3, 1)),
        (7999, (3, 19)),
        (8000, (4, 1)),
    ],
)
def test_where_a_task_goes_at_time_0(expiration_ms: int, where: tuple[int, int] | None) -> None:
    """The limits of the levels would be off by one."""
    assert place(TimingWheel(), expiration_ms) == where


def test_the_hands_move_by_whole_ticks() -> None:
    """A wheel that moved by less would flush a bucket before its time."""
    wheel = TimingWheel(tick_ms=10, wheel_size=4, start_ms=27)
    assert wheel.current_time_ms == 20
    wheel.advance_clock(29)
    assert wheel.current_time_ms == 20
    wheel.advance_clock(38)
    assert wheel.current_time_ms == 30
    wheel.advance_clock(31)
    wheel.advance_clock(5)
    assert wheel.current_time_ms == 30
    wheel.advance_clock(1009)
    assert wheel.current_time_ms == 1000


def test_all_levels_move_together() -> None:
    """A level left behind would place tasks by an hour that is past."""
    wheel = TimingWheel()
    assert place(wheel, 5000) == (3, 12)
    wheel.advance_clock(4399)
    assert [one.current_time_ms for one in wheel.levels()] == [4399, 4380, 4000]
    assert place(wheel, 4399) is None
    assert place(wheel, 4400) == (1, 0)
    assert place(wheel, 4419) == (2, 0)


def test_an_overflow_wheel_is_made_once_and_only_when_needed() -> None:
    """Every further level costs memory and a step of each add."""
    wheel = TimingWheel()
    place(wheel, 19)
    assert len(wheel.levels()) == 1
    wheel.advance_clock(7)
    place(wheel, 30)
    above = wheel.overflow_wheel()
    assert (above.tick_ms, above.wheel_size, above.current_time_ms) == (20, 20, 0)
    place(wheel, 300)
    assert wheel.overflow_wheel() is above
    assert len(wheel.levels()) == 2


def test_a_bucket_is_queued_once_for_all_its_tasks() -> None:
    """The queue would grow with the tasks, which is what the wheel is there to avoid."""
    wheel = TimingWheel()
    for _ in range(100):
        for expiration_ms in (5, 5, 446, 455, 473):
            place(wheel, expiration_ms)
    assert len(wheel.queue) == 2
    assert [bucket.expiration_ms for bucket in wheel.queue.buckets()] == [5, 400]


def test_a_bucket_emptied_by_cancelling_stays_queued_but_wakes_nobody() -> None:
    """Searching the queue for it would cost more than meeting it when it is due."""
    wheel = TimingWheel()
    task = TimerTask(0)
    task.expiration_ms = 5
    wheel.add(task)
    place(wheel, 9)
    task.cancel()
    assert wheel.queue.first_due_ms == 5
    assert wheel.queue.first_filled_due_ms() == 9
    assert len(wheel.queue) == 2


def test_the_queue_hands_out_buckets_only_when_due() -> None:
    """A bucket taken early would fire early."""
    wheel = TimingWheel()
    place(wheel, 7)
    place(wheel, 3)
    assert wheel.queue.poll(2) is None
    first = wheel.queue.poll(3)
    assert first is not None
    assert first.expiration_ms == 3
    assert wheel.queue.poll(6) is None
    assert wheel.queue.poll(100) is not None
    assert wheel.queue.first_due_ms == NEVER_MS


def test_a_cancelled_task_is_not_added() -> None:
    """It was cancelled between leaving one bucket and entering the next."""
    wheel = TimingWheel()
    task = TimerTask(0)
    task.expiration_ms = 5
    task.cancel()
    assert not wheel.add(task)
    assert wheel.counter.pending == 0


@pytest.mark.parametrize(("tick_ms", "wheel_size"), [(1, 2), (1, 20), (7, 3), (10**6, 10**3)])
def test_delays_of_ages_have_a_bucket(tick_ms: int, wheel_size: int) -> None:
    """Levels grow until the longest delay fits, and no interval overflows on the way."""
    wheel = TimingWheel(tick_ms, wheel_size)
    expiration_ms = 2**53
    assert place(wheel, expiration_ms) is not None
    top = wheel.levels()[-1]
    assert expiration_ms < top.current_time_ms + top.interval_ms <= LONGEST_INTERVAL_MS


@pytest.mark.parametrize(
    ("tick_ms", "wheel_size"),
    [(0, 20), (-1, 20), (2**61, 20), (1, 1), (1, 0), (1, -3), (1, 2**21), (1, 2**62)],
)
def test_impossible_wheels_are_refused(tick_ms: int, wheel_size: int) -> None:
    """A wheel of one bucket could overflow into itself forever, and one of very many would take
    all memory as it is made."""
    with pytest.raises(ValueError, match=r"a (tick|wheel)"):
        TimingWheel(tick_ms, wheel_size)
