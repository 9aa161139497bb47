"""The operations of a store: image in, delta and result out.

Pure: no file, no clock, no callback. A store writes the delta of a `Change`, in its own form, and
then publishes it. A `BrokerError` in a result is about the one item that was refused; the others of
the same call are done.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Generic, TypeVar
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import (
    NO_CONTROLLER,
    BrokerRegistration,
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
    with_replicas,
    without_replicas,
)
from odradek.metadata.store import (
    Assignment,
    NewPartitions,
    NewTopic,
    PartitionChange,
)
from odradek.model import NO_LEADER, ConfigResourceType, TopicPartition
from odradek.protocol.uuids import uuid_text

T = TypeVar("T")

MAX_EPOCH: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """A planned operation: its answer, and the change to store and publish."""

    result: T
    delta: MetadataDelta | None = None


def difference(
    before: MetadataImage,
    after: MetadataImage,
    *,
    are_deleted: bool = True,
    found: Iterable[str] = (),
) -> MetadataDelta:
    """The change from one image to another: topics, brokers, settings; see `MetadataDelta`."""
    added, removed, changed = [], [], []
    for name, topic in after.topics.items():
        known = before.topics.get(name)
        if known is None or known.topic_id != topic.topic_id:
            added.append(topic)
        elif known is not topic and known != topic:
            changed.append(topic)
    for name, topic in before.topics.items():
        other = after.topics.get(name)
        if other is None or other.topic_id != topic.topic_id:
            removed.append(topic)
    resources: set[ConfigResource] = set()
    if before.configs is not after.configs:
        both = {*before.configs, *after.configs}
        resources = {each for each in both if before.config(each) != after.config(each)}
    return MetadataDelta(
        before,
        after,
        added=added,
        removed=removed,
        changed=changed,
        configs=resources,
        brokers_changed=before.brokers != after.brokers
        or before.controller_id != after.controller_id,
        are_deleted=are_deleted,
        found=found,
    )


def register_broker(image: MetadataImage, broker: BrokerRegistration) -> Change[BrokerRegistration]:
    """Registers a live broker: its replicas are online, and it is the controller if there is
    none."""
    brokers = {**image.brokers, broker.id: broker}
    controller_id = image.controller_id if image.controller_id in image.brokers else broker.id
    after = with_replicas(
        image.with_brokers(brokers, controller_id), replicas_of(image, broker.id), broker.id
    )
    return Change(broker, _of_brokers(image, after))


def unregister_broker(image: MetadataImage, broker_id: int, epoch: int) -> Change[None]:
    """Removes the broker of that epoch; if it was the controller, the longest-registered broker
    takes over."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch:
        return Change(None)
    brokers = {other.id: other for other in image.brokers.values() if other.id != broker_id}
    controller_id = image.controller_id
    if controller_id == broker_id:
        oldest = min(brokers.values(), key=attrgetter("epoch"), default=None)
        controller_id = NO_CONTROLLER if oldest is None else oldest.id
    after = without_replicas(
        image.with_brokers(brokers, controller_id), replicas_of(image, broker_id), broker_id
    )
    return Change(None, _of_brokers(image, after))


def create_topics(
    image: MetadataImage, topics: Sequence[NewTopic], new_id: Callable[[], UUID]
) -> Change[list[TopicImage | BrokerError]]:
    """Adds topics, whose first replicas lead from epoch 0."""
    results: list[TopicImage | BrokerError] = []
    added: dict[str, TopicImage] = {}
    configs: dict[ConfigResource, Mapping[str, str]] = {}
    for topic in topics:
        if topic.name in image.topics or topic.name in added:
            results.append(topic_exists(topic.name))
            continue
        created = TopicImage(topic.name, new_id(), _new_partitions(image, 0, topic.assignment))
        added[topic.name] = created
        results.append(created)
        if topic.configs:
            configs[ConfigResource.topic(topic.name)] = topic.configs
    after = image.with_topics(added.values()).with_configs(configs)
    return Change(results, MetadataDelta(image, after, added=added.values(), configs=configs))


def delete_topics(
    image: MetadataImage, topic_ids: Sequence[UUID]
) -> Change[list[TopicImage | BrokerError]]:
    """Removes topics and their settings."""
    results: list[TopicImage | BrokerError] = []
    removed: dict[UUID, TopicImage] = {}
    for topic_id in topic_ids:
        topic = image.topic_by_id(topic_id)
        if topic is None or topic_id in removed:
            results.append(BrokerError(ErrorCode.UNKNOWN_TOPIC_ID))
            continue
        removed[topic_id] = topic
        results.append(topic)
    resources = [ConfigResource.topic(topic.name) for topic in removed.values()]
    after = image.with_topics(removed=removed.values()).with_configs({r: {} for r in resources})
    return Change(results, MetadataDelta(image, after, removed=removed.values()))


def create_partitions(
    image: MetadataImage, additions: Sequence[NewPartitions]
) -> Change[list[TopicImage | BrokerError]]:
    """Adds partitions to topics."""
    results: list[TopicImage | BrokerError] = []
    changed: dict[str, TopicImage] = {}
    for addition in additions:
        topic = changed.get(addition.name) or image.topic(addition.name)
        if topic is None:
            results.append(unknown_topic(addition.name))
            continue
        if len(topic.partitions) != addition.first:
            results.append(grown_meanwhile(topic.name, len(topic.partitions)))
            continue
        partitions = _new_partitions(image, addition.first, addition.assignment)
        changed[topic.name] = topic.with_partitions(partitions)
        results.append(changed[topic.name])
    after = image.with_topics(changed.values())
    return Change(results, MetadataDelta(image, after, changed=changed.values()))


def change_partitions(
    image: MetadataImage,
    changes: Sequence[PartitionChange],
    broker_id: int,
    *,
    orders_may_be_late: bool = False,
) -> Change[list[PartitionImage | BrokerError]]:
    """Changes leaders, in-sync replicas and assignments, if the epoch is the expected one and the
    requesting broker is the controller or the leader. With `orders_may_be_late` a returning replica
    has a leader epoch above that of an earlier request to give it up."""
    results: list[PartitionImage | BrokerError] = []
    # The start of a broker changes all its partitions at once: each topic is rebuilt only once.
    changed: dict[str, dict[int, PartitionImage]] = {}
    for change in changes:
        name, index = change.topic_partition
        topic = image.topic(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            results.append(unknown_topic(name))
            continue
        partition = changed.get(name, {}).get(index) or topic.partitions[index]
        if broker_id not in (image.controller_id, partition.leader):
            results.append(BrokerError(ErrorCode.NOT_CONTROLLER))
            continue
        outcome = _changed(partition, change, image.brokers.keys(), orders_may_be_late)
        results.append(outcome)
        if isinstance(outcome, PartitionImage):
            changed.setdefault(name, {})[index] = outcome
    topics = [
        image.topics[name].with_partitions(partitions.values())
        for name, partitions in changed.items()
    ]
    return Change(results, MetadataDelta(image, image.with_topics(topics), changed=topics))


def alter_configs(
    image: MetadataImage, changes: Mapping[ConfigResource, Mapping[str, str | None]]
) -> Change[None]:
    """Sets settings, or deletes those whose value is None."""
    configs = {
        resource: _merged(image.config(resource), settings)
        for resource, settings in changes.items()
        if not _is_deleted_topic(image, resource)
    }
    return Change(None, MetadataDelta(image, image.with_configs(configs), configs=configs))


def update_features(image: MetadataImage, levels: Mapping[str, int]) -> Change[None]:
    """Changes the levels of features, under the next epoch."""
    return Change(None, MetadataDelta(image, image.with_features(levels)))


def _is_deleted_topic(image: MetadataImage, resource: ConfigResource) -> bool:
    """Whether the resource is a topic that was deleted between the check of a request and its
    turn."""
    return resource.type is ConfigResourceType.TOPIC and resource.name not in image.topics


def _merged(settings: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged: dict[str, str | None] = {**settings, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def _new_partitions(
    image: MetadataImage, first: int, assignment: Assignment
) -> tuple[PartitionImage, ...]:
    return tuple(
        new_partition(image, first + index, replicas) for index, replicas in enumerate(assignment)
    )


def new_partition(image: MetadataImage, index: int, replicas: tuple[int, ...]) -> PartitionImage:
    """The state of a new partition: live replicas begin in sync, the first of them leads."""
    live = tuple(replica for replica in replicas if replica in image.brokers)
    offline = tuple(replica for replica in replicas if replica not in image.brokers)
    leader = live[0] if live else NO_LEADER
    return PartitionImage(index, leader, 0, 0, replicas, live or replicas, offline)


def replicas_of(image: MetadataImage, broker_id: int) -> list[TopicPartition]:
    """All partitions with a replica at a broker."""
    return [
        TopicPartition(topic.name, partition.partition)
        for topic in image.topics.values()
        for partition in topic.partitions
        if broker_id in partition.replicas
    ]


def _of_brokers(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    changed = [
        topic for name, topic in after.topics.items() if topic is not before.topics.get(name)
    ]
    return MetadataDelta(before, after, changed=changed, brokers_changed=True)


def _changed(
    partition: PartitionImage,
    change: PartitionChange,
    live: Collection[int],
    orders_may_be_late: bool,
) -> PartitionImage | BrokerError:
    if change.partition_epoch != partition.partition_epoch:
        return BrokerError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{change.topic_partition} is at partition epoch {partition.partition_epoch}, "
            f"not {change.partition_epoch}",
        )
    if change.leader != NO_LEADER and change.leader not in change.isr:
        return BrokerError(ErrorCode.INVALID_REQUEST, "the leader must be one of the ISR")
    assignment = change.assignment or partition.assignment
    if not set(change.isr) <= set(assignment.replicas) or not change.isr:
        return BrokerError(ErrorCode.INVALID_REQUEST, "the ISR must be some of the replicas")
    joining = set(change.isr) - set(partition.isr)
    gone = sorted(joining.difference(live))
    if gone:
        # The replica may have lost the records that it had fetched before.
        return BrokerError(ErrorCode.INELIGIBLE_REPLICA, f"broker {gone[0]} does not live")
    # A former replica must not count as one: its fetches have another epoch.
    before, after = set(partition.replicas), set(assignment.replicas)
    is_new_epoch = change.leader != partition.leader or not before <= after
    is_new_epoch |= orders_may_be_late and not after <= before
    leader_epoch = partition.leader_epoch + is_new_epoch
    partition_epoch = partition.partition_epoch + 1
    if max(leader_epoch, partition_epoch) > MAX_EPOCH:
        # The protocol and the log have no room for a higher one.
        return BrokerError(ErrorCode.INVALID_REQUEST, f"{change.topic_partition} has no epoch left")
    return partition._replace(
        leader=change.leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        isr=change.isr,
        replicas=assignment.replicas,
        adding=assignment.adding,
        removing=assignment.removing,
        offline=tuple(
            replica
            for replica in assignment.replicas
            if replica in partition.offline
            or (replica not in live and replica not in partition.replicas)
        ),
    )


def new_topic_id(random_bytes: Callable[[int], bytes], image: MetadataImage) -> UUID:
    """A random id that is neither reserved nor taken, nor prints with a leading dash, which
    command lines would read as an option."""
    while True:
        candidate = UUID(bytes=random_bytes(16), version=4)
        taken = image.topic_by_id(candidate) is not None
        if not taken and not uuid_text(candidate).startswith("-"):
            return candidate


def topic_exists(name: str) -> BrokerError:
    """The error for the creation of an existing topic."""
    return BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def unknown_topic(name: str) -> BrokerError:
    """The error for the change of a missing topic."""
    return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}.")


def grown_meanwhile(name: str, count: int) -> BrokerError:
    """The error for a topic that got partitions between the request and its turn."""
    return BrokerError(
        ErrorCode.INVALID_PARTITIONS, f"Topic {name} has grown to {count} partition(s)."
    )
