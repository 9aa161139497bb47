"""`ControllerOffice`: what the broker does that was elected controller, for as long as it is.

It reads everything once, and from then on what the watches say has changed. Every change of
partitions goes through one queue: it is worked out on the image that the one before it left,
written to ZooKeeper, acted on, published, and told to the other brokers by their feeds. What is
written is conditional twice: on the epoch of the controller, so that one that was deposed writes
nothing, and on the version of each node that the change was worked out on. Where a node turns out
to be another, it is read again, and whoever had asked is told to look.

A topic that is being deleted leaves the image at once and ZooKeeper when every broker that has a
replica of it has given that up, those that are away when they come back.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import changes
from odradek.metadata.changes import Change
from odradek.metadata.control import AlterPartition, ControlPlane, Decree
from odradek.metadata.image import (
    BrokerRegistration,
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
    with_replicas,
    without_replicas,
)
from odradek.metadata.store import OnDone, PartitionChange
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import (
    Check,
    Create,
    Created,
    Delete,
    Failure,
    Node,
    OnChildren,
    OnNode,
    Operation,
    Refusal,
    SetData,
    ZooKeeperClient,
)
from odradek.metadata.zookeeper.decrees import (
    EPOCH_DURING_DELETE,
    difference,
    replicas_of,
    without_settings,
)
from odradek.metadata.zookeeper.feed import BrokerFeed
from odradek.metadata.zookeeper.gathering import gather
from odradek.metadata.zookeeper.znodes import NO_STATE, TopicNode, ZnodeError
from odradek.model import NO_LEADER, TopicPartition
from odradek.timer import Timer

T = TypeVar("T")
logger = logging.getLogger(__name__)

STATES_PER_WRITE: Final = 100
BYTES_PER_WRITE: Final = 500_000  # ZooKeeper takes 1 MB at once


class ReplicaPlans(NamedTuple):
    """What is decided about replicas; pure functions of the floor above."""

    controlled_shutdown: Callable[[MetadataImage, int], list[PartitionChange]]
    reassignment: Callable[
        [MetadataImage, TopicPartition, tuple[int, ...] | None], PartitionChange | None
    ]
    """Raises BrokerError where there can be none."""
    preferred_election: Callable[[MetadataImage, TopicPartition], PartitionChange]
    """Raises BrokerError where it is not needed or cannot be."""


class Publisher(Protocol):
    """The store, as its controller sees it."""

    image: MetadataImage

    def publish(
        self,
        change: Callable[[MetadataImage], MetadataDelta | None],
        then: Callable[[], None] = ...,
    ) -> None:
        """Has a change of the image acted on and shown, in its turn; `then` comes after it."""
        ...

    def with_settings(self, topics: Iterable[str], then: Callable[[], None]) -> None:
        """Calls `then` when the settings of these topics are in the image."""
        ...


class _Deletion:
    """A topic that is on its way out, and who has replicas of it still."""

    def __init__(self, topic: TopicImage, own_id: int) -> None:
        self.topic: Final = topic
        self.left: Final = {
            (replica, each.partition)
            for each in topic.partitions
            for replica in each.replicas
            if replica != own_id
        }
        self.is_removing = False


class ControllerOffice:
    """The controller of an epoch. `open` begins its term, `close` ends it."""

    def __init__(
        self,
        broker_id: int,
        epoch: int,
        epoch_version: int,
        zookeeper: ZooKeeperClient,
        plane: ControlPlane,
        timer: Timer,
        store: Publisher,
        plans: ReplicaPlans,
        new_id: Callable[[], UUID],
        on_deposed: Callable[[], None],
    ) -> None:
        self.epoch: Final = epoch
        self._broker_id: Final = broker_id
        self._check: Final = Check(znodes.CONTROLLER_EPOCH, epoch_version)
        self._zookeeper: Final = zookeeper
        self._plane: Final = plane
        self._timer: Final = timer
        self._store: Final = store
        self._plans: Final = plans
        self._new_id: Final = new_id
        self._on_deposed: Final = on_deposed
        self.is_open = True
        self._feeds: Final[dict[int, BrokerFeed]] = {}
        self._topic_versions: Final[dict[str, int]] = {}
        self._deletions: Final[dict[str, _Deletion]] = {}
        self._asked_reassignments: dict[TopicPartition, tuple[int, ...]] = {}
        self._queue: Final[deque[tuple[Callable[[], None], Callable[[BrokerError], None]]]] = (
            deque()
        )
        self._busy = False
        self._watched: Final[set[str]] = set()
        self._brokers_at_start: Mapping[int, BrokerRegistration] = {}
        self._is_in_office = False
        self._topics_reading = False
        self._topics_read_again = False

    # --- the term -----------------------------------------------------------------------------

    def open(self, on_open: Callable[[], None]) -> None:
        """Takes over: everything is read, and with the first image of this controller its brokers
        are told of it."""

        def on_read() -> None:
            if not self.is_open:
                return
            self._read_deletions()
            self._read_reassignments()
            self._read_elections()
            self._read_isr_changes()
            self._read_log_dir_events()
            on_open()

        self._read_brokers(lambda: self._read_topics(on_read))

    def close(self) -> None:
        """Ends the term: nothing is written or told any more; who waits hears of it."""
        if not self.is_open:
            return
        self.is_open = False
        for feed in self._feeds.values():
            feed.close()
        self._feeds.clear()
        waiting = list(self._queue)
        self._queue.clear()
        for _, refuse in waiting:
            refuse(BrokerError(ErrorCode.NOT_CONTROLLER))

    def on_published(self, delta: MetadataDelta) -> None:
        """Notes for the other brokers what has changed, and tells them."""
        if not self.is_open:
            return
        for broker_id, feed in list(self._feeds.items()):
            broker = delta.image.brokers.get(broker_id)
            if broker is None or broker.epoch != feed.broker.epoch:
                feed.close()
                del self._feeds[broker_id]
            else:
                feed.note(delta)
        for broker in delta.image.brokers.values():
            if broker.id != self._broker_id and broker.id not in self._feeds:
                self._feeds[broker.id] = self._feed(broker)
        for feed in list(self._feeds.values()):
            feed.poke()

    def _feed(self, broker: BrokerRegistration) -> BrokerFeed:
        feed = BrokerFeed(
            broker,
            Decree(self._broker_id, self.epoch, broker.epoch),
            self._plane,
            self._timer,
            lambda: self._store.image,
            on_served=self._on_served,
            on_stopped=self._on_stopped,
            on_deposed=self._on_deposed,
        )
        for deletion in self._deletions.values():
            name = deletion.topic.name
            left = [index for replica, index in deletion.left if replica == broker.id]
            if left:
                feed.stop([TopicPartition(name, index) for index in left], EPOCH_DURING_DELETE)
        return feed

    # --- the queue ----------------------------------------------------------------------------

    def submit(
        self,
        prepare: Callable[[MetadataImage], Change[T]],
        on_done: OnDone[T],
        settle: Callable[[Change[T], set[TopicPartition]], T] | None = None,
        *,
        is_written: bool = False,
    ) -> None:
        """Works a change out when its turn has come, writes it unless it comes from ZooKeeper,
        publishes it and answers. `settle` makes the answer where some partitions could not be
        written."""
        begin = partial(self._begin, prepare, on_done, settle, is_written=is_written)
        self._queue.append((begin, on_done))
        self._drain()

    def change_partitions(
        self,
        wanted: Sequence[PartitionChange],
        broker_id: int,
        on_done: OnDone[list[PartitionImage | BrokerError]],
    ) -> None:
        """See `MetadataStore.change_partitions`; asked for by a broker."""

        def settle(
            change: Change[list[PartitionImage | BrokerError]], refused: set[TopicPartition]
        ) -> list[PartitionImage | BrokerError]:
            return [
                BrokerError(ErrorCode.INVALID_UPDATE_VERSION)
                if each.topic_partition in refused
                else outcome
                for each, outcome in zip(wanted, change.result, strict=True)
            ]

        self.submit(
            lambda image: changes.change_partitions(image, wanted, broker_id), on_done, settle
        )

    def alter_partition(
        self, request: AlterPartition, on_done: OnDone[list[PartitionImage | BrokerError]]
    ) -> None:
        """See `ControlledBroker.on_alter_partition`."""

        def check(change: PartitionChange, leader_epoch: int) -> BrokerError | None:
            partition = self._store.image.partition(change.topic_partition)
            if partition is None:
                return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if leader_epoch != partition.leader_epoch:
                return BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
            if partition.leader != request.broker_id or change.leader != partition.leader:
                return BrokerError(ErrorCode.INVALID_REQUEST)
            return None

        broker = self._store.image.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            on_done(BrokerError(ErrorCode.STALE_BROKER_EPOCH))
            return
        errors = [
            check(change, leader_epoch)
            for change, leader_epoch in zip(request.changes, request.leader_epochs, strict=True)
        ]
        accepted = [
            change for change, error in zip(request.changes, errors, strict=True) if error is None
        ]

        def on_changed(outcome: list[PartitionImage | BrokerError] | BrokerError) -> None:
            if isinstance(outcome, BrokerError):
                on_done(outcome)
                return
            rest = iter(outcome)
            on_done([next(rest) if error is None else error for error in errors])

        self.change_partitions(accepted, request.broker_id, on_changed)

    def shut_down(
        self, broker_id: int, broker_epoch: int, on_done: OnDone[Sequence[TopicPartition]]
    ) -> None:
        """See `ControlledBroker.on_controlled_shutdown`."""
        broker = self._store.image.brokers.get(broker_id)
        if broker is None or (broker_epoch >= 0 and broker.epoch != broker_epoch):
            on_done(BrokerError(ErrorCode.STALE_BROKER_EPOCH))
            return

        def on_changed(outcome: list[PartitionImage | BrokerError] | BrokerError) -> None:
            if isinstance(outcome, BrokerError):
                on_done(outcome)
                return
            image = self._store.image
            mine = replicas_of(image, broker_id)
            on_done([each for each in mine if _leader(image, each) == broker_id])

        def prepare(image: MetadataImage) -> Change[list[PartitionImage | BrokerError]]:
            plan = self._plans.controlled_shutdown(image, broker_id)
            return changes.change_partitions(image, plan, self._broker_id)

        logger.info("broker %d is about to stop: others are to lead", broker_id)
        self.submit(prepare, on_changed)

    def report(
        self, partitions: Sequence[TopicPartition], broker_id: int, *, is_offline: bool
    ) -> None:
        """Replicas of a broker cannot be served any more, or again."""
        change = without_replicas if is_offline else with_replicas

        def prepare(image: MetadataImage) -> Change[None]:
            return Change(None, difference(image, change(image, partitions, broker_id)))

        self.submit(prepare, _ignore)

    def settle(self, on_done: OnDone[None]) -> None:
        """Answers when what was begun before has taken effect."""
        self.submit(lambda _: Change(None), on_done)

    def _drain(self) -> None:
        while self._queue and not self._busy and self.is_open:
            self._busy = True
            begin, _ = self._queue.popleft()
            begin()

    def _begin(
        self,
        prepare: Callable[[MetadataImage], Change[T]],
        on_done: OnDone[T],
        settle: Callable[[Change[T], set[TopicPartition]], T] | None,
        *,
        is_written: bool,
    ) -> None:
        # In the publisher's turn: the image must be what listeners have acted on.
        def work_out(image: MetadataImage) -> None:
            if not self.is_open:
                on_done(BrokerError(ErrorCode.NOT_CONTROLLER))
                return
            try:
                change = prepare(image)
            except BrokerError as error:
                self._end(partial(on_done, error))
                return
            delta = change.delta
            if delta is None:
                self._end(lambda: on_done(change.result))
                return
            writes = [] if is_written else self._writes(delta)
            self._write(writes, lambda refused: self._written(change, refused, on_done, settle))

        self._store.publish(work_out)

    def _end(self, answer: Callable[[], None]) -> None:
        self._busy = False
        answer()
        self._end_reassignments()
        self._drain()

    def _written(
        self,
        change: Change[T],
        refused: set[TopicPartition],
        on_done: OnDone[T],
        settle: Callable[[Change[T], set[TopicPartition]], T] | None,
    ) -> None:
        assert change.delta is not None, "something was written"
        delta = change.delta
        if not self.is_open:
            on_done(BrokerError(ErrorCode.NOT_CONTROLLER))
            return
        result = change.result if settle is None or not refused else settle(change, refused)

        def on_published() -> None:
            if refused:
                self._read_states_again(refused)
            self._end(lambda: on_done(result))

        self._store.publish(lambda image: _rebased(delta, image, refused), on_published)

    # --- writing ------------------------------------------------------------------------------

    def _writes(self, delta: MetadataDelta) -> "list[_Write]":
        """What a change of partitions is in ZooKeeper, in transactions of a bearable size."""
        writes: list[_Write] = []
        open_write = apart = _Write([], [])
        writes.append(open_write)
        for topic in (*delta.topics_added, *delta.topics_changed):
            before = delta.previous.topics.get(topic.name)
            known = (
                before.partitions if before is not None and topic not in delta.topics_added else ()
            )
            changed = [
                each
                for each in topic.partitions
                if each.partition_epoch > _epoch_of(known, each.partition)
            ]
            if not changed:
                continue
            operations: list[Operation] = []
            if known and _assignments(topic, len(known)) != _assignments(before, len(known)):
                data = znodes.topic_json(topic.topic_id, [p.assignment for p in topic.partitions])
                version = self._topic_versions.get(topic.name, -1)
                operations.append(SetData(znodes.topic_path(topic.name), data, version))
            is_first = all(each.partition_epoch == NO_STATE for each in known)
            if is_first and any(each.partition_epoch == 0 for each in changed):
                operations.append(Create(znodes.partitions_path(topic.name)))
            if operations:
                # The first of its partitions are written with it; the rest comes behind.
                writes.append(_Write(operations, []))
                open_write, apart = writes[-1], open_write
            for each in changed:
                if len(open_write.partitions) >= STATES_PER_WRITE:
                    open_write = _Write([], [])
                    writes.append(open_write)
                open_write.operations.extend(self._state(topic.name, each, known))
                open_write.partitions.append(TopicPartition(topic.name, each.partition))
            if operations:
                open_write = apart
        return [write for write in writes if write.partitions]

    def _state(
        self, topic: str, partition: PartitionImage, known: Sequence[PartitionImage]
    ) -> list[Operation]:
        where = TopicPartition(topic, partition.partition)
        data = znodes.state_json(partition, self.epoch)
        version = _epoch_of(known, partition.partition)
        if version == NO_STATE:
            return [Create(znodes.partition_path(where)), Create(znodes.state_path(where), data)]
        return [SetData(znodes.state_path(where), data, version)]

    def _write(
        self, writes: "Sequence[_Write]", on_done: Callable[[set[TopicPartition]], None]
    ) -> None:
        """Answers the partitions that turned out to be in another state."""
        refused: set[TopicPartition] = set()
        left = len(writes)

        def on_committed(write: _Write, outcome: Created | Refusal) -> None:
            nonlocal left
            left -= 1
            if isinstance(outcome, Refusal):
                self._on_refused(write, outcome, refused)
                if len(write.partitions) > 1 and outcome.place and self.is_open:
                    # One of many: each for itself, then.
                    singles = write.split()
                    if singles:
                        left += len(singles)
                        refused.difference_update(write.partitions)
                        for single in singles:
                            self._commit(single, on_committed)
            else:
                for operation in write.operations:
                    if isinstance(operation, SetData):
                        self._note_version(operation)
            if not left:
                on_done(refused)

        if not writes:
            on_done(refused)
        for write in writes:
            self._commit(write, on_committed)

    def _commit(
        self, write: "_Write", on_committed: "Callable[[_Write, Created | Refusal], None]"
    ) -> None:
        self._zookeeper.commit(
            [self._check, *write.operations], lambda outcome: on_committed(write, outcome)
        )

    def _on_refused(self, write: "_Write", refusal: Refusal, refused: set[TopicPartition]) -> None:
        if refusal.failure is Failure.SESSION_LOST:
            self.close()
        elif refusal.place == 0:
            logger.warning("another controller has been elected: epoch %d is over", self.epoch)
            self._on_deposed()
        refused.update(write.partitions)

    def _note_version(self, operation: SetData) -> None:
        words = operation.path.split("/")
        if operation.path.startswith(znodes.TOPICS) and len(words) == 4 and operation.version >= 0:
            self._topic_versions[words[3]] = operation.version + 1

    def _read_states_again(self, refused: set[TopicPartition]) -> None:
        """Somebody else has written them, or this one did before its connection broke."""
        for name in {each.topic for each in refused}:
            if name in self._store.image.topics:
                self._read_topic(name)
            else:
                self._topic_versions.pop(name, None)
        self._read_topics()

    # --- brokers ------------------------------------------------------------------------------

    def _read_brokers(self, then: Callable[[], None] | None = None) -> None:
        def on_children(names: tuple[str, ...] | Failure) -> None:
            if isinstance(names, Failure) or not self.is_open:
                return
            ids = [int(name) for name in names if name.isdigit()]
            paths = {znodes.broker_path(each): each for each in ids}
            gather(self._zookeeper, paths, lambda nodes: on_nodes(paths, nodes))

        def on_nodes(paths: Mapping[str, int], nodes: Mapping[str, Node | None]) -> None:
            if not self.is_open:
                return
            brokers = {}
            for path, node in nodes.items():
                if node is None:
                    continue
                try:
                    broker = znodes.read_broker(paths[path], node.data, node.created)
                except ZnodeError as error:
                    logger.error("a broker is passed over: %s", error)
                    continue
                brokers[broker.id] = broker
            if not self._is_in_office:
                self._brokers_at_start = brokers
            else:
                self.submit(partial(_with_gone, brokers=brokers), _ignore)
                self.submit(partial(_with_come, brokers=brokers), _ignore)
            if then is not None:
                then()

        self._watch_children(znodes.BROKER_IDS, on_children, self._read_brokers)

    # --- topics -------------------------------------------------------------------------------

    def _read_topics(self, then: Callable[[], None] | None = None) -> None:
        """Looks which topics there are; those that are not known are taken in."""
        if self._topics_reading:
            self._topics_read_again = True
            return
        self._topics_reading = True

        def on_children(names: tuple[str, ...] | Failure) -> None:
            if isinstance(names, Failure) or not self.is_open:
                return
            known = self._topic_versions
            new = [name for name in names if name not in known and name not in self._deletions]
            self._zookeeper.children(znodes.DELETE_TOPICS, lambda marked: on_marked(new, marked))

        def on_marked(new: Sequence[str], marked: tuple[str, ...] | Failure) -> None:
            if isinstance(marked, Failure) or not self.is_open:
                return
            self._read_new_topics(new, frozenset(marked), on_read)

        def on_read() -> None:
            self._topics_reading = False
            if then is not None:
                then()
            if self._topics_read_again and self.is_open:
                self._topics_read_again = False
                self._read_topics()

        self._watch_children(znodes.TOPICS, on_children, self._read_topics)

    def _read_new_topics(
        self, names: Sequence[str], marked: frozenset[str], then: Callable[[], None]
    ) -> None:
        paths = {znodes.topic_path(name): name for name in names}

        def on_topics(nodes: Mapping[str, Node | None]) -> None:
            topics: dict[str, TopicNode] = {}
            for path, node in nodes.items():
                topic = None if node is None else self._understood(paths[path], node)
                if topic is not None:
                    topics[paths[path]] = topic
            self._read_states(
                [
                    TopicPartition(n, i)
                    for n, t in topics.items()
                    for i in range(len(t.assignments))
                ],
                lambda states: on_states(topics, states),
            )

        def on_states(
            topics: Mapping[str, TopicNode],
            states: Mapping[TopicPartition, PartitionImage | None],
        ) -> None:
            if not self.is_open:
                return
            found = [self._topic(name, node, states) for name, node in topics.items()]
            self._store.with_settings(topics, lambda: self._take_in(found, marked, then))

        def watch(path: str) -> Callable[[], None] | None:
            return self._watch(path, lambda: self._read_topic(paths[path]))

        gather(self._zookeeper, paths, on_topics, watch=watch)

    def _understood(self, name: str, node: Node) -> TopicNode | None:
        try:
            topic = znodes.read_topic(name, node.data)
        except ZnodeError as error:
            logger.error("a topic is passed over: %s", error)
            return None
        self._topic_versions[name] = node.version
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
            version = self._topic_versions[name]
            self._topic_versions[name] = version + 1
            path = znodes.topic_path(name)
            self._zookeeper.commit([self._check, SetData(path, data, version)], _ignore)
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
        partitions: Sequence[TopicPartition],
        then: Callable[[Mapping[TopicPartition, PartitionImage | None]], None],
    ) -> None:
        paths = {znodes.state_path(each): each for each in partitions}

        def on_nodes(nodes: Mapping[str, Node | None]) -> None:
            states: dict[TopicPartition, PartitionImage | None] = {}
            for path, node in nodes.items():
                where = paths[path]
                states[where] = None if node is None else _partition(where, node)
            then(states)

        gather(self._zookeeper, paths, on_nodes)

    def _take_in(
        self, found: Sequence[TopicImage], marked: frozenset[str], then: Callable[[], None]
    ) -> None:
        """Topics that were there before this term, and new ones."""
        if not self.is_open:
            return
        for topic in found:
            if topic.name in marked:
                self._deletions[topic.name] = _Deletion(topic, self._broker_id)
                for feed in self._feeds.values():
                    feed.delete(topic)
        kept = [topic for topic in found if topic.name not in marked]

        def on_taken_in(_outcome: object = None) -> None:
            for name in list(self._deletions):
                self._maybe_remove(name)
            then()

        if not self._is_in_office:
            self._store.publish(lambda image: self._first_delta(image, kept), on_taken_in)
            return
        fresh = [topic for topic in kept if _is_fresh(topic.partitions)]
        others = [topic for topic in kept if not _is_fresh(topic.partitions)]
        self.submit(partial(_with_added, topics=others), _ignore, is_written=True)
        self.submit(
            lambda image: _with_added(image, [_started(topic, image) for topic in fresh]),
            on_taken_in,
        )

    def _first_delta(
        self, image: MetadataImage, topics: Sequence[TopicImage]
    ) -> MetadataDelta | None:
        """From what this broker was told to what there is: the image of a controller."""
        if not self.is_open:
            return None
        self._is_in_office = True
        brokers = MappingProxyType(dict(self._brokers_at_start))
        present = [_with_dead_offline(topic, brokers) for topic in topics]
        names = {topic.name for topic in present}
        gone = [topic for topic in image.topics.values() if topic.name not in names]
        after = replace(
            image,
            brokers=brokers,
            controller_id=self._broker_id,
            controller_epoch=self.epoch,
        )
        other = [
            known
            for topic in present
            if (known := image.topic(topic.name)) is not None and known.topic_id != topic.topic_id
        ]
        after = after.with_topics(removed=[*gone, *other]).with_topics(present)
        named = [each.name for each in after.configs if each.type is ResourceType.TOPIC]
        return difference(image, without_settings(after, named))

    def _read_topic(self, name: str) -> None:
        """A topic has other partitions, or other states, than it had."""

        def on_node(node: Node | Failure | None) -> None:
            if not isinstance(node, Node) or not self.is_open:
                return
            if name not in self._store.image.topics:
                return  # it is looked for among the new ones
            topic = self._understood(name, node)
            if topic is not None:
                count = len(topic.assignments)
                partitions = [TopicPartition(name, index) for index in range(count)]
                self._read_states(partitions, lambda states: on_states(topic, states))

        def on_states(
            node: TopicNode, states: Mapping[TopicPartition, PartitionImage | None]
        ) -> None:
            if self.is_open:
                topic = self._topic(name, node, states)
                self.submit(lambda image: _as_read(image, topic), _ignore, is_written=True)
                self.submit(lambda image: _grown(image, topic), _ignore)

        self._watch_node(znodes.topic_path(name), on_node, lambda: self._read_topic(name))

    # --- deleting topics ----------------------------------------------------------------------

    def _read_deletions(self) -> None:
        def on_children(names: tuple[str, ...] | Failure) -> None:
            if isinstance(names, Failure) or not self.is_open:
                return
            for name in names:
                if name not in self._deletions:
                    self.submit(
                        partial(self._without_topic, name), partial(self._on_topic_gone, name)
                    )

        self._watch_children(znodes.DELETE_TOPICS, on_children, self._read_deletions)

    def _without_topic(self, name: str, image: MetadataImage) -> Change[None]:
        if name in self._deletions:
            return Change(None)
        topic = image.topic(name)
        if topic is None:
            # Perhaps one that nobody has looked at yet; else the mark of something long gone.
            self._remove_mark(name)
            return Change(None)
        logger.info("topic %s is being deleted", name)
        self._deletions[name] = _Deletion(topic, self._broker_id)
        return Change(None, changes.delete_topics(image, [topic.topic_id]).delta)

    def _on_topic_gone(self, name: str, _outcome: object) -> None:
        self._maybe_remove(name)

    def _remove_mark(self, name: str) -> None:
        def on_node(node: Node | Failure | None) -> None:
            if node is None and self.is_open:
                self._zookeeper.commit([self._check, Delete(znodes.deletion_path(name))], _ignore)
            elif isinstance(node, Node):
                self._read_topics()

        self._zookeeper.get(znodes.topic_path(name), on_node)

    def _on_stopped(self, broker: BrokerRegistration, replicas: Sequence[TopicPartition]) -> None:
        for name, index in replicas:
            deletion = self._deletions.get(name)
            if deletion is not None:
                deletion.left.discard((broker.id, index))
                self._maybe_remove(name)

    def _maybe_remove(self, name: str) -> None:
        """Removes a topic from ZooKeeper when nobody has a replica of it any more."""
        deletion = self._deletions.get(name)
        if deletion is None or deletion.left or deletion.is_removing or not self.is_open:
            return
        if name in self._store.image.topics:
            return  # this broker has not acted on it yet
        deletion.is_removing = True
        count = len(deletion.topic.partitions)
        where = [TopicPartition(name, index) for index in range(count)]
        nodes = [znodes.partitions_path(name)]
        for each in where:
            nodes += [znodes.partition_path(each), znodes.state_path(each)]
        resource = ConfigResource(ResourceType.TOPIC, name)
        last = [znodes.topic_path(name), znodes.config_path(resource), znodes.deletion_path(name)]

        def on_nodes(found: Mapping[str, Node | None]) -> None:
            there = [path for path in (*reversed(nodes), *last) if found[path] is not None]
            self._remove(name, there)

        gather(self._zookeeper, [*nodes, *last], on_nodes)

    def _remove(self, name: str, paths: Sequence[str]) -> None:
        """Children first; the topic, its settings and the mark in the end, at once."""
        if not self.is_open:
            return
        count = max(0, len(paths) - STATES_PER_WRITE)
        chunks = [paths[at : at + STATES_PER_WRITE] for at in range(0, count, STATES_PER_WRITE)]
        chunks.append(paths[sum(map(len, chunks)) :])
        left = len(chunks)

        def on_committed(outcome: Created | Refusal) -> None:
            nonlocal left
            left -= 1
            if isinstance(outcome, Refusal):
                logger.warning("topic %s could not be removed at once: %s", name, outcome)
            if left or not self.is_open:
                return
            deletion = self._deletions[name]
            deletion.is_removing = False
            if isinstance(outcome, Refusal):
                self._maybe_remove(name)
                return
            del self._deletions[name]
            self._topic_versions.pop(name, None)
            logger.info("topic %s is deleted", name)
            self._read_topics()

        for chunk in chunks:
            operations: list[Operation] = [self._check, *(Delete(path) for path in chunk)]
            self._zookeeper.commit(operations, on_committed)

    # --- what is asked for by nodes -----------------------------------------------------------

    def _read_reassignments(self) -> None:
        def on_node(node: Node | Failure | None) -> None:
            if not isinstance(node, Node) or not self.is_open:
                return
            try:
                wishes = znodes.read_reassignments(node.data)
            except ZnodeError as error:
                logger.error("reassignments are not begun: %s", error)
                return
            new = {tp: to for tp, to in wishes.items() if self._asked_reassignments.get(tp) != to}
            self._asked_reassignments = dict(wishes)
            if new:
                self._change_each(
                    new, lambda image, where: self._plans.reassignment(image, where, new[where])
                )
            self._end_reassignments()

        self._watch_node(znodes.REASSIGNMENTS, on_node, self._read_reassignments)

    def _end_reassignments(self) -> None:
        """Takes what is done, or cannot be, out of the node."""
        if not self._asked_reassignments or self._busy or self._queue:
            return
        image = self._store.image
        left = {}
        for where, replicas in self._asked_reassignments.items():
            partition = image.partition(where)
            if partition is not None and partition.is_reassigning:
                left[where] = replicas
        if left == self._asked_reassignments:
            return
        self._asked_reassignments = left
        path = znodes.REASSIGNMENTS
        operation: Operation = Delete(path)
        if left:
            operation = SetData(path, znodes.reassignments_json(left), -1)
        self._zookeeper.commit([self._check, operation], _ignore)

    def _read_elections(self) -> None:
        def on_node(node: Node | Failure | None) -> None:
            if not isinstance(node, Node) or not self.is_open:
                return
            try:
                wanted = znodes.read_elections(node.data)
            except ZnodeError as error:
                logger.error("leaders are not elected: %s", error)
                wanted = []
            self._change_each(wanted, self._plans.preferred_election)
            self._zookeeper.commit([self._check, Delete(znodes.PREFERRED_ELECTION)], _ignore)

        self._watch_node(znodes.PREFERRED_ELECTION, on_node, self._read_elections)

    def _change_each(
        self,
        partitions: Iterable[TopicPartition],
        plan: Callable[[MetadataImage, TopicPartition], PartitionChange | None],
    ) -> None:
        def prepare(image: MetadataImage) -> Change[list[PartitionImage | BrokerError]]:
            planned = []
            for each in partitions:
                try:
                    change = plan(image, each)
                except BrokerError as error:
                    logger.info("%s is passed over: %s", each, error)
                    continue
                if change is not None:
                    planned.append(change)
            return changes.change_partitions(image, planned, self._broker_id)

        def on_done(_outcome: object) -> None:
            self._end_reassignments()

        self.submit(prepare, on_done)

    def _read_isr_changes(self) -> None:
        """Brokers of old change their ISR by themselves, and say so here."""

        def on_found(path: str, node: Node) -> None:
            for topic in {each.topic for each in znodes.read_isr_change(path, node.data)}:
                self._read_topic(topic)

        self._read_events(znodes.ISR_CHANGES, on_found, self._read_isr_changes)

    def _read_log_dir_events(self) -> None:
        """A broker has lost a directory: it is asked which replicas it can serve."""

        def on_found(path: str, node: Node) -> None:
            feed = self._feeds.get(znodes.read_log_dir_event(path, node.data))
            if feed is not None:
                feed.note_roles()
                feed.poke()

        self._read_events(znodes.LOG_DIR_EVENTS, on_found, self._read_log_dir_events)

    def _read_events(
        self, folder: str, on_found: Callable[[str, Node], None], again: Callable[[], None]
    ) -> None:
        def on_children(names: tuple[str, ...] | Failure) -> None:
            if not isinstance(names, Failure) and self.is_open:
                gather(self._zookeeper, [f"{folder}/{name}" for name in names], on_nodes)

        def on_nodes(nodes: Mapping[str, Node | None]) -> None:
            for path, node in nodes.items():
                if node is None or not self.is_open:
                    continue
                try:
                    on_found(path, node)
                except ZnodeError as error:
                    logger.error("an event is passed over: %s", error)
                self._zookeeper.commit([self._check, Delete(path)], _ignore)

        self._watch_children(folder, on_children, again)

    def _on_served(self, broker: BrokerRegistration, served: Mapping[TopicPartition, bool]) -> None:
        """A broker has said which of its replicas it can serve."""
        image = self._store.image
        failed: list[TopicPartition] = []
        back: list[TopicPartition] = []
        for where, is_served in served.items():
            partition = image.partition(where)
            if partition is None or (broker.id in partition.offline) != is_served:
                continue
            (back if is_served else failed).append(where)
        if failed:
            logger.warning("broker %d cannot serve %d replicas", broker.id, len(failed))
            self.report(failed, broker.id, is_offline=True)
        if back:
            logger.info("broker %d serves %d replicas again", broker.id, len(back))
            self.report(back, broker.id, is_offline=False)

    def _watch_node(self, path: str, on_node: OnNode, again: Callable[[], None]) -> None:
        self._zookeeper.get(path, on_node, self._watch(path, again))

    def _watch_children(self, path: str, on_done: OnChildren, again: Callable[[], None]) -> None:
        self._zookeeper.children(path, on_done, self._watch(path, again))

    def _watch(self, path: str, again: Callable[[], None]) -> Callable[[], None] | None:
        """One watch a node, however often it is read."""
        if path in self._watched:
            return None
        self._watched.add(path)

        def on_changed() -> None:
            self._watched.discard(path)
            if self.is_open:
                again()

        return on_changed


class _Write(NamedTuple):
    """A transaction, and the partitions whose states it writes."""

    operations: list[Operation]
    partitions: list[TopicPartition]

    def split(self) -> "list[_Write]":
        """A transaction for each partition; none when they belong together."""
        if len(self.operations) != len(self.partitions):
            return []
        return [
            _Write([operation], [partition])
            for operation, partition in zip(self.operations, self.partitions, strict=True)
        ]


def _ignore(outcome: object) -> None:
    """Nobody waits for it; the watches tell what came of it."""


def _leader(image: MetadataImage, where: TopicPartition) -> int:
    partition = image.partition(where)
    return NO_LEADER if partition is None else partition.leader


def _epoch_of(known: Sequence[PartitionImage], index: int) -> int:
    return known[index].partition_epoch if index < len(known) else NO_STATE


def _assignments(topic: TopicImage | None, count: int) -> list[object]:
    return [] if topic is None else [each.assignment for each in topic.partitions[:count]]


def _partition(where: TopicPartition, node: Node) -> PartitionImage | None:
    """A state as an image; the replicas are the topic's to know."""
    try:
        state = znodes.read_state(where, node.data)
    except ZnodeError as error:
        # Who leads is not guessed: nobody does, until somebody has looked at the node.
        logger.error("%s has no leader: %s", where, error)
        return PartitionImage(where.partition, NO_LEADER, 0, node.version, (), ())
    return PartitionImage(
        where.partition, state.leader, state.leader_epoch, node.version, (), state.isr
    )


def _with_dead_offline(topic: TopicImage, brokers: Mapping[int, BrokerRegistration]) -> TopicImage:
    partitions = [
        each._replace(offline=tuple(r for r in each.replicas if r not in brokers))
        for each in topic.partitions
    ]
    return topic._replace(partitions=tuple(partitions))


def _started(topic: TopicImage, image: MetadataImage) -> TopicImage:
    """A new topic: partitions that were never led are led by the first of their replicas."""
    topic = _with_dead_offline(topic, image.brokers)
    partitions = [
        changes.new_partition(image, each.partition, each.replicas)
        if each.partition_epoch == NO_STATE
        else each
        for each in topic.partitions
    ]
    return topic._replace(partitions=tuple(partitions))


def _with_added(image: MetadataImage, topics: Iterable[TopicImage]) -> Change[None]:
    new = [
        _with_dead_offline(topic, image.brokers)
        for topic in topics
        if topic.name not in image.topics
    ]
    return Change(None, MetadataDelta(image, image.with_topics(new), added=new))


def _as_read(image: MetadataImage, topic: TopicImage) -> Change[None]:
    """The image with what was read of a topic, where it is newer than what is known."""
    known = image.topic(topic.name)
    if known is None or known.topic_id != topic.topic_id:
        return Change(None)
    topic = _with_dead_offline(topic, image.brokers)
    partitions = list(known.partitions)
    for each in topic.partitions[: len(partitions)]:
        before = partitions[each.partition]
        if each.partition_epoch >= before.partition_epoch:
            offline = tuple(r for r in each.replicas if r in before.offline or r in each.offline)
            partitions[each.partition] = each._replace(offline=offline)
    more = topic.partitions[len(partitions) :]
    if not _is_fresh(more):
        partitions += more
    after = image.with_topics([known._replace(partitions=tuple(partitions))])
    return Change(None, difference(image, after))


def _grown(image: MetadataImage, topic: TopicImage) -> Change[None]:
    """The image with the partitions that a topic was given, which are led at once."""
    known = image.topic(topic.name)
    if known is None or known.topic_id != topic.topic_id:
        return Change(None)
    more = _started(topic._replace(partitions=topic.partitions[len(known.partitions) :]), image)
    if not more.partitions:
        return Change(None)
    after = image.with_topics([known.with_partitions(more.partitions)])
    return Change(None, MetadataDelta(image, after, changed=[after.topics[topic.name]]))


def _is_fresh(partitions: Iterable[PartitionImage]) -> bool:
    """Whether none of them has ever been led."""
    return all(each.partition_epoch == NO_STATE for each in partitions)


def _with_gone(image: MetadataImage, brokers: Mapping[int, BrokerRegistration]) -> Change[None]:
    """Who is not there any more, or has come back since: its replicas are offline."""
    gone = [
        broker.id
        for broker in image.brokers.values()
        if broker.id not in brokers or brokers[broker.id].epoch != broker.epoch
    ]
    if not gone:
        return Change(None)
    logger.info("brokers that are gone: %s", gone)
    after = image
    for broker_id in gone:
        after = without_replicas(after, replicas_of(after, broker_id), broker_id)
    left = {b.id: b for b in image.brokers.values() if b.id not in gone}
    return Change(None, difference(image, replace(after, brokers=MappingProxyType(left))))


def _with_come(image: MetadataImage, brokers: Mapping[int, BrokerRegistration]) -> Change[None]:
    come = [broker for broker in brokers.values() if broker.id not in image.brokers]
    if not come:
        return Change(None)
    logger.info("brokers that have come: %s", [broker.id for broker in come])
    after = image
    for broker in come:
        after = with_replicas(after, replicas_of(after, broker.id), broker.id)
    live = {**image.brokers, **{broker.id: broker for broker in come}}
    return Change(None, difference(image, replace(after, brokers=MappingProxyType(live))))


def _rebased(
    delta: MetadataDelta, image: MetadataImage, refused: set[TopicPartition]
) -> MetadataDelta:
    """The change as one of the present image, which settings may have changed meanwhile, without
    what could not be written."""
    after = image
    if delta.brokers_changed:
        after = replace(after, brokers=delta.image.brokers)
    removed = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in delta.topics_removed]
    after = after.with_topics(removed=delta.topics_removed).with_configs(
        {resource: {} for resource in removed}
    )
    put = []
    for topic in (*delta.topics_added, *delta.topics_changed):
        before = delta.previous.topics.get(topic.name)
        kept = []
        for each in topic.partitions:
            if TopicPartition(topic.name, each.partition) not in refused:
                kept.append(each)
            elif before is not None and each.partition < len(before.partitions):
                kept.append(before.partitions[each.partition])
            else:
                break
        if kept or before is not None:
            put.append(topic._replace(partitions=tuple(kept)))
    after = after.with_topics(put)
    names = {topic.name for topic in put}
    return MetadataDelta(
        image,
        after,
        added=[topic for topic in put if topic.name not in image.topics],
        removed=delta.topics_removed,
        changed=[after.topics[name] for name in names if name in image.topics],
        brokers_changed=delta.brokers_changed,
    )
