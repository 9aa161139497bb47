"""Applies a controller's requests to a broker's image: image in, change out. Pure.

An older state never overwrites the one here: requests may overtake each other, and a leader may get
the response to its own request before the update to all brokers. A state of the same age does: it
corrects the changes that this broker made locally when it lost its session.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final
from uuid import UUID

from odradek.errors import ErrorCode
from odradek.metadata.control import LeaderAndIsr, PartitionState, StoppedReplica, UpdateMetadata
from odradek.metadata.image import (
    ZERO_UUID,
    BrokerRegistration,
    ConfigResource,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from odradek.metadata.zookeeper.znodes import NO_STATE
from odradek.model import NO_LEADER, ConfigResourceType, TopicPartition

DELETED: Final = -2
"""The leader of a partition whose topic is being deleted."""
EPOCH_DURING_DELETE: Final = -2
"""The leader epoch under which the replicas of such a topic are stopped."""


def placeholder(index: int) -> PartitionImage:
    """A partition of which only the existence is known."""
    return PartitionImage(index, NO_LEADER, NO_STATE, NO_STATE, (), ())


def with_placeholders(image: MetadataImage, states: Iterable[PartitionState]) -> MetadataImage:
    """The image in which the partitions exist, and those with lower numbers. A topic of the same
    name and another id is removed."""
    named: dict[str, tuple[UUID, int]] = {}
    for state in states:
        _, count = named.get(state.topic, (state.topic_id, 0))
        named[state.topic] = (state.topic_id, max(count, state.partition.partition + 1))
    put = []
    removed = []
    for name, (topic_id, count) in named.items():
        known = image.topic(name)
        if known is not None and topic_id not in (known.topic_id, ZERO_UUID):
            removed.append(known)
            known = None
        known = known or TopicImage(name, topic_id, ())
        missing = range(len(known.partitions), count)
        if missing:
            put.append(known.with_partitions(placeholder(index) for index in missing))
    return image.with_topics(removed=removed).with_topics(put)


def refusals(
    image: MetadataImage, request: LeaderAndIsr, broker_id: int
) -> dict[TopicPartition, ErrorCode]:
    """The parts of a request that are not carried out, as in Kafka. In a full request a name may
    belong to another topic than before: the earlier one was deleted while the broker was away."""
    found = {}
    for state in request.partitions:
        topic = image.topic(state.topic)
        is_another = topic is not None and state.topic_id not in (topic.topic_id, ZERO_UUID)
        if is_another and not request.is_full:
            found[state.replica] = ErrorCode.INCONSISTENT_TOPIC_ID
        elif broker_id not in state.partition.replicas:
            found[state.replica] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return found


def with_roles(
    image: MetadataImage, states: Iterable[PartitionState], broker_id: int
) -> tuple[MetadataImage, list[PartitionState]]:
    """The image with the broker's new roles, and the states that came too late, or again. The
    partitions are known (`with_placeholders`)."""
    changed: dict[str, list[PartitionImage]] = {}
    late = []
    for state in states:
        known = image.topics[state.topic].partitions[state.partition.partition]
        if _is_older(state.partition, known):
            late.append(state)
            continue
        if broker_id in known.replicas and _is_of_same_epoch(state.partition, known):
            late.append(state)
        offline = tuple(
            each for each in known.offline if each in state.partition.replicas and each != broker_id
        )
        changed.setdefault(state.topic, []).append(state.partition._replace(offline=offline))
    return _with_partitions(image, changed), late


def with_metadata(image: MetadataImage, request: UpdateMetadata, broker_id: int) -> MetadataImage:
    """The image with the metadata for clients."""
    deleted = [state for state in request.partitions if state.partition.leader == DELETED]
    present = [state for state in request.partitions if state.partition.leader != DELETED]
    image = _without_topics(image, deleted, {state.topic for state in present})
    image = with_placeholders(image, present)
    changed: dict[str, list[PartitionImage]] = {}
    for state in present:
        known = image.topics[state.topic].partitions[state.partition.partition]
        if _is_older(state.partition, known):
            continue
        told = state.partition
        if _is_reassigned(known, told):
            told = told._replace(adding=known.adding, removing=known.removing)
        if told != known:
            changed.setdefault(state.topic, []).append(told)
    return with_brokers(_with_partitions(image, changed), request.brokers, broker_id)


def without_unnamed(image: MetadataImage, request: UpdateMetadata, broker_id: int) -> MetadataImage:
    """The image without topics that a full command does not name and of which this broker has no
    replica: they were deleted while it was away."""
    named = {state.topic for state in request.partitions if state.partition.leader != DELETED}
    gone = [
        topic
        for topic in image.topics.values()
        if topic.name not in named
        and not any(broker_id in each.replicas for each in topic.partitions)
    ]
    return without_settings(
        image.with_topics(removed=gone),
        [each.name for each in image.configs if each.type is ConfigResourceType.TOPIC],
    )


def with_brokers(
    image: MetadataImage, brokers: Sequence[BrokerRegistration], broker_id: int
) -> MetadataImage:
    """The image with these live brokers. The requests have no broker epochs: the known ones stay;
    this broker's own registration stays as it knows it."""
    live = {}
    for broker in brokers:
        known = image.brokers.get(broker.id)
        if known is not None and (broker.id == broker_id or _is_same(known, broker)):
            broker = known
        live[broker.id] = broker
    own = image.brokers.get(broker_id)
    if own is not None:
        live[broker_id] = own
    if live == image.brokers:
        return image
    return replace(image, brokers=MappingProxyType(live))


def without_stopped(
    image: MetadataImage, replicas: Iterable[StoppedReplica], broker_id: int
) -> tuple[MetadataImage, list[StoppedReplica]]:
    """The image without these replicas of the broker, and the commands that came too late."""
    changed: dict[str, list[PartitionImage]] = {}
    deleted: set[str] = set()
    late = []
    for stopped in replicas:
        known = image.partition(stopped.topic_partition)
        if known is None or broker_id not in known.replicas:
            continue
        if stopped.leader_epoch == EPOCH_DURING_DELETE and stopped.delete:
            deleted.add(stopped.topic_partition.topic)
        elif 0 <= stopped.leader_epoch < known.leader_epoch:
            late.append(stopped)
        elif stopped.delete:
            rest = tuple(each for each in known.replicas if each != broker_id)
            changed.setdefault(stopped.topic_partition.topic, []).append(
                known._replace(replicas=rest)
            )
        else:
            changed.setdefault(stopped.topic_partition.topic, []).append(
                known._replace(leader=NO_LEADER)
            )
    after = _with_partitions(image, changed)
    after = after.with_topics(removed=[after.topics[name] for name in deleted])
    return without_settings(after, deleted), late


def with_orphans(
    image: MetadataImage, orphans: Iterable[TopicPartition], broker_id: int
) -> MetadataImage:
    """The image with offline replicas of deleted topics, so that they can be removed from it: their
    logs are still in this broker's directories."""
    topics: dict[str, list[int]] = {}
    for topic, partition in orphans:
        topics.setdefault(topic, []).append(partition)
    put = []
    for name, indexes in topics.items():
        partitions = [placeholder(index) for index in range(max(indexes) + 1)]
        for index in indexes:
            partitions[index] = partitions[index]._replace(
                replicas=(broker_id,), isr=(broker_id,), offline=(broker_id,)
            )
        put.append(TopicImage(name, ZERO_UUID, tuple(partitions)))
    return image.with_topics(put)


def without_orphans(image: MetadataImage, orphans: Iterable[TopicPartition]) -> MetadataImage:
    """The image without them again, and without the settings of their topics."""
    names = {each.topic for each in orphans}
    gone = [topic for name in names if (topic := image.topic(name)) and topic.topic_id == ZERO_UUID]
    return without_settings(image.with_topics(removed=gone), names)


def without_settings(image: MetadataImage, topics: Iterable[str]) -> MetadataImage:
    """The image without the settings of topics that are not in it."""
    resources = [ConfigResource.topic(name) for name in topics]
    return image.with_configs(
        {each: {} for each in resources if each.name not in image.topics and image.config(each)}
    )


def with_outcome(
    image: MetadataImage, topic_partition: TopicPartition, outcome: PartitionImage
) -> MetadataImage:
    """The image with the controller's response to a leader: leader, ISR and the epochs."""
    known = image.partition(topic_partition)
    if known is None or outcome.partition_epoch <= known.partition_epoch:
        return image
    partition = known._replace(
        leader=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=outcome.isr,
        partition_epoch=outcome.partition_epoch,
    )
    return _with_partitions(image, {topic_partition.topic: [partition]})


def _is_older(state: PartitionImage, known: PartitionImage) -> bool:
    return (state.partition_epoch, state.leader_epoch) < (
        known.partition_epoch,
        known.leader_epoch,
    )


def _is_of_same_epoch(state: PartitionImage, known: PartitionImage) -> bool:
    """Whether the two states have the same leader and leader epoch."""
    return (state.leader, state.leader_epoch) == (known.leader, known.leader_epoch)


def _is_reassigned(known: PartitionImage, told: PartitionImage) -> bool:
    """Whether `told` is the known state without its reassignment, which only replicas are told."""
    is_same = (told.partition_epoch, told.replicas) == (known.partition_epoch, known.replicas)
    return is_same and not told.is_reassigning


def _is_same(known: BrokerRegistration, told: BrokerRegistration) -> bool:
    return told._replace(epoch=known.epoch) == known


def _without_topics(
    image: MetadataImage, deleted: Iterable[PartitionState], made_anew: Collection[str]
) -> MetadataImage:
    """The image without topics, and without their settings, except for names `made_anew`: their
    settings have been read, and belong to the new topic."""
    topics = {}
    names = set()
    for state in deleted:
        known = image.topic(state.topic)
        names.add(state.topic)
        if known is not None and state.topic_id in (known.topic_id, ZERO_UUID):
            topics[state.topic] = known
    return without_settings(image.with_topics(removed=topics.values()), names - set(made_anew))


def _with_partitions(
    image: MetadataImage, changed: dict[str, list[PartitionImage]]
) -> MetadataImage:
    return image.with_topics(
        image.topics[name].with_partitions(map(_without_strangers, partitions))
        for name, partitions in changed.items()
    )


def _without_strangers(partition: PartitionImage) -> PartitionImage:
    """The state with only replicas in its ISR: at the end of a reassignment Kafka's controller
    first removes a replica, and then takes it out of the ISR."""
    isr = tuple(each for each in partition.isr if each in partition.replicas)
    return partition if isr == partition.isr else partition._replace(isr=isr)
