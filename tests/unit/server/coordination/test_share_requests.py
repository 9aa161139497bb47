"""Share requests by more than one connection, on real sockets: what a client's model with a single
connection does not see. If these fail, a consumer is never answered."""

import socket
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

import odradek
from odradek.client.sync import Admin
from odradek.model import TopicPartition
from odradek.protocol import messages
from odradek.protocol.header import (
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)

SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
VERSION = 2
FLEXIBLE_FROM = 0
FAILED_AFTER_S = 30
LONG_MS = 600_000


class Connection:
    """One connection of a share consumer, by which requests and answers go separately."""

    def __init__(
        self, broker: odradek.Broker, member_id: str = "a", client_id: str = "test"
    ) -> None:
        host, port = broker.bootstrap_servers.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), FAILED_AFTER_S)
        self._reader = self._socket.makefile("rb")
        self._member_id = member_id
        self._client_id = client_id

    def send(self, api: int, **values: object) -> None:
        header_version = request_header_version(api, VERSION, FLEXIBLE_FROM)
        header = encode_request_header(api, VERSION, 7, self._client_id, header_version)
        fields = {"group_id": "g", "member_id": self._member_id, **values}
        frame = header + messages.encode_request(api, VERSION, fields)
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)

    def answer(self, api: int) -> Any:
        size = int.from_bytes(self._reader.read(4), "big")
        frame = memoryview(self._reader.read(size))
        header_version = response_header_version(api, VERSION, FLEXIBLE_FROM)
        _, position = decode_response_header(frame, header_version)
        return messages.decode_response(api, VERSION, frame, position)

    def fetch(self, epoch: int, topic_id: UUID) -> None:
        partitions = [{"partition_index": 0, "acknowledgement_batches": []}]
        self.send(
            SHARE_FETCH,
            share_session_epoch=epoch,
            max_wait_ms=LONG_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
            topics=[{"topic_id": topic_id, "partitions": partitions}],
            forgotten_topics_data=[],
        )

    def close(self) -> None:
        self._reader.close()
        self._socket.close()


@pytest.fixture
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        broker.create_topic("jobs", partitions=1)
        with Admin(broker.bootstrap_servers) as admin:
            admin.alter_share_group_offsets("g", {TopicPartition("jobs", 0): 0})
        yield broker


@pytest.fixture
def connections(broker: odradek.Broker) -> Iterator[list[Connection]]:
    made = [Connection(broker) for _ in range(3)]
    yield made
    for each in made:
        each.close()


def await_fetches(broker: odradek.Broker, count: int) -> None:
    """Asks the broker until so many fetches wait."""
    deadline = time.monotonic() + FAILED_AFTER_S
    while sum("share group g" in each.missing for each in broker.waiting()) < count:
        assert time.monotonic() < deadline, broker.waiting()


def test_a_session_that_ends_by_another_connection_has_its_fetches_answered(
    broker: odradek.Broker, connections: list[Connection]
) -> None:
    topic_id = broker._running().metadata.image.topics["jobs"].topic_id
    first, second, third = connections
    first.fetch(0, topic_id)
    await_fetches(broker, 1)
    second.fetch(1, topic_id)
    await_fetches(broker, 2)
    third.send(SHARE_ACKNOWLEDGE, share_session_epoch=-1, topics=[])
    assert third.answer(SHARE_ACKNOWLEDGE).error_code == 0
    for each in (first, second):
        answer = each.answer(SHARE_FETCH)
        assert (answer.error_code, answer.responses) == (0, ())


def test_a_member_over_its_quota_has_its_records_and_waits() -> None:
    """The members of a share group would take what no other consumer may."""
    clock = odradek.ManualClock()
    quotas = {"client-id:test": {"consumer_byte_rate": 1000}}
    with odradek.Broker(clock=clock, quotas=quotas) as broker:
        broker.create_topic("jobs", partitions=1)
        with Admin(broker.bootstrap_servers) as admin:
            admin.alter_share_group_offsets("g", {TopicPartition("jobs", 0): 0})
        for _ in range(5):
            broker.produce("jobs", b"x" * 6_000)
        topic_id = broker._running().metadata.image.topics["jobs"].topic_id
        member = Connection(broker)
        sizes, throttles = [], []
        for epoch in range(3):
            member.fetch(epoch, topic_id)
            clock.advance(sum(throttles))
            answer = member.answer(SHARE_FETCH)
            [topic] = answer.responses
            sizes.append(len(topic.partitions[0].records))
            throttles.append(messages.milliseconds(answer.throttle_time))
        member.close()
    assert all(6_000 <= size <= 12_200 for size in sizes), "of ten seconds, though more is there"
    assert throttles[0] == 0 or sizes[0] > 10_000
    assert throttles[1] > 0, "the connection is muted, and has its records"


def test_what_a_member_got_goes_to_another_when_it_is_muted_for_longer_than_its_lock() -> None:
    """As in Apache Kafka, whose member gets none of these records though they are locked for it."""
    clock = odradek.ManualClock()
    quotas = {"client-id:test": {"consumer_byte_rate": 1000}}
    with odradek.Broker(clock=clock, quotas=quotas) as broker:
        broker.create_topic("jobs", partitions=1)
        with Admin(broker.bootstrap_servers) as admin:
            admin.alter_share_group_offsets("g", {TopicPartition("jobs", 0): 0})
        broker.produce("jobs", b"x" * 60_000)
        topic_id = broker._running().metadata.image.topics["jobs"].topic_id
        muted, other = Connection(broker), Connection(broker, "b", "other")
        muted.fetch(0, topic_id)
        answer = muted.answer(SHARE_FETCH)
        [topic] = answer.responses
        assert len(topic.partitions[0].records) > 60_000
        lock_ms = messages.milliseconds(answer.acquisition_lock_timeout)
        assert messages.milliseconds(answer.throttle_time) > lock_ms
        clock.advance(lock_ms)
        other.fetch(0, topic_id)
        [topic] = other.answer(SHARE_FETCH).responses
        [acquired] = topic.partitions[0].acquired_records
        assert acquired.delivery_count == 2
        muted.close()
        other.close()
