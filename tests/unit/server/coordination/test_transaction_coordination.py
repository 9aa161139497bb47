"""How the transaction coordinator follows the metadata: what it does not know yet is not gone."""

from collections.abc import Callable

import pytest

import odradek
from odradek.coordinator.runtime.batches import EndMarker
from odradek.errors import ErrorCode
from odradek.metadata.image import MetadataDelta, MetadataImage
from odradek.model import TopicPartition, TransactionResult

NOWHERE = TopicPartition("nowhere", 0)
MARKER = EndMarker(5, 1, 0, TransactionResult.COMMIT, 2)


def on_loop(broker: odradek.Broker, act: Callable[[], None]) -> None:
    async def run() -> None:
        act()

    assert broker._thread is not None
    broker._thread.run(run())


def marked(broker: odradek.Broker, partition: TopicPartition) -> ErrorCode:
    """The answer about a marker for a partition."""
    codes: list[ErrorCode] = []
    markers = broker._running().coordinators.transactions.markers
    on_loop(broker, lambda: markers.write(MARKER, [partition], lambda _, code: codes.append(code)))
    return codes[0]


def test_a_partition_that_is_not_known_yet_is_not_gone() -> None:
    """Fails when a broker that has just come, or come back, takes partitions for deleted that it
    has not heard of, and calls a transaction ended: its readers are held up for ever."""
    with odradek.Broker() as broker:
        metadata = broker._running().metadata
        metadata.is_current = False
        assert marked(broker, NOWHERE) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        metadata.tell()
        assert marked(broker, NOWHERE) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_each_partition_of_a_marker_is_answered_beside_one_that_raises() -> None:
    """Fails when a coordinator waits for partitions that have long had their markers."""
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    with odradek.Broker() as broker:
        broker.create_topic("t", partitions=2)
        local = broker._running().coordinators.transactions.markers._markers
        answered: list[TopicPartition] = []

        def on_done(partition: TopicPartition, _code: ErrorCode) -> None:
            answered.append(partition)
            raise KeyError("ours")

        def write() -> None:
            with pytest.raises(KeyError):
                local.write(MARKER, partitions, on_done)

        on_loop(broker, write)
        assert answered == partitions


def test_a_partition_is_not_gone_before_a_change_is_through() -> None:
    """Fails when a coordinator that is elected by a large change goes by the image before it."""
    with odradek.Broker() as broker:
        server = broker._running()
        image = server.metadata.image
        change = MetadataDelta(image, image)
        on_loop(broker, lambda: server.coordinators.transactions.apply_delta(change) and None)
        assert marked(broker, NOWHERE) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        on_loop(broker, lambda: server.metadata.publish(change))
        assert marked(broker, NOWHERE) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_who_waits_for_a_broker_that_is_gone_is_answered_when_that_is_shown() -> None:
    """Fails when the change that takes a broker away takes several turns of the loop, and those who
    wait for it are looked for while it is still there."""
    seen: list[bool] = []

    def gone(image: MetadataImage) -> MetadataDelta:
        after = image.with_brokers({}, image.controller_id)
        return MetadataDelta(image, after, brokers_changed=True)

    with odradek.Broker() as broker:
        server = broker._running()
        change = gone(server.metadata.image)
        for each in server.coordinators.transactions._requests:
            each.drop_gone = lambda: seen.append(bool(server.metadata.image.brokers))  # type: ignore[method-assign]
        on_loop(broker, lambda: server.coordinators.transactions.apply_delta(change) and None)
        on_loop(broker, lambda: None)
        on_loop(broker, lambda: server.metadata.publish(change))
        on_loop(broker, lambda: None)
        on_loop(
            broker, lambda: server.metadata.publish(MetadataDelta(change.image, change.previous))
        )
    assert seen
    assert not any(seen)
