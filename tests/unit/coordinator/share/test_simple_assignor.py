"""The assignor of share groups: every partition is read, every member reads, evenly."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.share_groups.simple_assignor import assign_simply

A, B = UUID(int=1), UUID(int=2)


def _partitions(topic_id: UUID, *indexes: int):
    return {topic_id: frozenset(indexes)}


def test_members_share_partitions_when_there_are_more_of_them() -> None:
    """If this fails, some member of a queue has nothing to do."""
    members = {name: frozenset({A}) for name in "abcde"}
    found = assign_simply(members, {}, _partitions(A, 0, 1))
    assert all(len(each[A]) == 1 for each in found.values())
    readers = [sum(index in each[A] for each in found.values()) for index in (0, 1)]
    assert sorted(readers) == [2, 3]


def test_evenness_comes_before_what_a_member_had() -> None:
    """If this fails, a member that was alone keeps everything."""
    members = {name: frozenset({A}) for name in "ab"}
    before = {"a": _partitions(A, 0, 1, 2, 3)}
    found = assign_simply(members, before, _partitions(A, 0, 1, 2, 3))
    assert found["a"] == _partitions(A, 0, 1)
    assert found["b"] == _partitions(A, 2, 3)


@given(
    st.dictionaries(
        st.sampled_from("abcdef"), st.sets(st.sampled_from([A, B]), min_size=1), min_size=1
    ),
    st.integers(1, 7),
    st.integers(0, 3),
)
def test_every_partition_is_read_and_every_member_reads(members, a_count, b_count) -> None:
    """If this fails, records of some partition are never delivered."""
    subscriptions = {name: frozenset(topics) for name, topics in members.items()}
    partitions = {A: frozenset(range(a_count)), B: frozenset(range(b_count))}
    found = assign_simply(subscriptions, {}, partitions)
    for topic_id, indexes in partitions.items():
        if any(topic_id in topics for topics in subscriptions.values()):
            read = set().union(*(each.get(topic_id, frozenset()) for each in found.values()))
            assert read == indexes
    for name, topics in subscriptions.items():
        assert all(topic_id in topics for topic_id in found[name])
        assert bool(found[name]) == any(partitions[each] for each in topics)
    assert assign_simply(subscriptions, found, partitions) == assign_simply(
        subscriptions, found, partitions
    )
    if len({frozenset(each) for each in members.values()}) == 1:
        counts = [sum(map(len, each.values())) for each in found.values()]
        assert max(counts) - min(counts) <= 1
