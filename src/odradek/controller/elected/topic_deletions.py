"""`TopicDeletions`: topics on their way out.

A topic that was marked leaves the image at once, and ZooKeeper when every broker that has a
replica of it has given that up; those that are away, when they come back.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from odradek.background import do_each_in_turns
from odradek.controller.elected.broker_channel import BrokerChannel
from odradek.controller.elected.context import ControllerContext
from odradek.controller.elected.event_queue import ControllerEventQueue
from odradek.metadata import changes
from odradek.metadata.changes import Change, difference
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import (
    BrokerRegistration,
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    TopicImage,
)
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import Created, Delete, Failure, Node, Refusal
from odradek.metadata.zookeeper.metadata_updates import (
    EPOCH_DURING_DELETE,
    with_orphans,
    without_orphans,
)
from odradek.model import TopicPartition
from odradek.timer import Timer, TimerTask

logger = logging.getLogger(__name__)

NODES_PER_REMOVAL: Final = 100
RETRY_MS: Final = 200
# How many topics leave the image in a turn of the loop.
SLICE_TOPICS: Final = 20


class _Deletion:
    """A topic that is being deleted, and the brokers that still have replicas of it."""

    def __init__(self, topic: TopicImage, own_id: int) -> None:
        self.topic: Final = topic
        self.left: Final = {
            (replica, each.partition)
            for each in topic.partitions
            for replica in each.replicas
            if replica != own_id
        }
        self.is_removing = False


class TopicDeletions:
    """Belongs to the controller of `context`; `on_removed` is called when a topic is gone for good,
    or an unknown one exists."""

    def __init__(
        self,
        context: ControllerContext,
        events: ControllerEventQueue,
        view: BrokerView,
        timer: Timer,
        channels: Mapping[int, BrokerChannel],
        on_removed: Callable[[], None],
    ) -> None:
        self._context: Final = context
        self._events: Final = events
        self._view: Final = view
        self._timer: Final = timer
        self._channels: Final = channels
        self._on_removed: Final = on_removed
        self._deletions: Final[dict[str, _Deletion]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._deletions

    def read(self) -> None:
        """Looks which topics are marked."""

        def on_children(names: tuple[str, ...] | Failure) -> None:
            if isinstance(names, Failure) or not self._context.is_open:
                return
            do_each_in_turns(names, self._begin, SLICE_TOPICS, self._view.attempt_later)

        self._context.watch_children(znodes.DELETE_TOPICS, on_children, self.read)

    def _begin(self, name: str) -> None:
        if name not in self._deletions:
            self._events.submit(partial(self._without_topic, name), partial(self._on_gone, name))

    def take_over(self, topic: TopicImage) -> None:
        """A marked topic that never was in the image of this controller."""
        own_id = self._context.broker_id
        self._deletions[topic.name] = _Deletion(topic, own_id)
        own = [
            TopicPartition(topic.name, each.partition)
            for each in topic.partitions
            if own_id in each.replicas
        ]
        self._view.publish(partial(_with_own, own=own, broker_id=own_id))
        self._view.publish(partial(_without_own, own=own))
        for channel in self._channels.values():
            channel.delete(topic)

    def go_on(self) -> None:
        """Removes what nobody has any more."""
        for name in list(self._deletions):
            self._maybe_remove(name)

    def tell(self, channel: BrokerChannel) -> None:
        """A broker has come: it gives up what it still has."""
        for name, deletion in self._deletions.items():
            left = [index for replica, index in deletion.left if replica == channel.broker.id]
            if left:
                channel.stop([TopicPartition(name, index) for index in left], EPOCH_DURING_DELETE)

    def on_stopped(self, broker: BrokerRegistration, replicas: Sequence[TopicPartition]) -> None:
        """A broker has given replicas up."""
        for name, index in replicas:
            deletion = self._deletions.get(name)
            if deletion is not None:
                deletion.left.discard((broker.id, index))
                self._maybe_remove(name)

    def _without_topic(self, name: str, image: MetadataImage) -> Change[None]:
        if name in self._deletions:
            return Change(None)
        topic = image.topic(name)
        if topic is None:
            # Perhaps one that nobody has looked at yet; else the mark of something long gone.
            self._remove_mark(name)
            return Change(None)
        logger.info("topic %s is being deleted", name)
        self._deletions[name] = _Deletion(topic, self._context.broker_id)
        return Change(None, changes.delete_topics(image, [topic.topic_id]).delta)

    # Refused or not: the image tells whether it is gone.
    def _on_gone(self, name: str, _outcome: object) -> None:
        self._maybe_remove(name)

    def _remove_mark(self, name: str) -> None:
        def on_node(node: Node | Failure | None) -> None:
            if node is None and self._context.is_open:
                self._context.commit([Delete(znodes.deletion_path(name))])
            elif isinstance(node, Node):
                self._on_removed()

        self._context.zookeeper.get(znodes.topic_path(name), on_node)

    def _maybe_remove(self, name: str) -> None:
        """Removes a topic from ZooKeeper when nobody has a replica of it any more."""
        deletion = self._deletions.get(name)
        if deletion is None or deletion.left or deletion.is_removing or not self._context.is_open:
            return
        if name in self._view.image.topics:
            return  # this broker has not acted on it yet
        deletion.is_removing = True
        nodes = [znodes.partitions_path(name)]
        resource = ConfigResource.topic(name)
        last = [znodes.topic_path(name), znodes.config_path(resource), znodes.deletion_path(name)]

        def on_children(names: tuple[str, ...] | Failure) -> None:
            # Also those that somebody has added behind the back of the deletion.
            for child in () if isinstance(names, Failure) else names:
                nodes.append(f"{nodes[0]}/{child}")
                nodes.append(f"{nodes[0]}/{child}/state")
            self._context.gather([*nodes, *last], on_nodes)

        def on_nodes(found: Mapping[str, Node | None]) -> None:
            there = [path for path in (*reversed(nodes), *last) if found[path] is not None]
            self._remove(name, there)

        self._context.zookeeper.children(nodes[0], on_children)

    def _remove_again(self, name: str) -> None:
        self._view.attempt(partial(self._maybe_remove, name))

    def _remove(self, name: str, paths: Sequence[str]) -> None:
        """Children first; the topic, its settings and the mark in the end, at once."""
        if not self._context.is_open:
            return
        count = max(0, len(paths) - NODES_PER_REMOVAL)
        chunks = [paths[at : at + NODES_PER_REMOVAL] for at in range(0, count, NODES_PER_REMOVAL)]
        chunks.append(paths[sum(map(len, chunks)) :])
        left = len(chunks)

        def on_committed(outcome: Created | Refusal) -> None:
            nonlocal left
            left -= 1
            if isinstance(outcome, Refusal):
                logger.warning("topic %s could not be removed at once: %s", name, outcome)
            if left or not self._context.is_open:
                return
            deletion = self._deletions[name]
            deletion.is_removing = False
            if isinstance(outcome, Refusal):
                self._timer.add(TimerTask(RETRY_MS, lambda: self._remove_again(name)))
                return
            del self._deletions[name]
            self._context.topic_nodes.pop(name, None)
            logger.info("topic %s is deleted", name)
            self._on_removed()

        for chunk in chunks:
            self._context.commit([Delete(path) for path in chunk], on_committed)


def _with_own(
    image: MetadataImage, own: Sequence[TopicPartition], broker_id: int
) -> MetadataDelta | None:
    """Replicas whose logs are here without anybody knowing: they come in, and go."""
    unknown = [each for each in own if each.topic not in image.topics]
    return difference(image, with_orphans(image, unknown, broker_id)) if unknown else None


def _without_own(image: MetadataImage, own: Sequence[TopicPartition]) -> MetadataDelta | None:
    return difference(image, without_orphans(image, own), are_deleted=False) if own else None
