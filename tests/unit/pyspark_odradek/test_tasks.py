"""If these fail, a topic of many small partitions takes minutes, or records are left out."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from odradek.model import TopicPartition
from odradek.tables.plan.identity import Identity
from odradek.tables.plan.ranges import OffsetRange
from pyspark_odradek.tasks import FEW_TASKS, PACKED_OFFSETS, tasks_for


def ranges(*sizes: int) -> list[OffsetRange]:
    return [
        OffsetRange(TopicPartition("t", index), 5, 5 + size) for index, size in enumerate(sizes)
    ]


def test_few_ranges_have_a_task_each() -> None:
    pieces = ranges(*[1] * FEW_TASKS)
    assert [task.ranges for task in tasks_for(pieces, Identity())] == [(p,) for p in pieces]


def test_many_small_ranges_share_tasks() -> None:
    tasks = tasks_for(ranges(*[20] * 500), Identity())
    assert FEW_TASKS <= len(tasks) <= FEW_TASKS + 2
    assert len(tasks_for(ranges(*[20] * 500), Identity(), min_tasks=100)) >= 100


def test_a_task_has_the_ids_of_its_own_topics() -> None:
    """A plan of thousands of topics had all of them in each task."""
    ids = {f"t{number}": UUID(int=number) for number in range(2 * FEW_TASKS)}
    pieces = [OffsetRange(TopicPartition(name, 0), 0, PACKED_OFFSETS + 1) for name in ids]
    tasks = tasks_for(pieces, Identity(topic_ids=ids))
    assert [task.identity.topic_ids for task in tasks] == [{name: ids[name]} for name in ids]


@given(st.lists(st.integers(1, 10**6), max_size=100))
def test_every_range_is_in_one_task_and_none_is_too_large(sizes: list[int]) -> None:
    pieces = ranges(*sizes)
    tasks = tasks_for(pieces, Identity())
    assert [piece for task in tasks for piece in task.ranges] == pieces
    for task in tasks:
        assert len(task.ranges) == 1 or sum(p.size for p in task.ranges) <= PACKED_OFFSETS
