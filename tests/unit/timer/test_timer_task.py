"""The rings: what a bucket holds, in which order, and that nothing stays behind."""

import gc
import weakref

import pytest

from odradek.timer import TimerTask, TimerTaskEntry, TimerTaskList
from odradek.timer.timer_task import MAX_DELAY_MS, TaskCounter


def make_bucket() -> tuple[TaskCounter, TimerTaskList]:
    counter = TaskCounter()
    return counter, TimerTaskList(counter)


def test_a_bucket_keeps_the_order_of_adding() -> None:
    """Tasks of one moment would run in an order that nobody asked for."""
    counter, bucket = make_bucket()
    tasks = [TimerTask(i) for i in range(5)]
    for task in tasks:
        bucket.add(task)
    assert bucket.tasks() == tasks
    assert counter.pending == 5


def test_removing_from_anywhere_keeps_the_ring_whole() -> None:
    """Cancelling the first, the last or a middle task would lose its neighbours."""
    for gone in range(3):
        counter, bucket = make_bucket()
        tasks = [TimerTask(i) for i in range(3)]
        for task in tasks:
            bucket.add(task)
        tasks[gone].remove()
        assert bucket.tasks() == [task for i, task in enumerate(tasks) if i != gone]
        assert counter.pending == 2
        assert not tasks[gone].is_pending


def test_removing_twice_counts_once() -> None:
    """The size of a timer would drift below what it holds."""
    counter, bucket = make_bucket()
    task = TimerTask(1)
    bucket.add(task)
    task.remove()
    task.remove()
    assert counter.pending == 0
    assert bucket.empty


def test_adding_again_moves_between_buckets() -> None:
    """A task in two buckets would run twice, and one of the rings would be broken."""
    counter = TaskCounter()
    first, second = TimerTaskList(counter), TimerTaskList(counter)
    tasks = [TimerTask(i) for i in range(3)]
    for task in tasks:
        first.add(task)
    second.add(tasks[1])
    assert first.tasks() == [tasks[0], tasks[2]]
    assert second.tasks() == [tasks[1]]
    assert counter.pending == 3


def test_adding_again_to_the_same_bucket_puts_it_last() -> None:
    """Binding to a new cell takes the old one out: one entry, not two."""
    counter, bucket = make_bucket()
    tasks = [TimerTask(i) for i in range(3)]
    for task in [*tasks, tasks[0]]:
        bucket.add(task)
    assert bucket.tasks() == [tasks[1], tasks[2], tasks[0]]
    assert counter.pending == 3


def test_a_cancelled_cell_knows_it() -> None:
    """A demotion would bring a cancelled task back to life."""
    _, bucket = make_bucket()
    task = TimerTask(1)
    bucket.add(task)
    assert not task.cancelled
    task.cancel()
    assert task.cancelled
    assert bucket.empty


def test_flush_hands_over_every_cell_unlinked() -> None:
    """A task that a flush hands on must be free to go into another bucket."""
    counter, bucket = make_bucket()
    tasks = [TimerTask(i) for i in range(4)]
    for task in tasks:
        bucket.add(task)
    bucket.set_expiration(40)
    seen: list[TimerTaskEntry] = []
    bucket.flush(seen.append)
    assert seen == tasks
    assert counter.pending == 0
    assert bucket.expiration_ms == -1
    assert not any(task.is_pending for task in tasks)


def test_a_cell_may_leave_while_the_bucket_is_flushed() -> None:
    """Cancelling while firing: the cancelled one must not be handed on."""
    _, bucket = make_bucket()
    tasks = [TimerTask(i) for i in range(4)]
    for task in tasks:
        bucket.add(task)
    seen: list[TimerTaskEntry] = []

    def visit(entry: TimerTaskEntry) -> None:
        seen.append(entry)
        tasks[2].cancel()

    bucket.flush(visit)
    assert seen == [tasks[0], tasks[1], tasks[3]]


def test_an_expiration_is_set_once() -> None:
    """A bucket would be queued once per task instead of once per turn."""
    _, bucket = make_bucket()
    assert bucket.expiration_ms == -1
    assert bucket.set_expiration(20)
    assert not bucket.set_expiration(20)
    assert bucket.set_expiration(40)


@pytest.mark.parametrize(
    ("asked_ms", "kept_ms"),
    [(0, 0), (5, 5), (-1, -1), (-(10**30), -1), (10**30, MAX_DELAY_MS)],
)
def test_delays_are_cut_to_what_a_wheel_can_count(asked_ms: int, kept_ms: int) -> None:
    """A delay of any size is a valid one; none may overflow."""
    assert TimerTask(asked_ms).delay_ms == kept_ms


class Bystander:
    """Something that a task refers to, and whose end can be watched."""

    def __call__(self) -> None: ...


def test_a_closed_bucket_is_no_garbage_for_the_collector() -> None:
    """Rings are kept out of the cyclic collector, so nothing may need it to be freed."""
    _, bucket = make_bucket()
    bystander = Bystander()
    alive = weakref.ref(bystander)
    bucket.add(TimerTask(1, bystander))
    bucket.add(TimerTask(2, bystander))
    del bystander
    gc.disable()
    try:
        assert alive() is not None
        bucket.close()
        assert alive() is None
    finally:
        gc.enable()
