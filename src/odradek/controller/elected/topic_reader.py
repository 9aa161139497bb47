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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from odradek.controller.elected.broker_channel import BrokerChannel
from odradek.controller.elected.context import ControllerContext, KnownNode
from odradek.controller.elected.event_queue import ControllerEventQueue
from odradek.controller.elected.image_changes import (
    as_written,
    first_image,
    is_fresh,
    partition_of,
    present,
    with_added,
    with_growth,
    with_later_epochs,
    with_nodes,
    with_reading,
    with_started,
)
from odradek.controller.elected.topic_deletions import TopicDeletions
from odradek.metadata.changes import difference
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import (
    BrokerRegistration,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import Failure, Node
from odradek.metadata.zookeeper.cluster_configs import ClusterConfigs
from odradek.metadata.zookeeper.reads import UNREADABLE
from odradek.metadata.zookeeper.znodes import NO_STATE, TopicNode, ZnodeError
from odradek.model import NO_LEADER, TopicPartition
from odradek.timer import Timer, TimerTask

logger = logging.getLogger(__name__)

RETRY_MS: Final = 200
RETRY_MAX_MS: Final = 3_200


class _Asked(NamedTuple):
    """A topic's node without an id that brokers are asked about, and those that have been told
    everything else since it was read: if they know the id, they have tried to write it back."""

    node: Node
    told: set[int]


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
        self._channels: Final = channels
        self._new_id: Final = new_id
        self._ids_in_logs: Final = ids_in_logs
        # Topics of which only others may know the id.
        self._unidentified: Final[dict[str, _Asked]] = {}
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
            self._context.children(znodes.DELETE_TOPICS, lambda marked: on_marked(new, marked))

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
            if not isinstance(node, Node) or not self._context.is_open:
                return
            known = self._view.image.topic(name)
            if known is None:
                self.read_all()  # perhaps it is understood now
                return
            topic = self._understood(name, node) if is_news(node) else None
            if topic is not None:
                # With an older version it is the node of a recreated topic.
                is_later = self._context.topic_nodes[name].version == node.version
                topic_id = known.topic_id if is_later else topic.topic_id or known.topic_id
                self._read_states(
                    _partitions({name: topic}),
                    lambda states: on_states(_topic(name, topic_id, topic, states)),
                )

        def on_states(topic: TopicImage) -> None:
            if self._context.is_open:
                self._write_again(self._lost([topic]))
                self._events.submit(lambda image: with_reading(image, topic), is_written=True)
                self._events.submit(lambda image: with_growth(image, topic))
                self._put_right([name])

        self._context.watch_node(znodes.topic_path(name), on_node, lambda: self._on_changed(name))

    def _lost(self, topics: Sequence[TopicImage]) -> list[TopicPartition]:
        """The partitions of topics that have no state, but had one: somebody has removed it."""
        image = self._view.image
        known = {topic.name: image.topic_by_id(topic.topic_id) for topic in topics}
        return [
            TopicPartition(topic.name, each.partition)
            for topic in topics
            if (before := known[topic.name]) is not None
            for each, state in zip(topic.partitions, before.partitions, strict=False)
            if each.partition_epoch == NO_STATE != state.partition_epoch
        ]

    def _write_again(self, lost: Sequence[TopicPartition]) -> None:
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
        if self._unidentified:
            self.read_all()

    def on_told(self, broker_id: int) -> None:
        """A broker has written back the ids that it knows of topics that this controller does
        not."""
        for asked in self._unidentified.values():
            asked.told.add(broker_id)
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
        paths = {znodes.topic_path(name): name for name in names}
        # Not who has been told since: the nodes may have been read before.
        told = {
            (name, asked.node): frozenset(asked.told) for name, asked in self._unidentified.items()
        }
        read: dict[str, Node] = {}

        def on_topics(nodes: Mapping[str, Node | None]) -> None:
            topics: dict[str, TopicNode] = {}
            read.update((paths[path], node) for path, node in nodes.items() if node is not None)
            for name, node in read.items():
                topic = self._understood(name, node)
                if topic is not None:
                    topics[name] = topic
                else:
                    self._not_understood.add(name)
            without = [name for name, topic in topics.items() if topic.topic_id is None]
            folders = {znodes.partitions_path(name): name for name in without}
            self._context.gather(folders, lambda found: on_folders(topics, found, folders))

        def on_folders(
            topics: Mapping[str, TopicNode],
            found: Mapping[str, Node | None],
            names: Mapping[str, str],
        ) -> None:
            begun = [path for path, node in found.items() if node is not None]
            self._context.gather_children(
                begun, lambda paths: on_partitions(topics, {names[path] for path in begun}, paths)
            )

        def on_partitions(
            topics: Mapping[str, TopicNode], begun: Collection[str], paths: Sequence[str]
        ) -> None:
            whole = {name: self._with_missing(name, topic) for name, topic in topics.items()}
            # Whatever a node without an id leaves out, somebody may have the records of.
            partitions = [*_partitions(whole), *_partitions_at(paths)]
            self._read_states(partitions, lambda states: on_states(topics, begun, states))

        def on_states(
            topics: Mapping[str, TopicNode],
            begun: Collection[str],
            states: Mapping[TopicPartition, PartitionImage | None],
        ) -> None:
            if not self._context.is_open:
                return
            found = []
            led = _by_topic(states)
            for name, topic in topics.items():
                node = self._with_led(name, topic, states)
                topic_id = node.topic_id
                if topic_id is None and (name in begun or self._view.image.topic(name)):
                    brokers = told.get((name, read[name]), frozenset())
                    topic_id = self._known_id(name, node, led.get(name, ()), brokers)
                elif topic_id is None:
                    topic_id = self._new_id()
                if topic_id is None:
                    self._pass_over(name, read[name])
                else:
                    self._unidentified.pop(name, None)
                    found.append(_topic(name, topic_id, node, states))
            # Its settings are read with a topic: those that are known may be of one before.
            ids = {topic.name: topic.topic_id for topic in found}
            self._configs.read_topics(ids, lambda: self._take_in(found, marked, then))

        self._context.gather(paths, on_topics, lambda path: self._on_changed(paths[path]))

    def _understood(self, name: str, node: Node) -> TopicNode | None:
        """Reads a topic's node. A malformed one is written again if the topic is known; that of an
        unknown topic is left to its writer."""
        try:
            topic = znodes.read_topic(name, node.data)
        except ZnodeError as error:
            if node is UNREADABLE or self._view.image.topic(name) is None:
                logger.error("a topic is ignored: %s", error)
                return None
            logger.error("the node of a topic is written again: %s", error)
            topic = TopicNode(None, ())
        self._context.note_node(name, KnownNode(node.version, topic))
        return topic

    def _with_missing(self, name: str, node: TopicNode) -> TopicNode:
        """A topic's node with the partitions that only the image has. A topic never loses any, so
        somebody has written them away; whether they are there is for their states to tell."""
        known = self._view.image.topic(name)
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
        states: Mapping[TopicPartition, PartitionImage | None],
    ) -> TopicNode:
        """A topic's node with those partitions that only the image has and that have a state."""
        whole = self._with_missing(name, node).assignments
        led = [
            index + 1
            for index in range(len(whole))
            if states.get(TopicPartition(name, index)) is not None
        ]
        return node._replace(assignments=whole[: max([len(node.assignments), *led])])

    def _known_id(
        self,
        name: str,
        node: TopicNode,
        led: Sequence[PartitionImage],
        told: frozenset[int],
    ) -> UUID | None:
        """The id of a topic that was led before, and whose node has none: Kafka before 2.8 wrote
        none, even over an existing one. None while brokers may know it that are away, or have not
        been `told` yet that this controller does not: they write it back."""
        known = self._view.image.topic(name)
        if known is not None:
            return known.topic_id
        own_id = self._context.broker_id
        replicas = [*(each.replicas for each in node.assignments), *(each.isr for each in led)]
        found = self._ids_in_logs().get(name) if any(own_id in each for each in replicas) else None
        if found is not None:
            return found
        live = self._live.keys()
        is_in_sync = not led or any(replica in live for each in led for replica in each.isr)
        return self._new_id() if is_in_sync and live <= {*told, own_id} else None

    @property
    def _live(self) -> Mapping[int, BrokerRegistration]:
        return self._view.image.brokers if self.is_complete else self.brokers_at_start

    def _pass_over(self, name: str, node: Node) -> None:
        """Leaves a topic for later: it is read again with the others when brokers have come, or
        have been told everything but the topic. A node that somebody has written again has refused
        the id of those that were told before."""
        asked = self._unidentified.get(name)
        if asked is None or asked.node != node:
            logger.warning("topic %s has no id; brokers that may know it are awaited", name)
            self._unidentified[name] = _Asked(node, set())
            for channel in self._channels.values():
                channel.tell_all()
        self._context.topic_nodes.pop(name, None)

    def _read_states(
        self,
        partitions: Iterable[TopicPartition],
        then: Callable[[Mapping[TopicPartition, PartitionImage | None]], None],
    ) -> None:
        paths = {znodes.state_path(each): each for each in partitions}

        def on_nodes(nodes: Mapping[str, Node | None]) -> None:
            states: dict[TopicPartition, PartitionImage | None] = {}
            for path, node in nodes.items():
                where = paths[path]
                states[where] = None if node is None else partition_of(where, node)
            then(states)

        self._context.gather(paths, on_nodes)

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
        lost = self._lost(kept)

        def on_taken_in(_outcome: object = None) -> None:
            self._write_again(lost)
            self._put_right([topic.name for topic in kept])
            changed, self._changed_at_start = self._changed_at_start, set()
            for name in sorted(changed):
                self.read(name)
            self._deletions.go_on()
            then()

        if not self.is_complete:
            self._view.publish(partial(self._complete, topics=kept), on_taken_in)
            return
        fresh = [topic for topic in kept if is_fresh(topic.partitions)]
        others = [topic for topic in kept if not is_fresh(topic.partitions)]
        self._events.submit(lambda image: with_added(image, others), is_written=True)
        self._events.submit(lambda image: with_started(image, fresh), on_taken_in)

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


def _partitions(topics: Mapping[str, TopicNode]) -> list[TopicPartition]:
    return [
        TopicPartition(name, index)
        for name, topic in topics.items()
        for index in range(len(topic.assignments))
    ]


def _partitions_at(paths: Iterable[str]) -> list[TopicPartition]:
    """The partitions whose folders are at these paths."""
    found = [path.split("/") for path in paths]
    return [TopicPartition(topic, int(index)) for *_, topic, _, index in found if index.isdecimal()]


def _by_topic(
    states: Mapping[TopicPartition, PartitionImage | None],
) -> dict[str, list[PartitionImage]]:
    found: dict[str, list[PartitionImage]] = {}
    for where, state in states.items():
        if state is not None:
            found.setdefault(where.topic, []).append(state)
    return found


def _topic(
    name: str,
    topic_id: UUID,
    node: TopicNode,
    states: Mapping[TopicPartition, PartitionImage | None],
) -> TopicImage:
    partitions = []
    for index, assignment in enumerate(node.assignments):
        state = states.get(TopicPartition(name, index))
        partition = state or PartitionImage(index, NO_LEADER, NO_STATE, NO_STATE, (), ())
        isr = assignment.replicas if state is None else state.isr
        partitions.append(as_written(partition._replace(isr=isr), assignment))
    return TopicImage(name, topic_id, tuple(partitions))


def _is_as(node: TopicNode, topic: TopicImage) -> bool:
    """Whether a node has a topic's id, and the replicas of all its partitions."""
    assignments = tuple(each.assignment for each in topic.partitions)
    known = node.assignments[: len(assignments)]
    return (node.topic_id, known) == (topic.topic_id, assignments)
