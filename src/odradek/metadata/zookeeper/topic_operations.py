"""`TopicOperations`: topics made, extended and marked for deletion, which every broker writes by
itself. The controller sees the nodes and elects the partitions' leaders, or removes the topics; the
request is answered when this broker's image shows that."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.changes import grown_meanwhile, topic_exists, unknown_topic
from odradek.metadata.engine import BrokerView
from odradek.metadata.image import (
    ConfigResource,
    MetadataImage,
    ReplicaAssignment,
    TopicImage,
)
from odradek.metadata.store import NewPartitions, NewTopic, OnDone
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import (
    LOST,
    Check,
    Create,
    Created,
    Failure,
    Node,
    Refusal,
    SetData,
    ZooKeeperClient,
)
from odradek.metadata.zookeeper.image_waiters import ImageWaiters
from odradek.metadata.zookeeper.membership import UNREGISTERED, Membership
from odradek.metadata.zookeeper.znodes import ZnodeError

T = TypeVar("T")


class TopicOperations:
    """Belongs to the broker of `membership`; `new_id` creates ids for topics."""

    def __init__(
        self,
        membership: Membership,
        zookeeper: ZooKeeperClient,
        view: BrokerView,
        waiters: ImageWaiters,
        new_id: Callable[[], UUID],
    ) -> None:
        self._membership: Final = membership
        self._zookeeper: Final = zookeeper
        self._view: Final = view
        self._waiters: Final = waiters
        self._new_id: Final = new_id

    def create_topics(
        self, topics: Sequence[NewTopic], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """See `MetadataStore`."""
        self._each(topics, self._create_topic, on_done)

    def delete_topics(
        self, topic_ids: Sequence[UUID], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """See `MetadataStore`."""
        seen: set[UUID] = set()

        def delete(topic_id: UUID, on_each: OnDone[TopicImage]) -> None:
            if topic_id in seen:
                on_each(BrokerError(ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                seen.add(topic_id)
                self._delete_topic(topic_id, on_each)

        self._each(topic_ids, delete, on_done)

    def create_partitions(
        self, additions: Sequence[NewPartitions], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """See `MetadataStore`."""
        self._each(additions, self._create_partitions, on_done)

    def _each(
        self,
        items: Sequence[T],
        begin: Callable[[T, OnDone[TopicImage]], None],
        on_done: OnDone[list[TopicImage | BrokerError]],
    ) -> None:
        """Begins an operation for each item, and answers when all are done, in their order."""
        if self._membership.epoch == UNREGISTERED:
            on_done(BrokerError(ErrorCode.NOT_CONTROLLER))
            return
        results: dict[int, TopicImage | BrokerError] = {}

        def on_each(index: int, outcome: TopicImage | BrokerError) -> None:
            results[index] = outcome
            if len(results) == len(items):
                on_done([results[each] for each in range(len(items))])

        if not items:
            on_done([])
        for index, item in enumerate(items):
            begin(item, partial(on_each, index))

    def _create_topic(self, topic: NewTopic, on_done: OnDone[TopicImage]) -> None:
        topic_id = self._new_id()
        assignments = [ReplicaAssignment(replicas) for replicas in topic.assignment]
        path = znodes.topic_path(topic.name)
        config = znodes.config_path(ConfigResource.topic(topic.name))
        config_data = znodes.config_json(topic.configs)
        create = Create(path, znodes.topic_json(topic_id, assignments))

        def begin() -> None:
            self._zookeeper.commit([Create(config, config_data), create], on_committed)

        def on_committed(outcome: Created | Refusal) -> None:
            if not isinstance(outcome, Refusal):
                self._await_topic(topic, topic_id, on_done)
            elif outcome.failure is Failure.NODE_EXISTS and outcome.place == 0:
                # A rest of an earlier topic, or of a request that was made twice.
                self._zookeeper.get(path, on_existing)
            elif outcome.failure is Failure.NODE_EXISTS:
                on_done(topic_exists(topic.name))
            else:
                on_done(_refused(outcome))

        def on_existing(node: Node | Failure | None) -> None:
            if isinstance(node, Failure):
                on_done(LOST)
            elif node is None:
                self._zookeeper.commit([SetData(config, config_data, -1), create], on_overwritten)
            elif _is_topic(topic.name, node, topic_id):
                self._await_topic(topic, topic_id, on_done)
            else:
                on_done(topic_exists(topic.name))

        def on_overwritten(outcome: Created | Refusal) -> None:
            if outcome == Refusal(0, Failure.NO_NODE):
                begin()  # the earlier topic's deletion has removed its settings meanwhile
            else:
                on_committed(outcome)

        begin()

    def _await_topic(self, topic: NewTopic, topic_id: UUID, on_done: OnDone[TopicImage]) -> None:
        """Answers when the topic is in the image, or was deleted from ZooKeeper before that."""
        path = znodes.topic_path(topic.name)
        is_gone = False

        def look(image: MetadataImage) -> TopicImage | BrokerError | None:
            there = image.topic_by_id(topic_id)
            if there is not None and _has_partitions(there, len(topic.assignment)):
                return there
            return unknown_topic(topic.name) if is_gone else None

        def on_node(node: Node | Failure | None) -> None:
            nonlocal is_gone
            if isinstance(node, Failure):
                return
            if node is None or not _is_topic(topic.name, node, topic_id):
                is_gone = True
                self._waiters.look()

        def again() -> None:
            if self._waiters.is_waited_for(look):
                self._zookeeper.get(path, on_node, again)

        self._waiters.wait(look, on_done)
        again()

    def _delete_topic(self, topic_id: UUID, on_done: OnDone[TopicImage]) -> None:
        topic = self._view.image.topic_by_id(topic_id)
        if topic is None:
            on_done(BrokerError(ErrorCode.UNKNOWN_TOPIC_ID))
            return

        def look(image: MetadataImage) -> TopicImage | None:
            return topic if image.topic_by_id(topic_id) is None else None

        path = znodes.topic_path(topic.name)

        def on_node(node: Node | Failure | None) -> None:
            if isinstance(node, Failure):
                on_done(_refused(Refusal(0, node)))
            elif node is None:
                self._waiters.wait(look, on_done)
            elif _is_another(topic, node):
                # Deletions are marked by name, and this broker does not know that of the earlier
                # topic yet.
                on_done(BrokerError(ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                mark = Create(znodes.deletion_path(topic.name))
                self._zookeeper.commit([Check(path, node.version), mark], on_committed)

        def on_committed(outcome: Created | Refusal) -> None:
            if not isinstance(outcome, Refusal) or outcome.failure is Failure.NODE_EXISTS:
                self._waiters.wait(look, on_done)
            elif outcome.failure in (Failure.BAD_VERSION, Failure.NO_NODE):
                self._zookeeper.get(path, on_node)
            else:
                on_done(_refused(outcome))

        self._zookeeper.get(path, on_node)

    def _create_partitions(
        self, addition: NewPartitions, on_done: OnDone[TopicImage], *, is_again: bool = False
    ) -> None:
        """Creates partitions. When it `is_again` tried they may exist already: after a broken
        connection it is unknown whether they were written."""
        name = addition.name
        path = znodes.topic_path(name)
        count = addition.first + len(addition.assignment)

        def look(image: MetadataImage) -> TopicImage | BrokerError | None:
            topic = image.topic(name)
            if topic is None:
                return unknown_topic(name)
            return topic if _has_partitions(topic, count) else None

        def on_node(node: Node | Failure | None) -> None:
            if isinstance(node, Failure):
                on_done(LOST)
                return
            if node is None or self._view.image.topic(name) is None:
                on_done(unknown_topic(name))
                return
            try:
                topic = znodes.read_topic(name, node.data)
            except ZnodeError as error:
                on_done(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
                return
            more = tuple(ReplicaAssignment(replicas) for replicas in addition.assignment)
            if is_again and topic.assignments[addition.first :] == more:
                self._waiters.wait(look, on_done)
                return
            if len(topic.assignments) != addition.first:
                on_done(grown_meanwhile(name, len(topic.assignments)))
                return
            data = znodes.topic_json(topic.topic_id, topic.assignments + more)
            self._zookeeper.commit([SetData(path, data, node.version)], on_committed)

        def on_committed(outcome: Created | Refusal) -> None:
            if not isinstance(outcome, Refusal):
                self._waiters.wait(look, on_done)
            elif outcome.failure in (Failure.BAD_VERSION, Failure.NO_NODE):
                self._create_partitions(addition, on_done, is_again=True)
            else:
                on_done(_refused(outcome))

        self._zookeeper.get(path, on_node)


def _has_partitions(topic: TopicImage, count: int) -> bool:
    """Whether the states of so many partitions are known, and not only their existence."""
    known = [each for each in topic.partitions if each.replicas]
    return len(known) >= count


def _is_topic(name: str, node: Node, topic_id: UUID) -> bool:
    try:
        return znodes.read_topic(name, node.data).topic_id == topic_id
    except ZnodeError:
        return False


def _is_another(topic: TopicImage, node: Node) -> bool:
    """Whether the node belongs to a later topic of the name; Kafka before 2.8 gave topics no id."""
    try:
        return znodes.read_topic(topic.name, node.data).topic_id not in (None, topic.topic_id)
    except ZnodeError:
        return False


def _refused(refusal: Refusal) -> BrokerError:
    if refusal.failure is Failure.SESSION_LOST:
        return BrokerError(ErrorCode.NOT_CONTROLLER)
    text = f"ZooKeeper refuses: {refusal.failure.name}"
    return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, text)
