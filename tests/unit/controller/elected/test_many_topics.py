"""Thousands of topics at once cost a controller, and who obeys it, as many steps as there are
topics, and no more."""

from uuid import UUID

from tests.outcomes import whatever
from tests.unit.metadata.zookeeper.zookeeper_cluster import Cluster
from tests.unit.metadata.zookeeper.zookeeper_tree import Tree, TreeClient

from odradek.controller.elected.context import ControllerContext
from odradek.controller.elected.state_writer import StateWriter
from odradek.errors import ErrorCode
from odradek.metadata import MetadataDelta, NewTopic, PartitionChange
from odradek.metadata.control import ControlHeader, StoppedReplica, StopReplica
from odradek.metadata.image import MetadataImage, PartitionImage, TopicImage
from odradek.model import TopicPartition

TOPICS = 100


class Name(str):
    """The name of a topic, which counts how often it is compared."""

    __hash__ = str.__hash__
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Name.comparisons += 1
        return str.__eq__(self, other)


def test_no_topic_is_looked_for_among_the_others() -> None:
    """The controller would be away for seconds when ten thousand topics are made at once, and its
    session with it."""
    partition = PartitionImage(0, 1, 0, 0, (1,), (1,))
    topics = [TopicImage(Name(f"t{n}"), UUID(int=n + 1), (partition,)) for n in range(TOPICS)]
    empty = MetadataImage("cluster")
    context = ControllerContext(1, 1, 0, TreeClient(Tree()))
    writer = StateWriter(context, whatever, whatever, whatever)
    Name.comparisons = 0
    writer.write(MetadataDelta(empty, empty.with_topics(topics), added=topics), whatever)
    assert Name.comparisons <= TOPICS


def test_no_replica_that_is_stopped_too_late_is_looked_for_among_the_others() -> None:
    """A broker would stand still for seconds while it answers for its replicas."""
    cluster = Cluster(2)
    replicas = [TopicPartition(Name(f"t{n}"), 0) for n in range(TOPICS)]
    cluster.controller.ask(
        "create_topics", [NewTopic(each.topic, ((1, 2),), {}) for each in replicas]
    )
    states = [cluster.controller.state(*each) for each in replicas]
    led = [
        PartitionChange(where, state.partition_epoch, 2, state.isr)
        for where, state in zip(replicas, states, strict=True)
    ]
    cluster.controller.ask("change_partitions", led)
    two = cluster.brokers[2]
    header = ControlHeader(1, two.image.controller_epoch, two.image.brokers[2].epoch)
    late = StopReplica(header, tuple(StoppedReplica(each, 0, delete=True) for each in replicas))
    Name.comparisons = 0
    answer = two.ask("on_stop_replica", late)
    assert Name.comparisons <= 10 * TOPICS
    assert answer == dict.fromkeys(replicas, ErrorCode.FENCED_LEADER_EPOCH)
