"""`NewTopics`: one reading of topics that a controller does not have in its image.

A new id of a topic that was led before holds once it is written over the node that was read: this
broker's server of ZooKeeper may lag behind, so others may have written the id back already.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID

from odradek.controller.elected.context import ControllerContext, KnownNode
from odradek.controller.elected.image_changes import as_written, partition_of
from odradek.controller.elected.missing_ids import MissingIds
from odradek.metadata.image import PartitionImage, TopicImage
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import Created, Node, Refusal, SetData
from odradek.metadata.zookeeper.reads import UNREADABLE, gather_children
from odradek.metadata.zookeeper.znodes import NO_STATE, TopicNode
from odradek.model import NO_LEADER, TopicPartition

States: TypeAlias = Mapping[TopicPartition, PartitionImage | None]
"""The states of partitions; None where there is none."""
logger = logging.getLogger(__name__)


class NewTopics:
    """Reads the nodes, the partitions and the states of topics for the controller of `context`.
    `known` gives what this broker was told of a topic before it was elected; `understand` gives
    the content of a node, or None; `on_changed` hears of each topic whose node changes later,
    `on_refused` of new ids that could not be written, `on_unread` of each topic with states that
    could not be read; `on_read` gets the topics, without those and those whose ids only others may
    know."""

    def __init__(
        self,
        context: ControllerContext,
        known: Callable[[str], TopicImage | None],
        ids: MissingIds,
        understand: Callable[[str, Node], TopicNode | None],
        on_changed: Callable[[str], None],
        on_refused: Callable[[], None],
        on_unread: Callable[[str], None],
        on_read: Callable[[list[TopicImage]], None],
    ) -> None:
        self._context: Final = context
        self._known: Final = known
        self._ids: Final = ids
        self._understand: Final = understand
        self._on_changed: Final = on_changed
        self._on_refused: Final = on_refused
        self._on_unread: Final = on_unread
        self._on_read: Final = on_read
        # Not who is told from now on: the nodes may have been read before.
        self._asked: Final = ids.asked()
        self._topics: Final[dict[str, _NewTopic]] = {}
        self._found: Final[dict[str, TopicImage]] = {}
        # The topics whose new ids are to be written.
        self._renewed: Final[list[_NewTopic]] = []

    def read(self, names: Iterable[str]) -> None:
        """Begins with the nodes of the topics."""
        paths = {znodes.topic_path(name): name for name in names}

        def on_nodes(nodes: Mapping[str, Node | None]) -> None:
            for path, node in nodes.items():
                if node is not None:
                    self._note(paths[path], node)
            self._read_folders()

        self._context.gather(paths, on_nodes, lambda path: self._on_changed(paths[path]))

    def _note(self, name: str, node: Node) -> None:
        content = self._understand(name, node)
        if content is not None:
            whole = _with_missing(content, self._known(name))
            self._topics[name] = _NewTopic(name, node, content, whole)

    def _read_folders(self) -> None:
        without_id = [each for each in self._topics.values() if each.content.topic_id is None]
        folders = {znodes.partitions_path(each.name): each for each in without_id}

        def on_folders(nodes: Mapping[str, Node | None]) -> None:
            for path, node in nodes.items():
                folders[path].is_begun = node is not None
                folders[path].is_unread = node is UNREADABLE
            begun = [path for path, node in nodes.items() if node is not None]
            gather_children(self._context.zookeeper, begun, self._read_states)

        self._context.gather(folders, on_folders)

    def _read_states(self, found: Iterable[str]) -> None:
        """Reads the states of all partitions. Whatever a node without an id leaves out, somebody
        may have the records of."""
        named = [
            partition
            for topic in self._topics.values()
            for partition in partitions_in(topic.name, topic.whole)
        ]
        read_states(self._context, [*named, *_partitions_at(found)], self._end)

    def _end(self, states: States, unread: Collection[str]) -> None:
        if not self._context.is_open:
            return
        led = _by_topic(states)
        for topic in self._topics.values():
            if topic.is_unread or topic.name in unread:
                self._context.topic_nodes.pop(topic.name, None)
                self._on_unread(topic.name)
            else:
                self._take(topic, states, led.get(topic.name, ()))
        self._write_ids()

    def _take(self, topic: "_NewTopic", states: States, led: Sequence[PartitionImage]) -> None:
        content = topic.with_led(states)
        topic_id = self._id_of(topic, content, led)
        if topic_id is None:
            self._pass_over(topic)
        else:
            self._ids.settle(topic.name)
            self._found[topic.name] = topic_image(topic.name, topic_id, content, states)

    def _write_ids(self) -> None:
        left = len(self._renewed)

        def on_committed(topic: _NewTopic, content: TopicNode, outcome: Created | Refusal) -> None:
            nonlocal left
            left -= 1
            self._end_write(topic, content, outcome)
            if not left:
                self._on_read([*self._found.values()])

        if not self._renewed:
            self._on_read([*self._found.values()])
        for topic in self._renewed:
            content = _content(self._found[topic.name])
            data = znodes.topic_json(content.topic_id, content.assignments)
            write = SetData(znodes.topic_path(topic.name), data, topic.node.version)
            self._context.commit([write], partial(on_committed, topic, content))

    def _end_write(
        self, topic: "_NewTopic", content: TopicNode, outcome: Created | Refusal
    ) -> None:
        """Leaves a topic for later if its new id was refused: all brokers are asked again."""
        if isinstance(outcome, Refusal):
            logger.warning("the new id of topic %s is not written: %s", topic.name, outcome)
            del self._found[topic.name]
            self._context.topic_nodes.pop(topic.name, None)
            self._on_refused()
        else:
            self._context.note_node(topic.name, KnownNode(topic.node.version + 1, content))

    def _id_of(
        self, topic: "_NewTopic", content: TopicNode, led: Sequence[PartitionImage]
    ) -> UUID | None:
        """The id of a topic; None while only others may know it. That of a known topic may be one
        of before, unless this broker has a replica of it, for which its deletion would wait."""
        known = self._known(topic.name)
        if content.topic_id is not None:
            return content.topic_id
        if known is not None and self._has_replica(known):
            return known.topic_id
        if known is None and not topic.is_begun:
            return self._ids.new_id()
        own_id = self._ids.own_id(topic.name, content, led)
        if own_id is not None or not self._ids.is_unknown(content, led, self._told(topic)):
            return own_id
        self._renewed.append(topic)
        return self._ids.new_id() if known is None else known.topic_id

    def _told(self, topic: "_NewTopic") -> frozenset[int]:
        """The brokers that have been told everything but the topic since its node was written."""
        asked = self._asked.get(topic.name)
        return asked.told if asked is not None and asked.node == topic.node else frozenset()

    def _has_replica(self, topic: TopicImage) -> bool:
        return any(self._context.broker_id in each.replicas for each in topic.partitions)

    def _pass_over(self, topic: "_NewTopic") -> None:
        """Leaves a topic for later: it is read again with the others when brokers have come, or
        have been told everything but the topic."""
        self._ids.ask(topic.name, topic.node)
        self._context.topic_nodes.pop(topic.name, None)


class _NewTopic:
    """A topic while it is read: its node, the content of that, and the `whole`: the content with
    the partitions that only the image has."""

    def __init__(self, name: str, node: Node, content: TopicNode, whole: TopicNode) -> None:
        self.name: Final = name
        self.node: Final = node
        self.content: Final = content
        self.whole: Final = whole
        self.is_begun = False
        """Whether a topic without an id was ever led."""
        self.is_unread = False

    def with_led(self, states: States) -> TopicNode:
        """The content with those partitions that only the image has and that have a state."""
        whole = self.whole.assignments
        led = [
            index + 1
            for index in range(len(whole))
            if states.get(TopicPartition(self.name, index)) is not None
        ]
        named = len(self.content.assignments)
        return self.content._replace(assignments=whole[: max([named, *led])])


def _with_missing(content: TopicNode, known: TopicImage | None) -> TopicNode:
    """A topic's node with the partitions that only the image has. A topic never loses any, so
    somebody has written them away; whether they are there is for their states to tell."""
    if known is None or content.topic_id not in (None, known.topic_id):
        return content
    missing = known.partitions[len(content.assignments) :]
    return content._replace(
        assignments=(*content.assignments, *(each.assignment for each in missing))
    )


def _content(topic: TopicImage) -> TopicNode:
    """The content that the node of a topic is to have."""
    return TopicNode(topic.topic_id, tuple(each.assignment for each in topic.partitions))


def read_states(
    context: ControllerContext,
    partitions: Iterable[TopicPartition],
    then: Callable[[States, Collection[str]], None],
) -> None:
    """Reads the states of partitions; None where there is no state. `then` also gets the topics
    with states that could not be read."""
    paths = {znodes.state_path(each): each for each in partitions}

    def on_nodes(nodes: Mapping[str, Node | None]) -> None:
        states: dict[TopicPartition, PartitionImage | None] = {}
        for path, node in nodes.items():
            where = paths[path]
            if node is not UNREADABLE:
                states[where] = None if node is None else partition_of(where, node)
        then(states, {where.topic for where in paths.values() if where not in states})

    context.gather(paths, on_nodes)


def partitions_in(name: str, content: TopicNode) -> list[TopicPartition]:
    """The partitions that the node of a topic names."""
    return [TopicPartition(name, index) for index in range(len(content.assignments))]


def topic_image(name: str, topic_id: UUID, node: TopicNode, states: States) -> TopicImage:
    """A topic as its node and the states of its partitions have it."""
    partitions = []
    for index, assignment in enumerate(node.assignments):
        state = states.get(TopicPartition(name, index))
        partition = state or PartitionImage(index, NO_LEADER, NO_STATE, NO_STATE, (), ())
        isr = assignment.replicas if state is None else state.isr
        partitions.append(as_written(partition._replace(isr=isr), assignment))
    return TopicImage(name, topic_id, tuple(partitions))


def _partitions_at(paths: Iterable[str]) -> list[TopicPartition]:
    """The partitions whose folders are at these paths."""
    found = [path.split("/") for path in paths]
    return [TopicPartition(topic, int(index)) for *_, topic, _, index in found if index.isdecimal()]


def _by_topic(states: States) -> dict[str, list[PartitionImage]]:
    found: dict[str, list[PartitionImage]] = {}
    for where, state in states.items():
        if state is not None:
            found.setdefault(where.topic, []).append(state)
    return found
