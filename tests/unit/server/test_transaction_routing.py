"""Markers and questions find the broker that leads or coordinates, and nobody waits for ever."""

from types import SimpleNamespace
from uuid import uuid4

import pytest
from tests.unit.coordinator.transactional.transactions import BILLS, COMMIT, ORDERS, Leaders

from odradek.coordinator.runtime.batches import EndMarker
from odradek.coordinator.transactions.requests import AddPartitionsRequest, ProducerIdAndEpoch
from odradek.coordinator.transactions.writes import TransactionWrites
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import PartitionImage, TopicImage
from odradek.protocol import messages
from odradek.server.coordination.transaction_routing import RoutedMarkers, RoutedWrites
from odradek.server.peers.broker_channel import BrokerChannels

E = ErrorCode
MARKER = EndMarker(5, 1, 0, COMMIT, 2)
REQUEST = AddPartitionsRequest("t", ProducerIdAndEpoch(5, 1), [ORDERS], 2)


class Channel:
    """Keeps what is asked, until the test answers it."""

    def __init__(self):
        self.asked = []
        self.is_closed = False

    def ask(self, api, values, on_done):
        messages.encode_request(api.key, api.max_version, values)  # every name is known
        self.asked.append((api, values, on_done))

    def close(self):
        self.is_closed = True

    def answer(self, values):
        api, _, on_done = self.asked.pop()
        data = messages.encode_response(api.key, api.max_version, values)
        frame = memoryview(data)
        on_done(messages.decode_response(api.key, api.max_version, frame, 0))


def partition_led_by(leader):
    return PartitionImage(0, leader, 0, 0, (leader,), (leader,))


class World:
    """Broker 1 among others; `leaders` are those of the partitions."""

    def __init__(self, leaders, brokers=(1, 2)):
        self.epochs = dict.fromkeys(brokers, 1)
        self.channels = []
        self.metadata = SimpleNamespace(image=self)
        self._leaders = leaders
        self.pool = BrokerChannels(self.metadata, self._open)

    @property
    def brokers(self):
        return {each: SimpleNamespace(epoch=epoch) for each, epoch in self.epochs.items()}

    def partition(self, topic_partition):
        leader = self._leaders.get(topic_partition)
        return None if leader is None else partition_led_by(leader)

    def topic(self, name):
        return TopicImage(name, uuid4(), (partition_led_by(self._leaders["t"]),))

    def _open(self, _broker):
        self.channels.append(Channel())
        return self.channels[-1]


class NotHere(TransactionWrites):
    """This broker coordinates nothing."""

    def add_or_verify(self, request, verify_only, on_done):
        raise AssertionError(f"{request} should be asked elsewhere")


def test_each_partitions_marker_goes_to_its_leader():
    """Fails when a partition that another broker leads never gets its marker."""
    world = World({ORDERS: 1, BILLS: 2})
    local, done = Leaders(), []
    markers = RoutedMarkers(1, local, world.metadata, world.pool)
    markers.write(MARKER, [ORDERS, BILLS], lambda *outcome: done.append(outcome))
    assert local.written == [(ORDERS, MARKER)]
    assert done == [(ORDERS, E.NONE)]
    (channel,) = world.channels
    partitions = [{"partition_index": BILLS.partition, "error_code": 3}]
    topics = [{"name": BILLS.topic, "partitions": partitions}]
    channel.answer({"markers": [{"producer_id": 5, "topics": topics}]})
    # The other broker has not heard of the topic yet, but it exists.
    assert done[1:] == [(BILLS, E.NOT_LEADER_OR_FOLLOWER)]


@pytest.mark.parametrize("brokers", [(1,), (1, 2)])
def test_a_broker_that_cannot_be_reached_is_answered_for(brokers):
    """Fails when a transaction waits for ever for a broker that is gone."""
    world = World({BILLS: 2, "t": 2}, brokers)
    done = []
    markers = RoutedMarkers(1, Leaders(), world.metadata, world.pool)
    markers.write(MARKER, [BILLS], lambda *outcome: done.append(outcome))
    writes = RoutedWrites(1, NotHere(), world.metadata, world.pool)
    writes.add_or_verify(REQUEST, True, done.append)
    for channel in world.channels:
        while channel.asked:
            channel.asked.pop()[2](BrokerError(E.NETWORK_EXCEPTION))
    assert sorted(done, key=str) == [(BILLS, E.NETWORK_EXCEPTION), [E.NETWORK_EXCEPTION]]


def test_a_broker_that_came_back_is_asked_anew_and_nobody_waits_for_the_old():
    """Fails when whoever asked a dead broker is never answered."""
    world = World({"t": 2})
    writes = RoutedWrites(1, NotHere(), world.metadata, world.pool)
    done = []
    writes.add_or_verify(REQUEST, True, done.append)
    world.epochs[2] += 1
    writes.add_or_verify(REQUEST, False, done.append)
    old, new = world.channels
    assert old.is_closed
    assert done == [[E.NETWORK_EXCEPTION]]
    partitions = [{"partition_index": 0, "partition_error_code": 0}]
    topics = [{"name": ORDERS.topic, "results_by_partition": partitions}]
    new.answer({"results_by_transaction": [{"transactional_id": "t", "topic_results": topics}]})
    assert done[1:] == [[E.NONE]]
    writes.add_or_verify(REQUEST, False, done.append)
    world.pool.close()
    assert done[2:] == [[E.NETWORK_EXCEPTION]]
