"""Records of a share group that are held back after a failure. If these fail, a retry comes too
early, never, or not where the broker has been started anew."""

from collections.abc import Iterator

import pytest

import odradek
from odradek.client import AcknowledgeType, ConfigChange, ConfigResource, KafkaError
from odradek.client.sync import Admin, ShareConsumer
from odradek.model import TopicPartition

WHERE = TopicPartition("jobs", 0)


def configure(broker: odradek.Broker, **settings: str) -> KafkaError | None:
    """Sets the group's settings; what is wrong with them."""
    changes = [
        ConfigChange(f"share.{name.replace('_', '.')}", value) for name, value in settings.items()
    ]
    with Admin(broker.bootstrap_servers) as admin:
        [outcome] = admin.alter_configs({ConfigResource.group("workers"): changes}).values()
        return outcome


@pytest.fixture
def broker() -> Iterator[odradek.Broker]:
    """With two records, and a group whose failures come back after a day."""
    with odradek.Broker() as broker:
        broker.create_topic("jobs", partitions=1)
        day_ms = "86400000"
        assert not configure(
            broker,
            auto_offset_reset="earliest",
            release_backoff_ms=day_ms,
            release_backoff_max_ms=day_ms,
        )
        for value in (b"fails", b"works"):
            broker.produce("jobs", value)
        yield broker


def worker(broker: odradek.Broker) -> ShareConsumer:
    return ShareConsumer(
        broker.bootstrap_servers,
        group_id="workers",
        topics=["jobs"],
        share_acknowledgement_mode="explicit",
        fetch_max_wait_ms=50,
    )


def fail_once(broker: odradek.Broker) -> None:
    with worker(broker) as consumer:
        for _ in range(2):
            record = next(consumer)
            is_bad = record.value == b"fails"
            consumer.acknowledge(
                record, AcknowledgeType.RELEASE if is_bad else AcknowledgeType.ACCEPT
            )
        assert consumer.commit() == {WHERE: None}


def take_next(broker: odradek.Broker, value: bytes) -> None:
    """Appends a record, which is the next to be handed out, and accepts it."""
    broker.produce("jobs", value)
    with worker(broker) as consumer:
        record = next(consumer)
        assert record.value == value, "what is held back came first"
        consumer.acknowledge(record)


def test_a_failure_is_held_back_also_over_a_restart(broker: odradek.Broker) -> None:
    fail_once(broker)
    take_next(broker, b"next")
    broker.restart()
    take_next(broker, b"last")
    partition = broker.share_group("workers").partitions[WHERE]
    assert (partition.start_offset, partition.held, partition.waiting) == (0, (), 0)
    assert broker.lag("workers") == {WHERE: 1}


def test_a_failure_comes_back_when_it_is_due(broker: odradek.Broker) -> None:
    assert not configure(broker, release_backoff_ms="1", release_backoff_max_ms="1")
    fail_once(broker)
    with worker(broker) as consumer:
        record = next(consumer)
        assert (record.value, record.delivery_count) == (b"fails", 2)


def test_the_settings_are_a_groups_and_checked(broker: odradek.Broker) -> None:
    assert configure(broker, release_backoff_multiplier="0.5")
    assert configure(broker, release_backoff_max_ms="-1")
    assert not configure(broker, release_backoff_ms="0")
    fail_once(broker)
    with worker(broker) as consumer:
        assert next(consumer).delivery_count == 2, "off means at once"
