"""Clients over their quotas, beside a real Apache Kafka: by the throttle times of both, and once by
the clock on the wall.

If this fails, a client waits longer, or shorter, than with Kafka.
"""

import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest
from tests.wire.differential.harness import Peer, Target
from tools import peers
from tools.kafka_node import kafka_node

import odradek
from odradek.protocol.messages import milliseconds
from odradek.records.builder import RecordBatchBuilder

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

RATE: Final = 10_000.0
RECORD_BYTES: Final = 60_000


class Side(NamedTuple):
    """A broker's client with a quota, one without, and their topic."""

    greedy: Peer
    modest: Peer
    topic: str


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    try:
        with kafka_node("512m") as node:
            yield node.bootstrap_servers
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")


@pytest.fixture(params=["kafka", "ours"])
def side(request: pytest.FixtureRequest) -> Iterator[Side]:
    """Of either broker. Each test has a client of its own, since a broker remembers for eleven
    seconds what a client has used."""
    name = "".join(filter(str.isalpha, request.node.name))
    if request.param == "kafka":
        yield from prepared(request.getfixturevalue("kafka"), name)
        return
    with odradek.Broker() as broker:
        yield from prepared(broker.bootstrap_servers, name)


def prepared(address: str, name: str) -> Iterator[Side]:
    one = Side(Peer(Target(address), name), Peer(Target(address), "modest"), name)
    ops = [
        {"key": key, "value": RATE, "remove": False}
        for key in ("producer_byte_rate", "consumer_byte_rate")
    ]
    entity = [{"entity_type": "client-id", "entity_name": name}]
    one.modest.prepare("alter_client_quotas", 1, entries=[{"entity": entity, "ops": ops}])
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    one.modest.prepare("create_topics", 7, topics=[topic], timeout_ms=9000)
    # Quotas that were set before the topic was made hold once it takes records.
    produce(one.modest, name, RECORD_BYTES)
    yield one
    one.modest.close()
    one.greedy.close()


def produce(peer: Peer, topic: str, size: int) -> int:
    """The throttle time, in milliseconds."""
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, None, b"x" * size)
    partition = {"index": 0, "records": bytes(builder.build())}
    written = [{"name": topic, "partition_data": [partition]}]
    answer = peer.prepare("produce", 9, acks=-1, timeout_ms=9000, topic_data=written)
    return milliseconds(answer.throttle_time)


def fetch(side: Side) -> Any:
    partition = {
        "partition": 0,
        "fetch_offset": 0,
        "partition_max_bytes": RECORD_BYTES,
        "current_leader_epoch": -1,
    }
    topics = [{"topic": side.topic, "partitions": [partition]}]
    values = {"topics": topics, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": RECORD_BYTES}
    return side.greedy.quietly("fetch", 12, session_id=0, session_epoch=-1, **values)


def test_a_producer_is_told_how_long_it_waits_and_waits_that_long(side: Side) -> None:
    """(O - T) / T x W, where W is from ten to eleven seconds."""
    began = time.monotonic()
    throttle_ms = produce(side.greedy, side.topic, 125_000)
    assert 1_400 <= throttle_ms <= 2_600
    side.greedy.quietly("metadata", 12, topics=[])
    waited_s = time.monotonic() - began
    assert waited_s * 1000 >= throttle_ms, "the broker muted the connection"


def test_a_throttle_is_longer_than_a_window(side: Side) -> None:
    """Kafka bounds it for the time of requests alone."""
    assert 78_900 <= produce(side.greedy, side.topic, 900_000) <= 80_200


def test_a_consumer_over_its_quota_gets_nothing(side: Side) -> None:
    first, second = fetch(side), fetch(side)
    assert len(first.responses[0].partitions[0].records) >= RECORD_BYTES
    assert milliseconds(first.throttle_time) == 0
    assert list(second.responses) == []
    assert 900 <= milliseconds(second.throttle_time) <= 2_200
