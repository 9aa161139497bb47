"""The server-side assignors: everything is assigned once, evenly, and moves little."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.assignors import (
    ASSIGNORS,
    AssignmentSpec,
    MemberSpec,
    PartitionAssignor,
    Partitions,
)

T, U, V = UUID(int=1), UUID(int=2), UUID(int=3)
COUNTS = {T: 7, U: 4, V: 1}
NOTHING: Partitions = {}


def member(*topics: UUID, instance: str | None = None, had: Partitions = NOTHING) -> MemberSpec:
    return MemberSpec(instance, frozenset(topics), had)


def assign(
    name: str, members: dict[str, MemberSpec], counts: dict[UUID, int] = COUNTS
) -> dict[str, dict[UUID, list[int]]]:
    read = {topic for each in members.values() for topic in each.topic_ids}
    spec = AssignmentSpec(members, {topic: counts[topic] for topic in sorted(read)})
    return {
        member_id: {topic: sorted(indexes) for topic, indexes in partitions.items()}
        for member_id, partitions in ASSIGNORS[name].assign(spec).items()
    }


def test_range_gives_runs_in_the_order_of_members() -> None:
    assert assign("range", {"c": member(T), "a": member(T), "b": member(T)}) == {
        "a": {T: [0, 1, 2]},
        "b": {T: [3, 4]},
        "c": {T: [5, 6]},
    }


def test_range_puts_static_members_first_by_instance() -> None:
    """A static member has the same run after a restart, whatever its member id."""
    members = {"z": member(V, instance="1"), "a": member(V, instance="2"), "b": member(V)}
    assert assign("range", members) == {"z": {V: [0]}, "a": {}, "b": {}}


def test_range_shares_like_topics_alike() -> None:
    """If this fails, topics that are joined by partition cannot be joined any more."""
    shares = assign("range", {"a": member(T, U), "b": member(T, U)}, {T: 5, U: 5})
    assert all(each[T] == each[U] for each in shares.values())


def test_uniform_keeps_what_it_can() -> None:
    before = {"a": {T: frozenset(range(7))}}
    members = {"a": member(T, had=before["a"]), "b": member(T)}
    assert assign("uniform", members) == {"a": {T: [0, 1, 2, 3]}, "b": {T: [4, 5, 6]}}


def test_uniform_ignores_what_is_gone_or_had_twice() -> None:
    had = {U: frozenset([0, 9]), V: frozenset([0])}
    members = {"a": member(U, had=had), "b": member(U, had=had)}
    shares = assign("uniform", members)
    assert sorted(shares["a"][U] + shares["b"][U]) == [0, 1, 2, 3]


def test_uniform_balances_members_that_read_different_topics() -> None:
    shares = assign("uniform", {"a": member(T), "b": member(T, U), "c": member(U, V)})
    assert sorted(sum(map(len, each.values())) for each in shares.values()) == [4, 4, 4]


def test_uniform_levels_what_was_uneven_before() -> None:
    had = {T: frozenset(range(7))}
    shares = assign("uniform", {"a": member(T, U, had=had), "b": member(T), "c": member(T, U)})
    assert sorted(sum(map(len, each.values())) for each in shares.values()) == [3, 4, 4]


@pytest.mark.parametrize("name", ASSIGNORS)
def test_nobody_and_nothing_can_be_assigned(name: str) -> None:
    assert assign(name, {}) == {}
    assert assign(name, {"a": member()}) == {"a": {}}


topic_ids = st.sampled_from([T, U, V])
partitions = st.dictionaries(topic_ids, st.frozensets(st.integers(0, 9), min_size=1))
specs = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=2),
    st.builds(
        MemberSpec, st.none() | st.text("xy", max_size=1), st.frozensets(topic_ids), partitions
    ),
    max_size=8,
)


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
@given(members=specs)
def test_every_partition_that_is_read_has_one_reader(
    assignor: PartitionAssignor, members: dict[str, MemberSpec]
) -> None:
    read = {topic for each in members.values() for topic in each.topic_ids}
    spec = AssignmentSpec(members, {topic: COUNTS[topic] for topic in sorted(read)})
    shares = assignor.assign(spec)
    assert shares.keys() == members.keys()
    given_out = [
        (topic, index)
        for member_id, partitions in shares.items()
        for topic, indexes in partitions.items()
        for index in indexes
        if topic in members[member_id].topic_ids
    ]
    assert sorted(given_out) == [(t, index) for t in sorted(read) for index in range(COUNTS[t])]
    assert all(indexes for partitions in shares.values() for indexes in partitions.values())
    assert assignor.assign(spec) == shares


@given(names=st.sets(st.text("abcdef", min_size=1, max_size=2), min_size=1, max_size=8), had=specs)
def test_uniform_is_even_and_sticky_among_equals(
    names: set[str], had: dict[str, MemberSpec]
) -> None:
    """No member has two more than another, and an assignment that is even already stays."""
    topics = frozenset([T, U])
    nothing = MemberSpec(None, topics, {})
    members = {each: had.get(each, nothing)._replace(topic_ids=topics) for each in names}
    counts = {T: COUNTS[T], U: COUNTS[U]}
    shares = ASSIGNORS["uniform"].assign(AssignmentSpec(members, counts))
    loads = [sum(map(len, partitions.values())) for partitions in shares.values()]
    assert max(loads) - min(loads) <= 1
    settled = {each: members[each]._replace(partitions=shares[each]) for each in names}
    assert ASSIGNORS["uniform"].assign(AssignmentSpec(settled, counts)) == shares
