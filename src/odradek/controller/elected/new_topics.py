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
        self._nodes: Final[dict[str, Node]] = {}
        self._topics: Final[dict[str, TopicNode]] = {}
        # With the partitions that only the image has.
        self._whole: Final[dict[str, TopicNode]] = {}
        # The topics without an id that were ever led.
        self._begun: Collection[str] = ()
        self._unread: set[str] = set()
        self._found: Final[dict[str, TopicImage]] = {}
        self._new_ids: Final[dict[str, UUID]] = {}

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
        self._nodes[name] = node
        topic = self._understand(name, node)
        if topic is not None:
            self._topics[name] = topic
            self._whole[name] = self._with_missing(name, topic)

    def _read_folders(self) -> None:
        without_id = [name for name, topic in self._topics.items() if topic.topic_id is None]
        folders = {znodes.partitions_path(name): name for name in without_id}

        def on_folders(nodes: Mapping[str, Node | None]) -> None:
            there = (folders[path] for path, node in nodes.items() if node is not None)
            self._begun = dict.fromkeys(there)
            self._unread = {folders[path] for path, node in nodes.items() if node is UNREADABLE}
            self._read_partitions()

        self._context.gather(folders, on_folders)

    def _read_partitions(self) -> None:
        folders = map(znodes.partitions_path, self._begun)
        gather_children(self._context.zookeeper, folders, self._read_states)

    def _read_states(self, found: Iterable[str]) -> None:
        """Reads the states of all partitions. Whatever a node without an id leaves out, somebody
        may have the records of."""
        partitions = [*partitions_in(self._whole), *_partitions_at(found)]
        read_states(self._context, partitions, partial(self._end, partitions))

    def _end(
        self,
        partitions: Iterable[TopicPartition],
        states: States,
    ) -> None:
        if not self._context.is_open:
            return
        self._unread |= {each.topic for each in partitions if each not in states}
        led = _by_topic(states)
        for name, topic in self._topics.items():
            if name in self._unread:
                self._context.topic_nodes.pop(name, None)
                self._on_unread(name)
                continue
            whole = self._with_led(name, topic, states)
            topic_id = self._id_of(name, whole, led.get(name, ()))
            if topic_id is None:
                self._pass_over(name)
            else:
                self._ids.settle(name)
                self._found[name] = topic_image(name, topic_id, whole, states)
        self._write_ids()

    def _write_ids(self) -> None:
        left = len(self._new_ids)

        def on_committed(name: str, outcome: Created | Refusal) -> None:
            nonlocal left
            left -= 1
            self._end_write(name, outcome)
            if not left:
                self._on_read([*self._found.values()])

        if not self._new_ids:
            self._on_read([*self._found.values()])
        for name, topic_id in self._new_ids.items():
            assignments = [each.assignment for each in self._found[name].partitions]
            data = znodes.topic_json(topic_id, assignments)
            write = SetData(znodes.topic_path(name), data, self._nodes[name].version)
            self._context.commit([write], partial(on_committed, name))

    def _end_write(self, name: str, outcome: Created | Refusal) -> None:
        """Leaves a topic for later if its new id was refused: all brokers are asked again."""
        if isinstance(outcome, Refusal):
            logger.warning("the new id of topic %s is not written: %s", name, outcome)
            del self._found[name]
            self._context.topic_nodes.pop(name, None)
            self._on_refused()
        else:
            topic = self._found[name]
            assignments = tuple(each.assignment for each in topic.partitions)
            content = TopicNode(topic.topic_id, assignments)
            self._context.note_node(name, KnownNode(self._nodes[name].version + 1, content))

    def _with_missing(self, name: str, node: TopicNode) -> TopicNode:
        """A topic's node with the partitions that only the image has. A topic never loses any, so
        somebody has written them away; whether they are there is for their states to tell."""
        known = self._known(name)
        if known is None or node.topic_id not in (None, known.topic_id):
            return node
        missing = known.partitions[len(node.assignments) :]
        return node._replace(
            assignments=(*node.assignments, *(each.assignment for each in missing))
        )

    def _with_led(
        self,
        name: str,
        node: TopicNode,
        states: States,
    ) -> TopicNode:
        """A topic's node with those partitions that only the image has and that have a state."""
        whole = self._whole[name].assignments
        led = [
            index + 1
            for index in range(len(whole))
            if states.get(TopicPartition(name, index)) is not None
        ]
        return node._replace(assignments=whole[: max([len(node.assignments), *led])])

    def _id_of(self, name: str, topic: TopicNode, led: Sequence[PartitionImage]) -> UUID | None:
        """The id of a topic; None while only others may know it. That of a known topic may be one
        of before, unless this broker has a replica of it, for which its deletion would wait."""
        known = self._known(name)
        if topic.topic_id is not None:
            return topic.topic_id
        if known is not None and self._has_replica(known):
            return known.topic_id
        if known is None and name not in self._begun:
            return self._ids.new_id()
        asked = self._asked.get(name)
        is_asked = asked is not None and asked.node == self._nodes[name]
        told = asked.told if asked is not None and is_asked else frozenset()
        own_id = self._ids.own_id(name, topic, led)
        if own_id is None and self._ids.is_unknown(topic, led, told):
            self._new_ids[name] = self._ids.new_id() if known is None else known.topic_id
        return own_id or self._new_ids.get(name)

    def _has_replica(self, topic: TopicImage) -> bool:
        return any(self._context.broker_id in each.replicas for each in topic.partitions)

    def _pass_over(self, name: str) -> None:
        """Leaves a topic for later: it is read again with the others when brokers have come, or
        have been told everything but the topic."""
        self._ids.ask(name, self._nodes[name])
        self._context.topic_nodes.pop(name, None)


def read_states(
    context: ControllerContext,
    partitions: Iterable[TopicPartition],
    then: Callable[[States], None],
) -> None:
    """Reads the states of partitions; None where there is no state. A state that cannot be read is
    left out."""
    paths = {znodes.state_path(each): each for each in partitions}

    def on_nodes(nodes: Mapping[str, Node | None]) -> None:
        states: dict[TopicPartition, PartitionImage | None] = {}
        for path, node in nodes.items():
            where = paths[path]
            if node is not UNREADABLE:
                states[where] = None if node is None else partition_of(where, node)
        then(states)

    context.gather(paths, on_nodes)


def partitions_in(topics: Mapping[str, TopicNode]) -> list[TopicPartition]:
    """The partitions that the nodes of topics name."""
    return [
        TopicPartition(name, index)
        for name, topic in topics.items()
        for index in range(len(topic.assignments))
    ]


def topic_image(
    name: str,
    topic_id: UUID,
    node: TopicNode,
    states: States,
) -> TopicImage:
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


def _by_topic(
    states: States,
) -> dict[str, list[PartitionImage]]:
    found: dict[str, list[PartitionImage]] = {}
    for where, state in states.items():
        if state is not None:
            found.setdefault(where.topic, []).append(state)
    return found
