"""Quotas of replication: what is covered, and how fast it may move."""

from uuid import UUID

import pytest

from odradek.clock import ManualClock
from odradek.config.broker import BrokerConfig
from odradek.metadata import (
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from odradek.model import TopicPartition
from odradek.replication.quota import ReplicationQuotas
from odradek.windowed_rate import WindowedRate


def test_a_rate_is_measured_over_its_windows() -> None:
    """A burst counts for as long as the windows reach back, and not a moment longer."""
    rate = WindowedRate(windows=3, window_ms=1000)
    rate.record(10_500, 3_000)
    assert rate.per_second(10_500) == 1_200  # 2.5 s, of which the first two windows were idle
    rate.record(11_000, 1_000)
    assert rate.per_second(11_999) == 4_000 / 2.999
    assert rate.per_second(12_999) == 4_000 / 2.999
    assert rate.per_second(13_000) == 500, "the window of 10 s is over"
    assert rate.per_second(14_000) == 0


def _configured(quotas: ReplicationQuotas, **settings: str) -> None:
    resource = ConfigResource.topic("a")
    named = {name.replace("_", "."): value for name, value in settings.items()}
    image = MetadataImage("c").with_configs({resource: named})
    quotas.apply_delta(MetadataDelta(MetadataImage("c"), image, configs=[resource]))


def test_what_the_settings_of_a_topic_cover() -> None:
    """The pairs of this broker only; a star is every replica; nothing is nothing."""
    quotas = ReplicationQuotas(2, BrokerConfig({}), ManualClock())
    first, second = TopicPartition("a", 0), TopicPartition("a", 1)
    assert not quotas.leader.is_throttled(first)
    _configured(
        quotas,
        leader_replication_throttled_replicas="0:2,1:3",
        follower_replication_throttled_replicas="*",
    )
    assert [quotas.leader.is_throttled(each) for each in (first, second)] == [True, False]
    assert [quotas.follower.is_throttled(each) for each in (first, second)] == [True, True]
    _configured(quotas)
    assert not quotas.leader.is_throttled(first)
    assert not quotas.follower.is_throttled(first)


def test_a_topic_brings_its_settings_along() -> None:
    """Settings from before the broker's start are not announced: without this its throttles were
    off after a restart, in the middle of a reassignment."""
    quotas = ReplicationQuotas(2, BrokerConfig({}), ManualClock())
    topic = TopicImage("a", UUID(int=1), (PartitionImage(0, 2, 0, 0, (2,), (2,)),))
    resource = ConfigResource.topic("a")
    settings = {"leader.replication.throttled.replicas": " *"}
    stored = MetadataImage("c").with_topics([topic]).with_configs({resource: settings})
    quotas.apply_delta(MetadataDelta(MetadataImage("c"), stored, added=[topic]))
    assert quotas.leader.is_throttled(TopicPartition("a", 0))
    quotas.apply_delta(MetadataDelta(stored, MetadataImage("c"), removed=[topic]))
    assert not quotas.leader.is_throttled(TopicPartition("a", 0))


@pytest.mark.parametrize("text", ["0:1, *", "x", "0:" + "2" * 5000])
def test_stored_replicas_that_cannot_be_read_cover_nothing(text: str) -> None:
    """A raise would leave every broker of the cluster without the change."""
    quotas = ReplicationQuotas(2, BrokerConfig({}), ManualClock())
    _configured(quotas, leader_replication_throttled_replicas=text)
    assert not quotas.leader.is_throttled(TopicPartition("a", 0))


def test_only_what_is_covered_counts_and_the_rate_may_change() -> None:
    """`leader.replication.throttled.rate` is set while a reassignment runs."""
    config, clock = BrokerConfig({}), ManualClock()
    quotas = ReplicationQuotas(2, config, clock)
    _configured(quotas, leader_replication_throttled_replicas="0:2")
    quota = quotas.leader
    quota.record(TopicPartition("b", 0), 10**9)
    quota.record(TopicPartition("a", 0), 100_000)
    assert not quota.is_exceeded(), "without a rate there is no limit"
    config.update_dynamic(cluster={"leader.replication.throttled.rate": "1000"}, broker={})
    assert quota.is_exceeded()
    clock.advance(60_000)
    assert not quota.is_exceeded()
