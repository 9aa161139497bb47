"""Producers whose records are deleted: Apache Kafka and ours take the same sequences, on the
replica that had the records and on one that begins behind them.

A replica begins anew in another log directory where one broker is asked, and on another broker and
back where three are.
"""

from collections.abc import Callable
from typing import Any

import pytest
from tests.wire.differential.groups.test_transactions import Owner, batch
from tests.wire.differential.harness import Peer, Scenario
from tests.wire.differential.records.test_records import create

pytestmark = [pytest.mark.slow, pytest.mark.of_three_too, pytest.mark.xdist_group("jvm")]

Check = Callable[[Scenario], None]
TIMEOUT_MS = 9_000


def idempotent(peer: Peer) -> Owner:
    """A producer with an id, and no transactions."""
    asked = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    answer = peer.prepare("init_producer_id", 4, **asked)
    return Owner("", answer.producer_id, answer.producer_epoch)


def produce(peer: Peer, topic: str, who: Owner, *sequences: int) -> None:
    for sequence in sequences:
        records = batch(who, sequence, transactional=False)
        written = {"name": topic, "partition_data": [{"index": 0, "records": records}]}
        asked = {"transactional_id": None, "acks": -1, "timeout_ms": TIMEOUT_MS}
        peer.ask("produce", 9, topic_data=[written], **asked)


def delete_all(peer: Peer, topic: str) -> None:
    partition = {"partition_index": 0, "offset": -1}
    topics = [{"name": topic, "partitions": [partition]}]
    peer.ask("delete_records", 2, topics=topics, timeout_ms=TIMEOUT_MS)


def begin_anew(peer: Peer, topic: str) -> None:
    """Another replica takes over, which was made when there were no records."""
    if len(peer.target.replicas) == 1:
        return move_to_the_other_directory(peer, topic)
    for replicas in ([2], [1]):
        reassign(peer, topic, replicas)
    peer.prepare("metadata", 12, topics=[{"name": topic}])
    return None


def move_to_the_other_directory(peer: Peer, topic: str) -> None:
    asked = {"topics": [{"topic": topic, "partitions": [0]}]}
    found = peer.quietly("describe_log_dirs", 2, **asked).results
    (other,) = [each.log_dir for each in found if not each.topics]
    moved = {"path": other, "topics": [{"name": topic, "partitions": [0]}]}
    peer.prepare("alter_replica_log_dirs", 2, dirs=[moved])

    def is_there(answer: Any) -> bool:
        return [each.log_dir for each in answer.results if each.topics] == [other]

    until(peer, is_there, "describe_log_dirs", 2, **asked)


def reassign(peer: Peer, topic: str, replicas: list[int]) -> None:
    wanted = {"partition_index": 0, "replicas": replicas}
    topics = [{"name": topic, "partitions": [wanted]}]
    peer.prepare("alter_partition_reassignments", 0, topics=topics, timeout_ms=TIMEOUT_MS)

    def is_done(answer: Any) -> bool:
        partition = answer.topics[0].partitions[0]
        return list(partition.replica_nodes) == replicas and partition.leader_id == replicas[0]

    until(peer, is_done, "metadata", 12, topics=[{"name": topic}])


def until(peer: Peer, is_settled: Callable[[Any], bool], api: str, version: int, **values: Any):
    """Waits until the broker says so; its answer is not compared."""
    assert is_settled(peer.ask_until(is_settled, api, version, **values)), f"{api}: {values}"
    peer.answers.pop()


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_healthy_producer_goes_on(same_answers: Check, is_moved: bool) -> None:
    """It was told OUT_OF_ORDER_SEQUENCE_NUMBER, which is fatal, until a restart healed that."""

    def scenario(peer: Peer) -> None:
        topic = f"emptied-{is_moved}"
        create(peer, topic, retention_ms="-1")
        healthy, silent = idempotent(peer), idempotent(peer)
        produce(peer, topic, healthy, 0, 1, 2)
        produce(peer, topic, silent, 0)
        delete_all(peer, topic)
        if is_moved:
            begin_anew(peer, topic)
        produce(peer, topic, healthy, 3, 3, 5, 4)
        produce(peer, topic, silent, 1, 1, 3)
        produce(peer, topic, idempotent(peer), 9, 10)

    same_answers(scenario)
