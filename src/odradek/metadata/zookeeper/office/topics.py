"""`TopicReader`: which topics there are, and the states of their partitions, as ZooKeeper has them.

Everything is read once, and from then on what the watches say has changed. A topic that somebody
has made gets leaders; partitions that a topic was given get theirs.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from odradek.metadata.image import (
    BrokerRegistration,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import Failure, Node, SetData
from odradek.metadata.zookeeper.office.deletions import TopicDeletions
from odradek.metadata.zookeeper.office.docket import Docket
from odradek.metadata.zookeeper.office.readings import (
    first_image,
    is_fresh,
    partition_of,
    with_added,
    with_growth,
    with_reading,
    with_started,
)
from odradek.metadata.zookeeper.office.term import Term
from odradek.metadata.zookeeper.publishing import ImagePublisher
from odradek.metadata.zookeeper.settings import ClusterSettings
from odradek.metadata.zookeeper.znodes import NO_STATE, TopicNode, ZnodeError
from odradek.model import NO_LEADER, TopicPartition

logger = logging.getLogger(__name__)


class TopicReader:
    """Reads for the controller of `term`. `brokers_at_start` are those that lived when it began."""

    def __init__(
        self,
        term: Term,
        docket: Docket,
        publisher: ImagePublisher,
        settings: ClusterSettings,
        deletions: TopicDeletions,
        new_id: Callable[[], UUID],
    ) -> None:
        self.brokers_at_start: Mapping[int, BrokerRegistration] = {}
        self.is_complete = False
        """Whether the image is that of this controller, and no longer what others have told."""
        self._term: Final = term
        self._docket: Final = docket
        self._publisher: Final = publisher
        self._settings: Final = settings
        self._deletions: Final = deletions
        self._new_id: Final = new_id
        self._not_understood: Final[set[str]] = set()
        self._is_reading = False
        self._read_again = False

    def read_all(self, then: Callable[[], None] = lambda: None) -> None:
        """Looks which topics there are; those that are not known are taken in."""
        if self._is_reading:
            self._read_again = True
            return
        self._is_reading = True

        def on_children(names: tuple[str, ...] | Failure) -> None:
            if isinstance(names, Failure) or not self._term.is_open:
                return
            known = self._term.topic_versions
            new = [name for name in names if name not in known and name not in self._deletions]
            self._term.children(znodes.DELETE_TOPICS, lambda marked: on_marked(new, marked))

        def on_marked(new: Sequence[str], marked: tuple[str, ...] | Failure) -> None:
            if isinstance(marked, Failure) or not self._term.is_open:
                return
            self._read_new(new, frozenset(marked), on_read)

        def on_read() -> None:
            self._is_reading = False
            then()
            if self._read_again and self._term.is_open:
                self._read_again = False
                self.read_all()

        self._term.watch_children(znodes.TOPICS, on_children, self.read_all)

    def read(self, name: str) -> None:
        """A topic has other partitions, or other states, than it had."""

        def on_node(node: Node | Failure | None) -> None:
            if not isinstance(node, Node) or not self._term.is_open:
                return
            if name not in self._publisher.image.topics:
                self.read_all()  # perhaps it is understood now
                return
            topic = self._understood(name, node)
            if topic is not None:
                self._read_states({name: topic}, lambda states: on_states(topic, states))

        def on_states(
            node: TopicNode, states: Mapping[TopicPartition, PartitionImage | None]
        ) -> None:
            if self._term.is_open:
                topic = self._topic(name, node, states)
                self._docket.submit(lambda image: with_reading(image, topic), is_written=True)
                self._docket.submit(lambda image: with_growth(image, topic))

        self._term.watch_node(znodes.topic_path(name), on_node, lambda: self.read(name))

    def read_again(self, partitions: Iterable[TopicPartition]) -> None:
        """Somebody else has written them, or this controller did before its connection broke."""
        for name in {each.topic for each in partitions}:
            if name in self._publisher.image.topics:
                self.read(name)
            else:
                self._term.topic_versions.pop(name, None)
        self.read_all()

    def _read_new(
        self, names: Sequence[str], marked: frozenset[str], then: Callable[[], None]
    ) -> None:
        paths = {znodes.topic_path(name): name for name in names}

        def on_topics(nodes: Mapping[str, Node | None]) -> None:
            topics: dict[str, TopicNode] = {}
            for path, node in nodes.items():
                topic = None if node is None else self._understood(paths[path], node)
                if topic is not None:
                    topics[paths[path]] = topic
                elif node is not None:
                    self._not_understood.add(paths[path])
            self._read_states(topics, lambda states: on_states(topics, states))

        def on_states(
            topics: Mapping[str, TopicNode],
            states: Mapping[TopicPartition, PartitionImage | None],
        ) -> None:
            if not self._term.is_open:
                return
            found = [self._topic(name, node, states) for name, node in topics.items()]
            self._settings.with_topics(topics, lambda: self._take_in(found, marked, then))

        self._term.gather(paths, on_topics, lambda path: self.read(paths[path]))

    def _understood(self, name: str, node: Node) -> TopicNode | None:
        try:
            topic = znodes.read_topic(name, node.data)
        except ZnodeError as error:
            logger.error("a topic is passed over: %s", error)
            return None
        self._term.topic_versions[name] = node.version
        return topic

    def _topic(
        self,
        name: str,
        node: TopicNode,
        states: Mapping[TopicPartition, PartitionImage | None],
    ) -> TopicImage:
        topic_id = node.topic_id
        if topic_id is None:
            # Kafka before 2.8 gave topics none.
            topic_id = self._new_id()
            data = znodes.topic_json(topic_id, node.assignments)
            version = self._term.topic_versions[name]
            self._term.topic_versions[name] = version + 1
            self._term.commit([SetData(znodes.topic_path(name), data, version)])
        partitions = []
        for index, assignment in enumerate(node.assignments):
            state = states.get(TopicPartition(name, index))
            partition = state or PartitionImage(
                index, NO_LEADER, NO_STATE, NO_STATE, assignment.replicas, assignment.replicas
            )
            partitions.append(
                partition._replace(
                    replicas=assignment.replicas,
                    adding=assignment.adding,
                    removing=assignment.removing,
                )
            )
        return TopicImage(name, topic_id, tuple(partitions))

    def _read_states(
        self,
        topics: Mapping[str, TopicNode],
        then: Callable[[Mapping[TopicPartition, PartitionImage | None]], None],
    ) -> None:
        partitions = [
            TopicPartition(name, index)
            for name, topic in topics.items()
            for index in range(len(topic.assignments))
        ]
        paths = {znodes.state_path(each): each for each in partitions}

        def on_nodes(nodes: Mapping[str, Node | None]) -> None:
            states: dict[TopicPartition, PartitionImage | None] = {}
            for path, node in nodes.items():
                where = paths[path]
                states[where] = None if node is None else partition_of(where, node)
            then(states)

        self._term.gather(paths, on_nodes)

    def _take_in(
        self, found: Sequence[TopicImage], marked: frozenset[str], then: Callable[[], None]
    ) -> None:
        """Topics that were there before this term, and new ones."""
        if not self._term.is_open:
            return
        for topic in found:
            if topic.name in marked:
                self._deletions.take_over(topic)
        kept = [topic for topic in found if topic.name not in marked]

        def on_taken_in(_outcome: object = None) -> None:
            self._deletions.go_on()
            then()

        if not self.is_complete:
            self._publisher.publish(partial(self._complete, topics=kept), on_taken_in)
            return
        fresh = [topic for topic in kept if is_fresh(topic.partitions)]
        others = [topic for topic in kept if not is_fresh(topic.partitions)]
        self._docket.submit(lambda image: with_added(image, others), is_written=True)
        self._docket.submit(lambda image: with_started(image, fresh), on_taken_in)

    def _complete(self, image: MetadataImage, topics: Sequence[TopicImage]) -> MetadataDelta | None:
        if not self._term.is_open:
            return None
        self.is_complete = True
        # Of what is there and not understood this broker knows what it was told, and keeps it.
        known = (image.topic(name) for name in self._not_understood)
        kept = [topic for topic in known if topic is not None]
        return first_image(
            image, [*topics, *kept], self.brokers_at_start, self._term.broker_id, self._term.epoch
        )
