"""Fetches by brokers that are no replicas, and what is said of aborted transactions: Apache Kafka
and ours agree."""

from collections.abc import Callable
from uuid import UUID

import pytest
from tests.wire.differential.harness import Peer, Scenario
from tests.wire.differential.records.test_records import create, plain, produce

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm"), pytest.mark.of_three_too]

Check = Callable[[Scenario], None]
STRANGER = 77
CONSUMER = -1
FIRST_WITH_SESSIONS = 7
FIRST_WITH_EPOCHS = 9
FIRST_WITH_IDS = 13
FIRST_WITH_REPLICA_STATE = 15
VERSIONS = (4, 5, 8, FIRST_WITH_EPOCHS, 11, 12, FIRST_WITH_IDS, FIRST_WITH_REPLICA_STATE, 16, 17)


def fetch(
    peer: Peer,
    version: int,
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    epoch: int = -1,
    replica_id: int = CONSUMER,
    isolation_level: int = 0,
) -> None:
    """One fetch that waits for nothing."""
    asked = {"partition": partition, "fetch_offset": offset, "log_start_offset": -1}
    asked |= {"partition_max_bytes": 1000}
    values: dict[str, object] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 10_000}
    if version >= FIRST_WITH_SESSIONS:
        values |= {"session_id": 0, "session_epoch": -1}
    if version >= FIRST_WITH_EPOCHS:
        asked["current_leader_epoch"] = epoch
    if version >= FIRST_WITH_REPLICA_STATE:
        values["replica_state"] = {"replica_id": replica_id, "replica_epoch": -1}
    else:
        values["replica_id"] = replica_id
    named = {"topic": topic} if version < FIRST_WITH_IDS else {"topic_id": topic_id(peer, topic)}
    topics = [{**named, "partitions": [asked]}]
    peer.ask("fetch", version, **values, isolation_level=isolation_level, topics=topics)


def topic_id(peer: Peer, topic: str) -> UUID:
    """The id of a topic; of one that is not there, one that nothing has."""
    asked = [{"name": topic, "topic_id": None}]
    found = peer.quietly("metadata", 12, topics=asked, allow_auto_topic_creation=False)
    return found.topics[0].topic_id or UUID(int=1)


def test_a_broker_that_is_no_replica(same_answers: Check) -> None:
    """Fails when a follower that is early, since it was added just now, is sent away for good."""

    def scenario(peer: Peer) -> None:
        create(peer, "strangers")
        produce(peer, "strangers", plain(3))
        for version in VERSIONS:
            for epoch in (-1, 0, 1) if version >= FIRST_WITH_EPOCHS else (-1,):
                for offset in (0, 3, 4, -1):
                    fetch(peer, version, "strangers", offset, replica_id=STRANGER, epoch=epoch)
            fetch(peer, version, "strangers", partition=5, replica_id=STRANGER)
            fetch(peer, version, "not-there", replica_id=STRANGER)

    same_answers(scenario)


def test_aborted_transactions_where_there_are_none(same_answers: Check) -> None:
    """Fails when a list is empty where it should be null, or the other way round."""

    def scenario(peer: Peer) -> None:
        create(peer, "never-aborted")
        produce(peer, "never-aborted", plain(3))
        for version in VERSIONS:
            for isolation_level in (0, 1):
                for offset in (0, 3, 9):
                    fetch(peer, version, "never-aborted", offset, isolation_level=isolation_level)
                fetch(peer, version, "never-there", isolation_level=isolation_level)

    same_answers(scenario)
