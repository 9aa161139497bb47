"""How the share coordinator follows the metadata, and how one elsewhere is asked."""

from types import SimpleNamespace
from uuid import UUID

import pytest
from tests.unit.server.test_transaction_coordination import on_loop

import odradek
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import BrokerRegistration, MetadataImage, PartitionImage, TopicImage
from odradek.model import SHARE_GROUP_STATE_TOPIC
from odradek.replication.share.persister import SharePartitionKey, ShareState, StateBatch
from odradek.replication.share.states import RecordState
from odradek.server.coordination.share_states import RoutedShareStates
from odradek.server.peers.broker_channel import BrokerChannels

KEY = SharePartitionKey("g", UUID(int=7), 0)


def test_states_of_topics_that_are_gone_are_forgotten_in_the_end() -> None:
    """Fails when states stay that the log has once refused to forget, or when those of topics go
    that a broker which has come back does not know yet."""
    with odradek.Broker() as broker:
        server = broker._running()
        shares = server.coordinators.share_states
        times: list[int] = []
        shares.coordinator.forget_topics = lambda: times.append(1)  # type: ignore[method-assign]
        server.metadata.is_current = False
        on_loop(broker, shares._tidy_up)
        assert not times
        server.metadata.is_current = True
        on_loop(broker, shares._tidy_up)
        assert times


def read_elsewhere(answer: object) -> list[ShareState | BrokerError]:
    """What the leader of a partition hears that asks another broker, which answers so."""
    replicas = (2,)
    topic = TopicImage(
        SHARE_GROUP_STATE_TOPIC, UUID(int=1), (PartitionImage(0, 2, 0, 0, replicas, replicas),)
    )
    image = MetadataImage("c", brokers={2: BrokerRegistration(2, (), None, 1)})
    metadata = MetadataCache(image.with_topics([topic]))
    channel = SimpleNamespace(ask=lambda _api, _values, on_done: on_done(answer))
    channels = BrokerChannels(metadata, lambda _broker: channel)  # type: ignore[arg-type,return-value]
    states = RoutedShareStates(1, None, metadata, channels, lambda _on_done: None)  # type: ignore[arg-type]
    heard: list[ShareState | BrokerError] = []
    states.read(KEY, 0, heard.append)
    return heard


def answered(*partitions: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(results=[SimpleNamespace(partitions=partitions)])


def stored(delivery_state: int) -> SimpleNamespace:
    batch = SimpleNamespace(
        first_offset=5, last_offset=6, delivery_state=delivery_state, delivery_count=1, due_ms=9
    )
    return SimpleNamespace(
        error_code=0, error_message=None, state_epoch=1, start_offset=5, state_batches=[batch]
    )


def test_a_state_is_read_from_another_broker() -> None:
    """If this fails, a partition's leader begins with another state than is stored."""
    batch = StateBatch(5, 6, RecordState.ACKNOWLEDGED, 1, 9)
    assert read_elsewhere(answered(stored(2))) == [ShareState(1, 5, (batch,))]
    refused = SimpleNamespace(error_code=74, error_message="old")
    [error] = read_elsewhere(answered(refused))
    assert isinstance(error, BrokerError)
    assert (error.code, error.message) == (ErrorCode.FENCED_LEADER_EPOCH, "old")


@pytest.mark.parametrize(
    "answer",
    [answered(stored(3)), answered(stored(99)), answered(), SimpleNamespace(results=[])],
    ids=["newer", "broken", "no partition", "no topic"],
)
def test_an_answer_that_is_not_understood_is_an_answer(answer: SimpleNamespace) -> None:
    """If this fails, a group that another version has written for waits for ever for its state,
    and what the answer is told to ends with an exception that nobody sees."""
    [error] = read_elsewhere(answer)
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
