"""Settings in ZooKeeper as brokers meet them: of another version, from before a start, or changed
while nobody leads, or while no controller answers."""

from typing import Any

import pytest
from tests.unit.metadata.zookeeper.zookeeper_cluster import Broker, Cluster

from odradek.controller import AlterOperation, ConfigAlteration, CreatableTopic, PartitionsRequest
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import ConfigResource
from odradek.metadata.store import NewTopic, PartitionChange
from odradek.model import NO_LEADER, ConfigResourceType, TopicPartition

TP = TopicPartition("a", 0)
TOPIC = ConfigResource.topic("a")
CONTROLLER = ConfigResource(ConfigResourceType.BROKER, "1")
ALL_BROKERS = ConfigResource(ConfigResourceType.BROKER, "")
UNCLEAN = "unclean.leader.election.enable"
THROTTLED = "leader.replication.throttled.replicas"


def create(cluster: Cluster, *replicas: int, **settings: str) -> None:
    topic = NewTopic("a", (replicas,), {n.replace("_", "."): v for n, v in settings.items()})
    (outcome,) = cluster.controller.ask("create_topics", [topic])
    assert not isinstance(outcome, BrokerError), outcome


def alter(cluster: Cluster, broker: Broker, resource: ConfigResource, name: str, value: str) -> Any:
    answers: list[Any] = []
    step = ConfigAlteration(name, AlterOperation.SET, value)
    broker.controller.incremental_alter_configs([(resource, [step])], answers.extend)
    cluster.settle(2)
    return [each.error_code for each in answers]


@pytest.mark.parametrize(
    ("resource", "settings"),
    [
        (TOPIC, {"message.downconversion.enable": "true", "segment.bytes": "many"}),
        (TOPIC, {THROTTLED: "0:1, *", UNCLEAN: "perhaps"}),
        (ALL_BROKERS, {"log.retention.ms": "x", "inter.broker.protocol.version": "3.9"}),
        (ALL_BROKERS, {"log.cleaner.min.compaction.lag.ms": "5000"}),
    ],
)
def test_what_another_version_has_stored_stops_nobody(
    resource: ConfigResource, settings: dict[str, str]
) -> None:
    """A raise in a listener left every broker deaf to all later changes."""
    cluster = Cluster(3)
    create(cluster, 1, 2, 3, max_compaction_lag_ms="1000")
    assert cluster.brokers[2].ask("alter_configs", {resource: settings}) is None
    cluster.stop(1)
    cluster.start(1)
    for broker in cluster.brokers.values():
        assert broker.image.config(resource).items() >= settings.items()
        assert broker.state().leader in (1, 2, 3)
    assert set(cluster.brokers[3].image.brokers) == {1, 2, 3}


def test_throttles_are_on_after_a_restart() -> None:
    """They are set before a reassignment, whose brokers may be restarted on the way."""
    cluster = Cluster(2)
    create(cluster, 2, 1, **{THROTTLED: "*"})
    for broker in cluster.brokers.values():
        assert broker.quotas.leader.is_throttled(TP)
    cluster.stop(2)
    assert cluster.start(2).quotas.leader.is_throttled(TP)


@pytest.mark.parametrize(
    ("resource", "asked"),
    [(TOPIC, 1), (TOPIC, 3), (ALL_BROKERS, 1), (ALL_BROKERS, 3), (CONTROLLER, 1)],
)
def test_allowing_an_unclean_election_holds_it(resource: ConfigResource, asked: int) -> None:
    """Whichever broker is told so; nothing else would come to elect somebody."""
    cluster = Cluster(3)
    create(cluster, 2, 3)
    change = PartitionChange(TP, cluster.brokers[2].state().partition_epoch, 2, (2,))
    cluster.brokers[2].ask("change_partitions", [change])
    cluster.stop(2)
    assert cluster.controller.state().leader == NO_LEADER
    assert alter(cluster, cluster.brokers[asked], resource, UNCLEAN, "true") == [ErrorCode.NONE]
    cluster.settle()
    for broker in cluster.brokers.values():
        assert (broker.state().leader, broker.state().isr) == (3, (3,))


def test_a_controller_that_tells_nothing_holds_nobody_up() -> None:
    """The request for a topic was never answered, and every change behind it waited as well."""
    cluster = Cluster(2)
    create(cluster, 1, 2)
    two = cluster.brokers[2]
    two.is_deaf = True
    made: list[Any] = []
    grown: list[Any] = []
    two.controller.auto_create_topics(["new"], 1000, made.extend)
    two.controller.create_topics([CreatableTopic("other", 1, 1)], 1000, made.extend)
    two.controller.create_partitions([PartitionsRequest("a", 2)], 1000, grown.extend)
    assert alter(cluster, two, TOPIC, "retention.ms", "5") == [ErrorCode.NONE]
    assert (made, grown) == ([], [])
    cluster.settle()
    codes = [each.error_code for each in (*made, *grown)]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT] * 3
    two.is_deaf = False
    cluster.settle()
    assert {"new", "other"} <= set(two.image.topics), "what comes late comes all the same"
