"""`TopicOperations`: topics made, extended and marked for deletion, which every broker writes by
itself. Whoever is the controller sees it and has the partitions led, or removed; who asked is
answered when this broker's image has come to that."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import (
    ConfigResource,
    MetadataImage,
    ReplicaAssignment,
    ResourceType,
    TopicImage,
)
from odradek.metadata.store import NewPartitions, NewTopic, OnDone
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import (
    Create,
    Created,
    Failure,
    Node,
    Refusal,
    SetData,
    ZooKeeperClient,
)
from odradek.metadata.zookeeper.membership import UNREGISTERED, Membership
from odradek.metadata.zookeeper.publishing import ImagePublisher
from odradek.metadata.zookeeper.settings import LOST
from odradek.metadata.zookeeper.znodes import ZnodeError

T = TypeVar("T")


class TopicOperations:
    """Of the broker of `membership`; `new_id` gives ids for topics."""

    def __init__(
        self,
        membership: Membership,
        zookeeper: ZooKeeperClient,
        publisher: ImagePublisher,
        new_id: Callable[[], UUID],
    ) -> None:
        self._membership: Final = membership
        self._zookeeper: Final = zookeeper
        self._publisher: Final = publisher
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
        """Begins something for each item, and answers when all are done, in their order."""
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
        config = znodes.config_path(ConfigResource(ResourceType.TOPIC, topic.name))
        config_data = znodes.config_json(topic.configs)
        create = Create(path, znodes.topic_json(topic_id, assignments))

        def on_committed(outcome: Created | Refusal) -> None:
            if not isinstance(outcome, Refusal):
                self._await_topic(topic, topic_id, on_done)
            elif outcome.failure is Failure.NODE_EXISTS and outcome.place == 0:
                # Left of an earlier topic, or of a request that was made twice.
                self._zookeeper.get(path, on_existing)
            elif outcome.failure is Failure.NODE_EXISTS:
                on_done(_topic_exists(topic.name))
            else:
                on_done(_refused(outcome))

        def on_existing(node: Node | Failure | None) -> None:
            if isinstance(node, Failure):
                on_done(LOST)
            elif node is None:
                self._zookeeper.commit([SetData(config, config_data, -1), create], on_committed)
            elif _is_topic(topic.name, node, topic_id):
                self._await_topic(topic, topic_id, on_done)
            else:
                on_done(_topic_exists(topic.name))

        self._zookeeper.commit([Create(config, config_data), create], on_committed)

    def _await_topic(self, topic: NewTopic, topic_id: UUID, on_done: OnDone[TopicImage]) -> None:
        """Answers when the topic is in the image, or gone from ZooKeeper before it came there."""
        path = znodes.topic_path(topic.name)
        is_gone = False

        def look(image: MetadataImage) -> TopicImage | BrokerError | None:
            there = image.topic_by_id(topic_id)
            if there is not None and _has_partitions(there, len(topic.assignment)):
                return there
            return _unknown_topic(topic.name) if is_gone else None

        def on_node(node: Node | Failure | None) -> None:
            nonlocal is_gone
            if isinstance(node, Failure):
                return
            if node is None or not _is_topic(topic.name, node, topic_id):
                is_gone = True
                self._publisher.answer_waiters()

        def again() -> None:
            if self._publisher.is_waited_for(look):
                self._zookeeper.get(path, on_node, again)

        self._publisher.wait(look, on_done)
        again()

    def _delete_topic(self, topic_id: UUID, on_done: OnDone[TopicImage]) -> None:
        topic = self._publisher.image.topic_by_id(topic_id)
        if topic is None:
            on_done(BrokerError(ErrorCode.UNKNOWN_TOPIC_ID))
            return

        def look(image: MetadataImage) -> TopicImage | None:
            return topic if image.topic_by_id(topic_id) is None else None

        def on_committed(outcome: Created | Refusal) -> None:
            if isinstance(outcome, Refusal) and outcome.failure is not Failure.NODE_EXISTS:
                on_done(_refused(outcome))
            else:
                self._publisher.wait(look, on_done)

        self._zookeeper.commit([Create(znodes.deletion_path(topic.name))], on_committed)

    def _create_partitions(self, addition: NewPartitions, on_done: OnDone[TopicImage]) -> None:
        name = addition.name
        path = znodes.topic_path(name)
        count = addition.first + len(addition.assignment)

        def look(image: MetadataImage) -> TopicImage | BrokerError | None:
            topic = image.topic(name)
            if topic is None:
                return _unknown_topic(name)
            return topic if _has_partitions(topic, count) else None

        def on_node(node: Node | Failure | None) -> None:
            if isinstance(node, Failure):
                on_done(LOST)
                return
            if node is None or self._publisher.image.topic(name) is None:
                on_done(_unknown_topic(name))
                return
            try:
                topic = znodes.read_topic(name, node.data)
            except ZnodeError as error:
                on_done(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
                return
            if len(topic.assignments) != addition.first:
                there = len(topic.assignments)
                message = f"Topic {name} has grown to {there} partition(s)."
                on_done(BrokerError(ErrorCode.INVALID_PARTITIONS, message))
                return
            more = tuple(ReplicaAssignment(replicas) for replicas in addition.assignment)
            data = znodes.topic_json(topic.topic_id, topic.assignments + more)
            self._zookeeper.commit([SetData(path, data, node.version)], on_committed)

        def on_committed(outcome: Created | Refusal) -> None:
            if not isinstance(outcome, Refusal):
                self._publisher.wait(look, on_done)
            elif outcome.failure in (Failure.BAD_VERSION, Failure.NO_NODE):
                self._create_partitions(addition, on_done)
            else:
                on_done(_refused(outcome))

        self._zookeeper.get(path, on_node)


def new_topic_id(random_bytes: Callable[[int], bytes], image: MetadataImage) -> UUID:
    """A random id that is neither reserved nor taken, nor prints with a leading dash, which
    command lines would read as an option."""
    while True:
        candidate = UUID(bytes=random_bytes(16), version=4)
        taken = image.topic_by_id(candidate) is not None
        if not taken and not znodes.uuid_text(candidate).startswith("-"):
            return candidate


def _has_partitions(topic: TopicImage, count: int) -> bool:
    """Whether so many are known by more than that there must be some."""
    known = [each for each in topic.partitions if each.replicas]
    return len(known) >= count


def _is_topic(name: str, node: Node, topic_id: UUID) -> bool:
    try:
        return znodes.read_topic(name, node.data).topic_id == topic_id
    except ZnodeError:
        return False


def _refused(refusal: Refusal) -> BrokerError:
    if refusal.failure is Failure.SESSION_LOST:
        return BrokerError(ErrorCode.NOT_CONTROLLER)
    text = f"ZooKeeper refuses: {refusal.failure.name}"
    return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, text)


def _topic_exists(name: str) -> BrokerError:
    return BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _unknown_topic(name: str) -> BrokerError:
    return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}.")
