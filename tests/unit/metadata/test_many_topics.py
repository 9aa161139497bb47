"""Thousands of topics at once cost a controller as many steps as there are topics, and no more."""

from uuid import UUID

from tests.unit.metadata.zookeeper_tree import Tree, TreeClient

from odradek.background import ignore
from odradek.controller.elected.context import ControllerContext
from odradek.controller.elected.state_writer import StateWriter
from odradek.metadata import MetadataDelta
from odradek.metadata.image import MetadataImage, PartitionImage, TopicImage

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
    writer = StateWriter(context, on_deposed=ignore, on_lost=ignore)
    Name.comparisons = 0
    writer.write(MetadataDelta(empty, empty.with_topics(topics), added=topics), ignore)
    assert Name.comparisons <= TOPICS
