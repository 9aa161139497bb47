"""Defaults of the broker that change reach the logs of its topics, some topics in a turn."""

from collections import Counter

from tests.unit.replication.fakes import Cluster

from odradek.model import TopicPartition
from odradek.replication.role_changes import SLICE_TOPICS
from odradek.storage.log.log import Log

WEEK_MS = 7 * 24 * 3_600_000


def log_of(cluster: Cluster, topic: str) -> Log:
    return cluster.replicas.partition(TopicPartition(topic, 0)).leader_log()


def create_more_than_a_slice(cluster: Cluster) -> None:
    for number in range(SLICE_TOPICS + 1):
        cluster.create(f"t{number}", flush_ms="7")


def keep_for(cluster: Cluster, retention_ms: int) -> None:
    default = {"log.retention.ms": str(retention_ms)}
    assert cluster.config.update_dynamic(cluster=default, broker={}) == []


def retentions(cluster: Cluster) -> Counter[int]:
    logs = [partition.leader_log() for partition in cluster.replicas.partitions]
    return Counter(log.config.retention_ms for log in logs)


def test_some_topics_in_a_turn(cluster: Cluster) -> None:
    """A broker of ten thousand topics would stand still for half a second."""
    create_more_than_a_slice(cluster)
    keep_for(cluster, 5)
    assert retentions(cluster) == {5: SLICE_TOPICS, WEEK_MS: 1}
    cluster.timer.advance_clock(0)
    assert retentions(cluster) == {5: SLICE_TOPICS + 1}


def test_what_happens_in_between(cluster: Cluster) -> None:
    """A topic that changes meanwhile would be set back, and one that goes would break the rest."""
    create_more_than_a_slice(cluster)
    keep_for(cluster, 5)
    for number in range(SLICE_TOPICS):
        cluster.configure(f"t{number}", retention_ms="6")
    cluster.delete(f"t{SLICE_TOPICS}")
    keep_for(cluster, 8)
    cluster.timer.advance_clock(0)
    assert retentions(cluster) == {6: SLICE_TOPICS}


def test_no_topic_has_a_part_in_other_settings(cluster: Cluster) -> None:
    """Each change of a broker's setting would cost as much as one that all topics follow."""
    cluster.create("a", flush_ms="7")
    config = log_of(cluster, "a").config
    cluster.config.update_dynamic(cluster={"max.connections": "20"}, broker={})
    assert log_of(cluster, "a").config is config


def test_topics_without_settings_share_the_defaults(cluster: Cluster) -> None:
    """Each of ten thousand topics would have a copy of what is the same for all."""
    cluster.create("a")
    cluster.create("b")
    for retention_ms in (5, 6):
        assert log_of(cluster, "a").config is log_of(cluster, "b").config
        keep_for(cluster, retention_ms)
        assert retentions(cluster) == {retention_ms: 2}
