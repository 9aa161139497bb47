"""`TopicReader`: which topics there are, and the states of their partitions, as ZooKeeper has them.

Everything is read once, and then whatever a watch reports as changed. A topic that somebody has
made gets leaders; partitions that a topic was given get theirs. States that could not be written
are read again, and decided again.

A topic's node and the states of its partitions are read one after the other, and this controller
may write between. So of partitions that are in its image the node says nothing: their replicas are
what the controller has decided, and it puts them back where somebody else has written others. A
controller that begins believes a node only as far as no records are lost by it (`image_changes`).
Its own writes are no news. A topic keeps its id if somebody writes its node without one.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from odradek.controller.elected.broker_channel import BrokerChannel
from odradek.controller.elected.context import ControllerContext, KnownNode
from odradek.controller.elected.event_queue import ControllerEventQueue
from odradek.controller.elected.image_changes import (
    first_image,
    is_fresh,
    present,
    with_added,
    with_growth,
    with_later_epochs,
    with_nodes,
    with_reading,
    with_started,
)
from odradek.controller.elected.missing_ids import MissingIds
from odradek.controller.elected.new_topics import (
    NewTopics,
    States,
    partitions_in,
    read_states,
    topic_image,
)
from odradek.controller.elected.topic_deletions import TopicDeletions
from odradek.metadata.changes import difference
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import (
    BrokerRegistration,
    MetadataDelta,
    MetadataImage,
    TopicImage,
)
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import Failure, Node
from odradek.metadata.zookeeper.cluster_configs import ClusterConfigs
from odradek.metadata.zookeeper.reads import UNREADABLE
from odradek.metadata.zookeeper.znodes import TopicNode, ZnodeError
from odradek.model import TopicPartition
from odradek.timer import Timer, TimerTask

logger = logging.getLogger(__name__)

RETRY_MS: Final = 200
RETRY_MAX_MS: Final = 3_200


class TopicReader:
    """Reads for the controller of `context`; `brokers_at_start` lived when it began. `new_id` gives
    ids for topics, `ids_in_logs` those that topics have in the logs of this broker."""

    def __init__(
        self,
        context: ControllerContext,
        events: ControllerEventQueue,
        view: BrokerView,
        timer: Timer,
        configs: ClusterConfigs,
        deletions: TopicDeletions,
        channels: Mapping[int, BrokerChannel],
        new_id: Callable[[], UUID],
        ids_in_logs: Callable[[], Mapping[str, UUID]],
    ) -> None:
        self.brokers_at_start: Mapping[int, BrokerRegistration] = {}
        self.is_complete = False
        """Whether the image is this controller's, and no longer an earlier controller's."""
        self._context: Final = context
        self._events: Final = events
        self._view: Final = view
        self._timer: Final = timer
        self._configs: Final = configs
        self._deletions: Final = deletions
        self._ids: Final = MissingIds(context, channels, lambda: self._live, new_id, ids_in_logs)
        # What this broker was told of topics whose ids it has to ask for.
        self._before: Final[dict[str, TopicImage]] = {}
        self._not_understood: Final[set[str]] = set()
        # Changed before this controller had read everything: looked at once it has.
        self._changed_at_start: set[str] = set()
        self._is_reading = False
        # Called when all has been read that was there as they came.
        self._waiting: list[Callable[[], None]] = []
        self._refused: set[TopicPartition] = set()
        self._retry_ms = RETRY_MS
        self._retry = self._retrial()

    def read_all(self, then: Callable[[], None] = lambda: None) -> None:
        """Looks which topics there are; those that are not known are taken in."""
        self._waiting.append(then)
        self._read_all()

    def _read_all(self) -> None:
        if self._is_reading or not self._waiting or not self._context.is_open:
            return
        self._is_reading = True
        waiting, self._waiting = self._waiting, []

        def on_children(names: tuple[str, ...] | Failure) -> None:
            if isinstance(names, Failure):
                try_again()
                return
            known = self._context.topic_nodes
            new = [name for name in names if name not in known and name not in self._deletions]
            self._context.zookeeper.children(znodes.DELETE_TOPICS, partial(on_marked, new))

        def on_marked(new: Sequence[str], marked: tuple[str, ...] | Failure) -> None:
            if isinstance(marked, Failure):
                try_again()
            elif self._context.is_open:
                self._read_new(new, frozenset(marked), on_read)

        def on_read() -> None:
            end(())
            for each in waiting:
                each()
            self._read_all()

        def try_again() -> None:
            end(waiting)
            self._after_ms(RETRY_MAX_MS, self._read_all)

        def end(left: Collection[Callable[[], None]]) -> None:
            self._is_reading = False
            self._waiting[:0] = left

        self._context.watch_children(znodes.TOPICS, on_children, self.read_all)

    def read(self, name: str) -> None:
        """Reads a topic whose partitions or states have changed. A topic in deletion is not read
        again: a new one of its name appears as another child."""
        self._read(name, is_news=lambda _node: True)

    def _on_changed(self, name: str) -> None:
        """Somebody has written a topic's node: perhaps this controller, which knows of it."""

        def is_news(node: Node) -> bool:
            known = self._context.topic_nodes.get(name)
            return known is None or known.version < node.version

        self._read(name, is_news)

    def _read(self, name: str, is_news: Callable[[Node], bool]) -> None:
        if name in self._deletions:
            return
        if not self.is_complete:
            self._changed_at_start.add(name)
            return

        def on_node(node: Node | Failure | None) -> None:
            if isinstance(node, Node) and self._context.is_open:
                self._on_node(name, node, is_news=is_news(node))

        self._context.watch_node(znodes.topic_path(name), on_node, lambda: self._on_changed(name))

    def _on_node(self, name: str, node: Node, *, is_news: bool) -> None:
        known = self._view.image.topic(name)
        if known is None:
            self.read_all()  # perhaps it is understood now
            return
        content = self._understood(name, node) if is_news else None
        if content is None:
            return
        # With an older version it is the node of a recreated topic.
        is_later = self._context.topic_nodes[name].version == node.version
        topic_id = known.topic_id if is_later else content.topic_id or known.topic_id
        then = partial(self._on_states, known, topic_id, content)
        read_states(self._context, partitions_in(name, content), then)

    def _on_states(
        self,
        known: TopicImage,
        topic_id: UUID,
        content: TopicNode,
        states: States,
        unread: Collection[str],
    ) -> None:
        if unread:
            self._read_later(known.name)
        elif self._context.is_open:
            topic = topic_image(known.name, topic_id, content, states)
            self._write_again(_lost(topic, known))
            self._events.submit(lambda image: with_reading(image, topic), is_written=True)
            self._events.submit(lambda image: with_growth(image, topic))
            self._put_right([known.name])

    def _read_later(self, name: str) -> None:
        """Reads a topic again after a while: some of its states could not be read."""
        logger.warning("states of topic %s cannot be read; it stays as it is known", name)
        self._not_understood.add(name)
        self._after_ms(RETRY_MAX_MS, partial(self.read, name))

    def _known(self, name: str) -> TopicImage | None:
        return self._before.get(name) or self._view.image.topic(name)

    def _same(self, topic: TopicImage) -> TopicImage | None:
        """The known state of this very topic, and not of another of its name."""
        known = self._known(topic.name)
        return known if known is not None and known.topic_id == topic.topic_id else None

    def _write_again(self, lost: Collection[TopicPartition]) -> None:
        if lost:
            logger.warning("states that somebody has removed are written again: %s", lost)
            self._events.submit(lambda image: with_later_epochs(image, lost))

    def _put_right(self, names: Sequence[str]) -> None:
        """Writes the nodes of topics that are not as the image has them."""
        nodes = self._context.topic_nodes

        def wrong(image: MetadataImage) -> list[TopicImage]:
            topics = [topic for name in names if (topic := image.topic(name)) is not None]
            return [
                topic
                for topic in topics
                if topic.name in nodes and not _is_as(nodes[topic.name].content, topic)
            ]

        self._events.submit(lambda image: with_nodes(image, wrong(image)))

    def on_brokers(self) -> None:
        """Other brokers live: perhaps they know the id of a topic that nobody here did."""
        if self._ids.asked():
            self.read_all()

    def on_told(self, broker_id: int) -> None:
        """A broker has written back the ids that it knows of topics that this controller does
        not."""
        self._ids.on_told(broker_id)
        self.on_brokers()

    def on_refused(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions could not be written. They are read again at once, since others have written
        meanwhile, perhaps this controller itself; then ever more seldom, as long as they are
        refused."""
        new = set(partitions) - self._refused
        self._refused |= new
        self._read_refused(new)
        if not self._retry.is_pending:
            self._await_retry()

    def _after_ms(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._timer.add(TimerTask(delay_ms, lambda: self._view.attempt(action)))

    def _await_retry(self) -> None:
        self._retry = self._retrial()
        self._timer.add(self._retry)

    def _retrial(self) -> TimerTask:
        return TimerTask(self._retry_ms, lambda: self._view.attempt(self._try_again))

    def _try_again(self) -> None:
        if not self._context.is_open:
            return
        refused, self._refused = self._refused, set()
        if not refused:
            self._retry_ms = RETRY_MS
            return
        self._retry_ms = min(2 * self._retry_ms, RETRY_MAX_MS)
        self._await_retry()
        self._read_refused(refused)
        # The decision is repeated even if nothing has changed.
        self._view.publish(lambda image: difference(image, image))

    def _read_refused(self, partitions: Collection[TopicPartition]) -> None:
        names = {each.topic for each in partitions}
        new = names - self._view.image.topics.keys()
        for name in names - new:
            self.read(name)
        for name in new:
            self._context.topic_nodes.pop(name, None)
        if new:
            self.read_all()

    def _read_new(
        self, names: Sequence[str], marked: frozenset[str], then: Callable[[], None]
    ) -> None:
        def on_read(found: Sequence[TopicImage]) -> None:
            # Its settings are read with a topic: those that are known may be of one before.
            ids = {topic.name: topic.topic_id for topic in found}
            self._configs.read_topics(ids, lambda: self._take_in(found, marked, then))

        new = NewTopics(
            self._context,
            self._known,
            self._ids,
            self._understood,
            self._on_changed,
            partial(self._after_ms, RETRY_MAX_MS, self.read_all),
            self._read_later,
            on_read,
        )
        new.read(names)

    def _understood(self, name: str, node: Node) -> TopicNode | None:
        """Reads a topic's node. A malformed one is written again if the topic is known; that of an
        unknown topic is left to its writer."""
        try:
            topic = znodes.read_topic(name, node.data)
        except ZnodeError as error:
            if node is UNREADABLE or self._known(name) is None:
                logger.error("a topic is ignored: %s", error)
                self._not_understood.add(name)
                return None
            logger.error("the node of a topic is written again: %s", error)
            topic = TopicNode(None, ())
        self._context.note_node(name, KnownNode(node.version, topic))
        return topic

    @property
    def _live(self) -> Mapping[int, BrokerRegistration]:
        return self._view.image.brokers if self.is_complete else self.brokers_at_start

    def _take_in(
        self, found: Sequence[TopicImage], marked: frozenset[str], then: Callable[[], None]
    ) -> None:
        """Topics that were there before this controller, and new ones."""
        if not self._context.is_open:
            return
        for topic in found:
            if topic.name in marked:
                self._deletions.take_over(present(topic, None, self._live))
        kept = [topic for topic in found if topic.name not in marked]
        lost = [each for topic in kept for each in _lost(topic, self._known(topic.name))]

        # What could not be written is written again by `on_refused`.
        def on_taken_in(_outcome: object = None) -> None:
            self._write_again(lost)
            self._put_right([topic.name for topic in kept])
            changed, self._changed_at_start = self._changed_at_start, set()
            for name in sorted(changed):
                self.read(name)
            for topic in kept:
                self._before.pop(topic.name, None)
            self._deletions.go_on()
            then()

        if not self.is_complete:
            self._view.publish(self._without_asked)
            self._view.publish(partial(self._complete, topics=kept), on_taken_in)
            return
        fresh = [each for each in kept if is_fresh(each.partitions) and self._same(each) is None]
        names = {each.name for each in fresh}
        others = [each for each in kept if each.name not in names]
        self._events.submit(lambda image: with_added(image, others, self._before), is_written=True)
        self._events.submit(lambda image: with_started(image, fresh), on_taken_in)

    def _without_asked(self, image: MetadataImage) -> MetadataDelta | None:
        """Topics whose ids only others may know are told to nobody, though they are not deleted."""
        known = (image.topic(name) for name in self._ids.asked())
        asked = {topic.name: topic for topic in known if topic is not None}
        if not asked or not self._context.is_open:
            return None
        self._before.update(asked)
        after = image.with_topics(removed=asked.values())
        return difference(image, after, are_deleted=False)

    def _complete(self, image: MetadataImage, topics: Sequence[TopicImage]) -> MetadataDelta | None:
        if not self._context.is_open:
            return None
        self.is_complete = True
        # If a node cannot be read, this broker keeps the state that it was sent.
        known = (image.topic(name) for name in self._not_understood)
        kept = [topic for topic in known if topic is not None]
        return first_image(
            image,
            [*topics, *kept],
            self.brokers_at_start,
            self._context.broker_id,
            self._context.epoch,
        )


def _lost(topic: TopicImage, known: TopicImage | None) -> list[TopicPartition]:
    """The partitions of a topic that have no state, or one of an earlier version than was `known`
    before they were read: somebody has removed that."""
    if known is None or known.topic_id != topic.topic_id:
        return []
    return [
        TopicPartition(topic.name, each.partition)
        for each, before in zip(topic.partitions, known.partitions, strict=False)
        if each.partition_epoch < before.partition_epoch
    ]


def _is_as(node: TopicNode, topic: TopicImage) -> bool:
    """Whether a node has a topic's id, and the replicas of all its partitions."""
    assignments = tuple(each.assignment for each in topic.partitions)
    known = node.assignments[: len(assignments)]
    return (node.topic_id, known) == (topic.topic_id, assignments)
