"""If these fail, members of a group read the same partition twice, or one not at all."""

import random

import pytest
from tests.rounds import rounds

from odradek.client.core.groups.assignors import ASSIGNORS, Assignments, assignor_of
from odradek.client.settings import CONSUMER_SETTINGS
from odradek.model import TopicPartition
from odradek.protocol.consumer_protocol import (
    Subscription,
    decode_subscription,
    encode_subscription,
)


def partitions(topic: str, *indexes: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, index) for index in indexes)


def members(*ids: str, topics: tuple[str, ...] = ("t",)) -> dict[str, Subscription]:
    return {each: Subscription(topics) for each in ids}


def test_kafkas_classes_name_the_same_assignors() -> None:
    """A member with the properties of a Java consumer would share out otherwise, or not start."""
    package = "org.apache.kafka.clients.consumer"
    for name, java_name in {
        "range": "RangeAssignor",
        "roundrobin": "RoundRobinAssignor",
        "sticky": "StickyAssignor",
        "cooperative-sticky": "CooperativeStickyAssignor",
    }.items():
        setting = CONSUMER_SETTINGS["partition.assignment.strategy"]
        (parsed,) = setting.parse(f" {package}.{java_name} ")
        assert assignor_of(parsed) is assignor_of(name) is ASSIGNORS[name]


def test_range_gives_runs() -> None:
    found = ASSIGNORS["range"].assign(members("a", "b", "c"), {"t": 7})
    assert found == {
        "a": partitions("t", 0, 1, 2),
        "b": partitions("t", 3, 4),
        "c": partitions("t", 5, 6),
    }


def test_round_robin_goes_around_over_all_topics() -> None:
    both = members("a", "b", topics=("t", "u"))
    found = ASSIGNORS["roundrobin"].assign(both, {"t": 3, "u": 3})
    assert found == {
        "a": (*partitions("t", 0, 2), *partitions("u", 1)),
        "b": (*partitions("t", 1), *partitions("u", 0, 2)),
    }
    some = {"a": Subscription(("t",)), "b": Subscription(("t", "u"))}
    assert ASSIGNORS["roundrobin"].assign(some, {"t": 1, "u": 2}) == {
        "a": partitions("t", 0),
        "b": partitions("u", 0, 1),
    }


def test_static_members_keep_their_place_whatever_their_ids() -> None:
    static = {
        "z": Subscription(("t",), instance_id="1"),
        "a": Subscription(("t",), instance_id="2"),
    }
    found = ASSIGNORS["range"].assign(static, {"t": 2})
    assert found == {"z": partitions("t", 0), "a": partitions("t", 1)}


def after(name: str, found: Assignments, generation_id: int) -> dict[str, Subscription]:
    """The user data that members tell in the next rebalance."""
    return {
        each: decode_subscription(
            encode_subscription(
                Subscription(
                    ("t", "u"),
                    owned,
                    ASSIGNORS[name].user_data(owned, generation_id),
                    generation_id,
                )
            )
        )
        for each, owned in found.items()
    }


@pytest.mark.parametrize("name", list(ASSIGNORS))
def test_everything_is_read_by_exactly_one_whoever_comes_and_goes(name: str) -> None:
    """For 60 seeds: members come, go, and topics grow; cooperative groups settle in two steps."""
    for seed in range(rounds(60)):
        rng = random.Random(seed)
        counts = {"t": 5, "u": 3}
        present = {"m0": Subscription(("t", "u"))}
        before: Assignments = {}
        for generation_id in range(12):
            for _ in range(2 if name == "cooperative-sticky" else 1):
                found = ASSIGNORS[name].assign(present, counts)
                taken = [each for given in found.values() for each in given]
                assert len(taken) == len(set(taken)), f"seed {seed}"
                for member_id, given in found.items():
                    others = {
                        e for m, o in before.items() if m in present for e in o if m != member_id
                    }
                    if name == "cooperative-sticky":
                        assert not set(given) & others, f"seed {seed}: taken before it was given up"
                before = found
                present = after(name, found, generation_id)
            assert len(taken) == sum(counts.values()), f"seed {seed}"
            sizes = [len(given) for given in found.values()]
            if "sticky" in name:
                assert max(sizes) - min(sizes) <= 1, f"seed {seed}"
            if rng.random() < 0.6:
                present[f"m{generation_id + 1}"] = Subscription(("t", "u"))
            elif len(present) > 1:
                gone = rng.choice(sorted(present))
                present.pop(gone)
                before.pop(gone)
            counts["u"] += rng.random() < 0.3


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_what_a_member_had_stays_with_it(name: str) -> None:
    first = ASSIGNORS[name].assign(members("a", "b", topics=("t", "u")), {"t": 4, "u": 2})
    told = after(name, first, 1) | members("c", topics=("t", "u"))
    second = ASSIGNORS[name].assign(told, {"t": 4, "u": 2})
    for member_id in ("a", "b"):
        assert set(second[member_id]) < set(first[member_id])
        assert len(second[member_id]) == 2


def test_a_claim_of_an_older_generation_does_not_count() -> None:
    same = partitions("t", 0)
    told = {
        "old": Subscription(("t",), same, generation_id=3),
        "new": Subscription(("t",), same, generation_id=4),
    }
    found = ASSIGNORS["sticky"].assign(
        {
            each: Subscription(
                ("t",), (), ASSIGNORS["sticky"].user_data(it.owned, it.generation_id)
            )
            for each, it in told.items()
        },
        {"t": 1},
    )
    assert found == {"old": (), "new": same}
