"""Applies what a controller has read to its image: image in, change out. Pure."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from odradek.errors import BrokerError
from odradek.metadata import changes
from odradek.metadata.changes import Change, difference, replicas_of
from odradek.metadata.image import (
    BrokerRegistration,
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    ReplicaAssignment,
    TopicImage,
    with_replicas,
    without_replicas,
)
from odradek.metadata.store import PartitionChange
from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import Node
from odradek.metadata.zookeeper.metadata_updates import without_settings
from odradek.metadata.zookeeper.znodes import NO_STATE, ZnodeError
from odradek.model import NO_LEADER, ConfigResourceType, TopicPartition

logger = logging.getLogger(__name__)


def partition_of(where: TopicPartition, node: Node) -> PartitionImage:
    """A state as an image; the replicas are the topic's to know."""
    try:
        state = znodes.read_state(where, node.data)
    except ZnodeError as error:
        # The leader is not guessed: there is none until the node has been repaired.
        logger.error("%s has no leader: %s", where, error)
        return PartitionImage(where.partition, NO_LEADER, 0, node.version, (), ())
    return PartitionImage(
        where.partition, state.leader, state.leader_epoch, node.version, (), state.isr
    )


def is_fresh(partitions: Iterable[PartitionImage]) -> bool:
    """Whether none of them has ever been led."""
    return all(each.partition_epoch == NO_STATE for each in partitions)


def first_image(
    image: MetadataImage,
    topics: Iterable[TopicImage],
    brokers: Mapping[int, BrokerRegistration],
    controller_id: int,
    controller_epoch: int,
) -> MetadataDelta:
    """The change from the image that this broker was sent to a controller's image."""
    brokers = MappingProxyType(dict(brokers))
    found = [present(topic, image.topic(topic.name), brokers) for topic in topics]
    names = {topic.name for topic in found}
    gone = [topic for topic in image.topics.values() if topic.name not in names]
    after = replace(
        image,
        brokers=brokers,
        controller_id=controller_id,
        controller_epoch=controller_epoch,
    )
    other = [
        known
        for topic in found
        if (known := image.topic(topic.name)) is not None and known.topic_id != topic.topic_id
    ]
    after = after.with_topics(removed=[*gone, *other]).with_topics(found)
    named = [each.name for each in after.configs if each.type is ConfigResourceType.TOPIC]
    led = [topic.name for topic in found if not is_fresh(topic.partitions)]
    return difference(image, without_settings(after, named), found=led)


def with_partitions(
    image: MetadataImage, wanted: Sequence[PartitionChange], broker_id: int
) -> Change[list[PartitionImage | BrokerError]]:
    """See `changes.change_partitions`. Brokers are told to give replicas up by requests, of which a
    slow broker may read one after it was given the replica back: as with Apache Kafka's controller
    the leader epoch tells it."""
    return changes.change_partitions(image, wanted, broker_id, orders_may_be_late=True)


def with_added(
    image: MetadataImage,
    topics: Iterable[TopicImage],
    before: Mapping[str, TopicImage] = MappingProxyType({}),
) -> Change[None]:
    """The image with topics that were found, as they are; `before` has what was known of them
    earlier."""
    new = [
        present(topic, before.get(topic.name), image.brokers) for topic in _unknown(topics, image)
    ]
    names = [topic.name for topic in new]
    return Change(None, MetadataDelta(image, image.with_topics(new), added=new, found=names))


def with_started(image: MetadataImage, topics: Iterable[TopicImage]) -> Change[None]:
    """The image with topics that were never led, and are from now on."""
    new = [_started(topic, image) for topic in _unknown(topics, image)]
    return Change(None, MetadataDelta(image, image.with_topics(new), added=new))


def _unknown(topics: Iterable[TopicImage], image: MetadataImage) -> list[TopicImage]:
    return [topic for topic in topics if topic.name not in image.topics]


def as_written(partition: PartitionImage, assignment: ReplicaAssignment) -> PartitionImage:
    """A state with the replicas of the topic's node, whether they go together or not."""
    return partition._replace(**assignment._asdict())


def with_assignment(partition: PartitionImage, assignment: ReplicaAssignment) -> PartitionImage:
    """A state with replicas. A broker that is none of them is not in sync, and does not lead:
    Kafka's controller writes one after the other, and may end in between."""
    isr = tuple(each for each in partition.isr if each in assignment.replicas)
    return partition._replace(
        leader=partition.leader if partition.leader in assignment.replicas else NO_LEADER,
        isr=isr,
        replicas=assignment.replicas,
        adding=assignment.adding,
        removing=assignment.removing,
    )


def with_reading(image: MetadataImage, topic: TopicImage) -> Change[None]:
    """The image with a topic's states as read, unless the known ones are newer, and with new
    partitions. The replicas of the others are the controller's to change."""
    known = image.topic(topic.name)
    if known is None or known.topic_id != topic.topic_id:
        return Change(None)
    partitions = list(known.partitions)
    for each in topic.partitions[: len(partitions)]:
        before = partitions[each.partition]
        if each.partition_epoch >= before.partition_epoch:
            offline = tuple(
                r for r in before.replicas if r in before.offline or r not in image.brokers
            )
            state = with_assignment(each, before.assignment)
            partitions[each.partition] = state._replace(offline=offline)
    more = present(topic, known, image.brokers).partitions[len(partitions) :]
    if not is_fresh(more):
        partitions += more
    after = image.with_topics([known._replace(partitions=tuple(partitions))])
    return Change(None, difference(image, after, found=[topic.name]))


def with_nodes(image: MetadataImage, topics: Collection[TopicImage]) -> Change[None]:
    """The same image: the nodes of these topics are to be written as it has them."""
    return Change(None, MetadataDelta(image, image, changed=topics) if topics else None)


def with_later_epochs(image: MetadataImage, partitions: Iterable[TopicPartition]) -> Change[None]:
    """The image with the same states of partitions under later epochs, so they are written."""
    after = image
    for where in partitions:
        partition = image.partition(where)
        if partition is not None:
            later = partition._replace(partition_epoch=partition.partition_epoch + 1)
            after = after.with_topics([after.topics[where.topic].with_partitions([later])])
    return Change(None, difference(image, after))


def with_growth(image: MetadataImage, topic: TopicImage) -> Change[None]:
    """The image with the partitions that a topic was given, which are led at once."""
    known = image.topic(topic.name)
    if known is None or known.topic_id != topic.topic_id:
        return Change(None)
    more = _started(topic._replace(partitions=topic.partitions[len(known.partitions) :]), image)
    if not more.partitions:
        return Change(None)
    after = image.with_topics([known.with_partitions(more.partitions)])
    return Change(None, MetadataDelta(image, after, changed=[after.topics[topic.name]]))


def without_gone(image: MetadataImage, brokers: Mapping[int, BrokerRegistration]) -> Change[None]:
    """Brokers that are gone, or have come back since, have offline replicas."""
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


def with_come(image: MetadataImage, brokers: Mapping[int, BrokerRegistration]) -> Change[None]:
    """Brokers that have come have their replicas online."""
    come = [broker for broker in brokers.values() if broker.id not in image.brokers]
    if not come:
        return Change(None)
    logger.info("brokers that have come: %s", [broker.id for broker in come])
    after = image
    for broker in come:
        after = with_replicas(after, replicas_of(after, broker.id), broker.id)
    live = {**image.brokers, **{broker.id: broker for broker in come}}
    return Change(None, difference(image, replace(after, brokers=MappingProxyType(live))))


def without_refused(delta: MetadataDelta, refused: Collection[TopicPartition]) -> MetadataDelta:
    """A change without what could not be written."""
    image = delta.previous
    removed = [ConfigResource.topic(topic.name) for topic in delta.topics_removed]
    after = replace(image, brokers=delta.image.brokers)
    after = after.with_topics(removed=delta.topics_removed).with_configs(
        {resource: {} for resource in removed}
    )
    put = []
    for topic in (*delta.topics_added, *delta.topics_changed):
        before = image.topics.get(topic.name)
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
    return MetadataDelta(
        image,
        after.with_topics(put),
        added=[topic for topic in put if topic.name not in image.topics],
        removed=delta.topics_removed,
        changed=[topic for topic in put if topic.name in image.topics],
        brokers_changed=delta.brokers_changed,
        found=delta.found,
    )


def present(
    topic: TopicImage, known: TopicImage | None, brokers: Mapping[int, BrokerRegistration]
) -> TopicImage:
    """A topic as read, with the replicas that its partitions have, of which those of brokers that
    do not live are offline; `known` is what the image has of it."""
    is_same = known is not None and known.topic_id == topic.topic_id
    before = dict(enumerate(known.partitions)) if known is not None and is_same else {}
    partitions = []
    for read in topic.partitions:
        each = _state_of(read, before.get(read.partition))
        assignment = _assignment_of(each, before.get(each.partition))
        offline = tuple(r for r in assignment.replicas if r not in brokers)
        partitions.append(with_assignment(each, assignment)._replace(offline=offline))
    return topic._replace(partitions=tuple(partitions))


def _state_of(read: PartitionImage, known: PartitionImage | None) -> PartitionImage:
    """The state of a partition that was `read`: the known one if somebody has removed it, or made
    another. Versions never go back."""
    if known is None or read.partition_epoch >= known.partition_epoch:
        return read
    return as_written(known, read.assignment)


def _assignment_of(read: PartitionImage, known: PartitionImage | None) -> ReplicaAssignment:
    """The replicas of a partition that was `read` with those of its topic's node and the in-sync
    ones of its state.

    A controller writes no replicas without the in-sync ones: a node that leaves some out is
    another's work, or that of a Kafka's controller that ended between two writes. If the state is
    the known one, so are its replicas. Else the node says where the partition is to move, if one of
    its replicas has all records; and if none has, those that do stay.
    """
    isr = set(read.isr)
    if isr <= set(read.replicas):
        return read.assignment
    before = known if known is not None and isr <= set(known.replicas) else None
    is_same = before is not None and before.partition_epoch == read.partition_epoch
    if isr & set(read.replicas) and not (is_same and not read.is_reassigning):
        return _as_target(read)
    return ReplicaAssignment(read.isr) if before is None else before.assignment


def _as_target(read: PartitionImage) -> ReplicaAssignment:
    """The replicas of the node as the target of a reassignment: whoever is in sync, and none of
    them, leaves in the transaction that takes it out of the ISR. A broker that is no replica any
    more deletes its log: it is not told so while a state says that it has all records."""
    leaving = tuple(each for each in read.isr if each not in read.replicas)
    return ReplicaAssignment(
        (*read.replicas, *leaving),
        read.adding or tuple(each for each in read.replicas if each not in read.isr),
        (*read.removing, *leaving),
    )


def _started(topic: TopicImage, image: MetadataImage) -> TopicImage:
    """A new topic: partitions that were never led are led by the first of their replicas."""
    topic = present(topic, None, image.brokers)
    partitions: Sequence[PartitionImage] = [
        changes.new_partition(image, each.partition, each.replicas)
        if each.partition_epoch == NO_STATE
        else each
        for each in topic.partitions
    ]
    return topic._replace(partitions=tuple(partitions))
