"""Requests for more partitions than a controller takes at once, beside an Apache Kafka."""

from collections.abc import Callable

import pytest
from tests.wire.differential.harness import Peer, Scenario
from tests.wire.differential.test_admin import TIMEOUT_MS, by_hand, create

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

Check = Callable[[Scenario], None]
MOST = 10_000


def wish(name: str, partitions: int, **configs: str) -> dict[str, object]:
    settings = [{"name": each.replace("_", "."), "value": configs[each]} for each in configs]
    counts = {"num_partitions": partitions, "replication_factor": 1}
    return {"name": name, "configs": settings, **counts}


def test_topics_of_very_many_partitions(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        create(peer, name="large")
        for topics in (
            [wish("a", MOST + 1)],
            [wish("a", 5_000), wish("b", 5_001)],
            [wish("a", 4_000), wish("b", 5_000)],
            [wish("large", MOST), wish("b", 1)],
            [wish("large", 5_000), wish("b", 4_000)],
            [wish("a b", MOST), wish("b", 1)],
            [wish("a", -5), wish("b", MOST + 1)],
            [wish("a", -1), wish("b", MOST)],
            [wish("a", 0), wish("b", 9_000)],
            [{"name": "a", **by_hand(*[[1]] * (MOST + 1))}],
            [wish("a", 1_000_000_000)],
            [wish("a", 6_000), wish("a", 6_000), wish("b", 1)],
            # Each topic, partition and setting needs a record.
            [wish("a", MOST)],
            [wish("a", MOST - 1)],
            [wish("a", MOST - 1, retention_ms="1000")],
            [wish("a", MOST - 2, retention_ms="1000")],
            [wish("a", 5_000), wish("b", 4_999)],
            [wish("a", 5_000), wish("b", 4_998)],
            [wish("a", MOST - 1), wish("large", 1)],
            [wish("a", MOST), wish("a b", 1)],
            [wish("a", MOST - 1), wish("b", 1), wish("b", 1)],
            [wish(f"a{index}", 1) for index in range(5_001)],
        ):
            asked = {"topics": topics, "timeout_ms": TIMEOUT_MS, "validate_only": True}
            peer.ask("create_topics", 4, **asked)
        peer.ask("create_topics", 4, topics=[wish("a", MOST + 1)], timeout_ms=TIMEOUT_MS)
        peer.ask("metadata", 9, topics=[{"name": "a"}], allow_auto_topic_creation=False)

    same_answers(scenario)


def test_topics_that_grow_by_very_many_partitions(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        for name in ("grows", "grows-too", "grows-too-far", "grows-after"):
            create(peer, name=name)
        for counts in (
            {"grows": MOST + 1},
            {"grows": 5_001, "grows-too": 5_001},
            {"grows": MOST + 1, "none": 2},
            {"grows": 2, "none": MOST + 2},
            {"grows-too-far": MOST + 2},
            {"grows-too-far": MOST + 2, "grows-after": 2},
        ):
            topics = [
                {"name": name, "count": count, "assignments": None}
                for name, count in counts.items()
            ]
            asked = {"topics": topics, "timeout_ms": TIMEOUT_MS, "validate_only": True}
            answer = peer.ask("create_partitions", 3, **asked)
            # How it is refused may differ.
            refused = {each.name for each in answer.results if each.error_code != 0}
            assert ("grows-too-far" in counts) == ("grows-too-far" in refused)

    same_answers(scenario)
