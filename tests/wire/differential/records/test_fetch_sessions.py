"""The answers of a fetch session about a topic that goes: Apache Kafka and ours agree. Of one
broker each: with several a topic that is made anew may be led by another one."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.wire.differential.harness import Peer, Scenario
from tests.wire.differential.records.test_fetches import CONSUMER, FIRST_WITH_IDS, topic_id
from tests.wire.differential.records.test_records import create

from odradek.errors import ErrorCode

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

Check = Callable[[Scenario], None]
TIMEOUT_MS = 9_000
# The epoch of a fetch that neither opens nor goes on with a session.
OUTSIDE_OF_SESSIONS = -1


def is_unknown(answer: Any) -> bool:
    """Whether the broker has heard that the topic is gone."""
    return bool(answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def delete(peer: Peer, topic: str) -> None:
    """Deletes a topic; the broker that is asked has heard of it."""
    asked = [{"name": topic, "topic_id": None}]
    peer.prepare("delete_topics", 6, topics=asked, timeout_ms=TIMEOUT_MS)
    peer.ask_until(is_unknown, "metadata", 12, topics=asked, allow_auto_topic_creation=False)


def make_anew(peer: Peer, limits: dict[str, int], asked: dict[str, int]) -> None:
    create(peer, "renewed")
    # Kafka's broker tells who leads the new one before it can be read.
    anew = {"topic_id": topic_id(peer, "renewed"), "partitions": [asked]}
    alone = {"session_id": 0, "session_epoch": OUTSIDE_OF_SESSIONS}
    peer.prepare("fetch", FIRST_WITH_IDS, topics=[anew], **alone, **limits)


def test_a_topic_that_is_deleted_and_made_anew(same_answers: Check) -> None:
    """Fails when a client by ids is told of an unknown id, and forgets that it knew the topic."""

    def scenario(peer: Peer) -> None:
        create(peer, "renewed")
        limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 10_000, "replica_id": CONSUMER}
        asked = {"partition": 0, "fetch_offset": 0, "log_start_offset": -1}
        asked |= {"partition_max_bytes": 1000, "current_leader_epoch": -1}
        first = {"topic_id": topic_id(peer, "renewed"), "partitions": [asked]}
        opened = peer.prepare(
            "fetch", FIRST_WITH_IDS, session_id=0, session_epoch=0, topics=[first], **limits
        )
        more = {"session_id": opened.session_id, **limits}
        delete(peer, "renewed")
        peer.ask("fetch", FIRST_WITH_IDS, session_epoch=1, topics=[], **more)
        later = {**first, "partitions": [{**asked, "partition": 1}]}
        peer.ask("fetch", FIRST_WITH_IDS, session_epoch=2, topics=[later], **more)
        make_anew(peer, limits, asked)
        peer.ask("fetch", FIRST_WITH_IDS, session_epoch=3, topics=[], **more)
        # The session remembers the name, whoever has it.
        delete(peer, "renewed")
        peer.ask("fetch", FIRST_WITH_IDS, session_epoch=4, topics=[], **more)
        make_anew(peer, limits, asked)
        peer.ask("fetch", FIRST_WITH_IDS, session_epoch=5, topics=[], **more)

    same_answers(scenario)
