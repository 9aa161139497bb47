"""After what time a segment is closed: the settings, the jitter, and compaction's limit."""

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.topic import LogConfig, parse_topic_settings
from odradek.model import TopicPartition
from odradek.storage.log.roll_rules import segment_ms

HOUR_MS = 3_600_000


def rolls_after(number: int, **settings: str) -> int:
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    return segment_ms(TopicPartition("orders", number), LogConfig(parse_topic_settings(texts)))


def test_without_jitter_all_roll_after_segment_ms():
    """Segments would be closed earlier than was asked for."""
    assert {rolls_after(n, segment_ms="60000") for n in range(50)} == {60_000}


def test_jitter_spreads_the_partitions_and_brings_the_roll_forward():
    """Every partition would roll and be flushed in one moment, or segments stay open too long."""
    times = [rolls_after(n, segment_ms="60000", segment_jitter_ms="10000") for n in range(200)]
    assert all(50_000 <= time <= 60_000 for time in times)
    assert len(set(times)) > 150
    assert times == [
        rolls_after(n, segment_ms="60000", segment_jitter_ms="10000") for n in range(200)
    ]


def test_a_jitter_larger_than_the_time_still_lets_segments_live():
    """A new segment would be made for every append."""
    assert min(rolls_after(n, segment_ms="100", segment_jitter_ms="5000") for n in range(200)) >= 1


def test_a_compacted_log_rolls_within_its_lag():
    """The promise of max.compaction.lag.ms would not hold for records of the active segment."""
    settings = {"segment_ms": "60000", "max_compaction_lag_ms": "5000"}
    assert rolls_after(0, cleanup_policy="compact", **settings) == 5000
    assert rolls_after(0, **settings) == 60_000


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"log.roll.hours": "2"}, 2 * HOUR_MS),
        ({"log.roll.hours": "2", "log.roll.ms": "5000"}, 5000),
        ({}, 168 * HOUR_MS),
    ],
)
def test_the_brokers_settings_are_the_topics_defaults(properties, expected):
    """`log.roll.*` would do nothing."""
    config = LogConfig.from_settings({}, BrokerConfig(properties).topic_defaults())
    assert segment_ms(TopicPartition("orders", 0), config) == expected


def test_the_brokers_jitter_is_the_topics_default():
    """`log.roll.jitter.*` would do nothing, or the broker's win over the topic's."""
    broker = BrokerConfig({"log.roll.jitter.hours": "3"})
    tp = TopicPartition("orders", 0)
    assert LogConfig.from_settings({}, broker.topic_defaults()).segment_jitter_ms == 3 * HOUR_MS
    times = {
        segment_ms(tp._replace(partition=n), LogConfig.from_settings({}, broker.topic_defaults()))
        for n in range(9)
    }
    assert len(times) == 9
    own = LogConfig.from_settings({"segment.jitter.ms": "0"}, broker.topic_defaults())
    assert segment_ms(tp, own) == 168 * HOUR_MS
