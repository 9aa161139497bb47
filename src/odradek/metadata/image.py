"""The cluster's metadata at one moment: an immutable image, and the delta between two.

Everything that reads metadata reads an image and sees one consistent moment. A change makes a new
image that shares all unchanged parts, so creating many topics is linear. The delta tells listeners
what to do without comparing images. This module does not know where metadata is stored.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from odradek.acl import AccessControlEntry, ResourcePattern
from odradek.client_quota import QuotaEntity, Quotas
from odradek.config.features import DEFAULT_LEVELS
from odradek.metadata.shared_map import SharedMap
from odradek.model import INTERNAL_TOPICS, NO_LEADER, ConfigResourceType, EndPoint, TopicPartition

ZERO_UUID: Final = UUID(int=0)
NO_CONTROLLER: Final = -1
_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


class ConfigResource(NamedTuple):
    """A thing with settings. A broker of the empty name stands for all brokers."""

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> "ConfigResource":
        """The settings of a topic."""
        return cls(ConfigResourceType.TOPIC, name)


class BrokerRegistration(NamedTuple):
    """A live broker; `epoch` rises with every registration and fences earlier ones. With
    `is_missing_logs` it could not read all its log directories when it started, so it does not know
    which logs it has; only the metadata store keeps this."""

    id: int
    endpoints: tuple[EndPoint, ...]
    rack: str | None
    epoch: int
    is_missing_logs: bool = False

    def endpoint(self, listener_name: str) -> EndPoint | None:
        """The end point of a listener's name, if the broker has it."""
        for endpoint in self.endpoints:
            if endpoint.listener_name == listener_name:
                return endpoint
        return None


class ReplicaAssignment(NamedTuple):
    """The replicas of a partition, with those that a reassignment adds and removes; see
    `PartitionImage`."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class PartitionImage(NamedTuple):
    """The state of one partition.

    `leader_epoch` rises with every election, `partition_epoch` with every change at all.
    `offline` names the replicas whose broker is gone or whose log directory failed. While the
    partition is being reassigned, `adding` are the replicas that have yet to catch up, `removing`
    those that are removed after that; both are among the `replicas`.
    """

    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def assignment(self) -> ReplicaAssignment:
        """The replicas, with those that are added and removed."""
        return ReplicaAssignment(self.replicas, self.adding, self.removing)

    @property
    def preferred_leader(self) -> int:
        """The first replica. A partition may have none: it is not known yet, or a tool has written
        so into ZooKeeper."""
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.adding or self.removing)


class TopicImage(NamedTuple):
    """A topic and its partitions; `partitions[i].partition == i`."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]

    @property
    def is_internal(self) -> bool:
        """Whether the topic is the broker's own."""
        return self.name in INTERNAL_TOPICS

    def with_partitions(self, changed: Iterable[PartitionImage]) -> "TopicImage":
        """The topic with some partitions replaced or added at the end."""
        partitions = list(self.partitions)
        for image in sorted(changed):
            if image.partition < len(partitions):
                partitions[image.partition] = image
            else:
                assert image.partition == len(partitions), f"{len(partitions)} come before {image}"
                partitions.append(image)
        return self._replace(partitions=tuple(partitions))


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The metadata at one consistent moment. `controller_id` is -1 while there is none;
    `controller_epoch` rises with every controller and fences the earlier ones. `features` are the
    finalized levels; `features_epoch` rises with every change of them.
    """

    cluster_id: str
    controller_id: int = NO_CONTROLLER
    controller_epoch: int = 0
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    topics: SharedMap[str, TopicImage] = field(default_factory=SharedMap)
    topics_by_id: SharedMap[UUID, TopicImage] = field(default_factory=SharedMap)
    configs: SharedMap[ConfigResource, Mapping[str, str]] = field(default_factory=SharedMap)
    features: Mapping[str, int] = field(default_factory=lambda: DEFAULT_LEVELS)
    features_epoch: int = 0
    acls: SharedMap[ResourcePattern, frozenset[AccessControlEntry]] = field(
        default_factory=SharedMap
    )
    client_quotas: SharedMap[QuotaEntity, Quotas] = field(default_factory=SharedMap)

    def topic(self, name: str) -> TopicImage | None:
        """The topic of that name, if there is one."""
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        """The topic of that id, if there is one."""
        return self.topics_by_id.get(topic_id)

    def partition(self, topic_partition: TopicPartition) -> PartitionImage | None:
        """The partition, if it exists."""
        topic = self.topics.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    def config(self, resource: ConfigResource) -> Mapping[str, str]:
        """The settings of a resource that were set at run time; empty when none were."""
        return self.configs.get(resource, _NO_SETTINGS)

    def topic_config(self, name: str) -> Mapping[str, str]:
        """The topic's own settings."""
        return self.config(ConfigResource.topic(name))

    def with_topics(
        self, put: Iterable[TopicImage] = (), removed: Iterable[TopicImage] = ()
    ) -> "MetadataImage":
        """This image with topics added or replaced, and others removed."""
        put, removed = tuple(put), tuple(removed)
        if not put and not removed:
            return self
        return replace(
            self,
            topics=self.topics.replaced(
                {topic.name: topic for topic in put}, (topic.name for topic in removed)
            ),
            topics_by_id=self.topics_by_id.replaced(
                {topic.topic_id: topic for topic in put}, (topic.topic_id for topic in removed)
            ),
        )

    def with_configs(self, configs: Mapping[ConfigResource, Mapping[str, str]]) -> "MetadataImage":
        """This image with the settings of some resources replaced; empty ones are dropped."""
        if not configs:
            return self
        put = {
            resource: MappingProxyType(dict(settings))
            for resource, settings in configs.items()
            if settings
        }
        empty = [resource for resource, settings in configs.items() if not settings]
        return replace(self, configs=self.configs.replaced(put, empty))

    def feature_level(self, name: str) -> int:
        """The finalized level of a feature; 0 when it is not in use."""
        return self.features.get(name, 0)

    def with_features(self, levels: Mapping[str, int]) -> "MetadataImage":
        """This image with some features at other levels, under the next epoch."""
        merged = {**self.features, **levels}
        in_use = {name: level for name, level in merged.items() if level}
        epoch = self.features_epoch + 1
        return replace(self, features=MappingProxyType(in_use), features_epoch=epoch)

    def with_acls(
        self, acls: Mapping[ResourcePattern, frozenset[AccessControlEntry]]
    ) -> "MetadataImage":
        """This image with the ACLs on some patterns replaced; empty ones are dropped."""
        put = {pattern: entries for pattern, entries in acls.items() if entries}
        return replace(self, acls=self.acls.replaced(put, acls.keys() - put.keys()))

    def with_client_quotas(self, quotas: Mapping[QuotaEntity, Quotas]) -> "MetadataImage":
        """This image with the quotas of some entities replaced; empty ones are dropped."""
        put = {entity: values for entity, values in quotas.items() if values}
        gone = quotas.keys() - put.keys()
        return replace(self, client_quotas=self.client_quotas.replaced(put, gone))

    def with_brokers(
        self, brokers: Mapping[int, BrokerRegistration], controller_id: int
    ) -> "MetadataImage":
        """This image with other live brokers; another controller has the next epoch."""
        changes = controller_id not in (NO_CONTROLLER, self.controller_id)
        return replace(
            self,
            brokers=MappingProxyType(dict(brokers)),
            controller_id=controller_id,
            controller_epoch=self.controller_epoch + changes,
        )


class MetadataDelta:
    """A change: the image before, the image after, and what is different. Immutable.

    Removed topics `are_deleted`, unless they are only missing from the metadata. A topic whose name
    is `replaced` was removed because another one has the name; a deletion of it is not known.
    Topics that were `found` are not made by the change, though they or some of their partitions are
    new in the image: there may be logs of them.
    """

    def __init__(
        self,
        previous: MetadataImage,
        image: MetadataImage,
        *,
        added: Iterable[TopicImage] = (),
        removed: Iterable[TopicImage] = (),
        changed: Iterable[TopicImage] = (),
        configs: Iterable[ConfigResource] = (),
        acls: Iterable[ResourcePattern] = (),
        client_quotas: Iterable[QuotaEntity] = (),
        brokers_changed: bool = False,
        are_deleted: bool = True,
        replaced: frozenset[str] | None = None,
        found: Iterable[str] = (),
    ) -> None:
        self.previous: Final = previous
        self.image: Final = image
        self.topics_added: Final = tuple(added)
        self.topics_removed: Final = tuple(removed)
        self.topics_changed: Final = tuple(changed)
        self.configs_changed: Final = frozenset(configs)
        self.acls_changed: Final = frozenset(acls)
        self.client_quotas_changed: Final = frozenset(client_quotas)
        self.brokers_changed: Final = brokers_changed
        self.are_deleted: Final = are_deleted
        if replaced is None:
            new = {topic.name for topic in self.topics_added}
            replaced = frozenset(topic.name for topic in self.topics_removed if topic.name in new)
        self.replaced: Final = replaced
        self.found: Final = frozenset(found)
        # Set if the change is a slice of a large one, which is too expensive to compare as a whole.
        self._partitions: Sequence[tuple[str, PartitionImage]] | None = None

    def partitions(self) -> Iterator[tuple[TopicImage, PartitionImage]]:
        """Every partition that is new or has a new state, with its topic."""
        if self._partitions is not None:
            for name, partition in self._partitions:
                yield self.image.topics[name], partition
            return
        for topic in self.topics_added:
            for partition in topic.partitions:
                yield topic, partition
        for topic in self.topics_changed:
            before = self.previous.topics[topic.name].partitions
            for partition in topic.partitions:
                index = partition.partition
                if index >= len(before) or before[index] != partition:
                    yield topic, partition

    def is_new_replica(self, topic: TopicImage, partition: PartitionImage, broker_id: int) -> bool:
        """Whether a broker had no replica of a partition before the change; otherwise a failed disk
        of it may have the log. A partition without known replicas may have been there."""
        known = self.previous.topic(topic.name)
        where = TopicPartition(topic.name, partition.partition)
        is_same = known is not None and known.topic_id == topic.topic_id
        before = self.previous.partition(where) if is_same else None
        if before is None:
            return topic.name not in self.found
        return bool(before.replicas) and broker_id not in before.replicas

    def in_slices(self, size: int) -> "Iterator[MetadataDelta]":
        """The same change in steps of at most `size` partitions, those of removed topics first; the
        first step also has everything else."""
        changed = [(topic.name, partition) for topic, partition in self.partitions()]
        if len(changed) + sum(len(topic.partitions) for topic in self.topics_removed) <= size:
            yield self
            return
        known = [self.previous.topics[topic.name] for topic in self.topics_changed]
        before = self.image.with_topics((*known, *self.topics_removed), self.topics_added)
        is_first = True
        for step in chain(
            _removals(before, self.topics_removed, size),
            self._changes(before.with_topics(removed=self.topics_removed), changed, size),
        ):
            whole = MetadataDelta(
                self.previous if is_first else before,
                step.image,
                added=step.topics_added,
                removed=step.topics_removed,
                changed=step.topics_changed,
                configs=self.configs_changed if is_first else (),
                acls=self.acls_changed if is_first else (),
                client_quotas=self.client_quotas_changed if is_first else (),
                brokers_changed=self.brokers_changed and is_first,
                are_deleted=self.are_deleted,
                replaced=self.replaced,
                found=self.found,
            )
            whole._partitions = step._partitions
            yield whole
            before, is_first = step.image, False

    def _changes(
        self, before: MetadataImage, changed: Sequence[tuple[str, PartitionImage]], size: int
    ) -> "Iterator[MetadataDelta]":
        """The steps of partitions that are new or have a new state."""
        added = {topic.name: topic for topic in self.topics_added}
        for start in range(0, len(changed), size):
            steps: dict[str, list[PartitionImage]] = {}
            for name, partition in changed[start : start + size]:
                steps.setdefault(name, []).append(partition)
            put = {
                name: (before.topic(name) or added[name]._replace(partitions=())).with_partitions(
                    partitions
                )
                for name, partitions in steps.items()
            }
            step = MetadataDelta(
                before,
                before.with_topics(put.values()),
                added=[topic for name, topic in put.items() if before.topic(name) is None],
                changed=[topic for name, topic in put.items() if before.topic(name) is not None],
            )
            step._partitions = changed[start : start + size]
            yield step
            before = step.image

    def without_replicas(
        self, partitions: Collection[TopicPartition], broker_id: int
    ) -> "MetadataDelta":
        """The same change, with replicas of `broker_id` offline."""
        if not partitions:
            return self
        image = without_replicas(self.image, partitions, broker_id)
        return MetadataDelta(
            self.previous,
            image,
            added=_as_in(image, self.topics_added),
            removed=self.topics_removed,
            changed=_as_in(image, self.topics_changed),
            configs=self.configs_changed,
            acls=self.acls_changed,
            client_quotas=self.client_quotas_changed,
            brokers_changed=self.brokers_changed,
            are_deleted=self.are_deleted,
            replaced=self.replaced,
            found=self.found,
        )


def _removals(
    before: MetadataImage, topics: Iterable[TopicImage], size: int
) -> Iterator[MetadataDelta]:
    """The steps that remove topics, of a large one its last partitions first: a change that is cut
    short leaves the others, which are still to be removed."""
    after = before
    going: list[TopicImage] = []
    room = size
    for topic in topics:
        rest = topic
        while rest is topic or rest.partitions:
            left = rest.partitions[:-room] if len(rest.partitions) > room else ()
            going.append(topic._replace(partitions=rest.partitions[len(left) :]))
            room -= len(going[-1].partitions)
            rest = topic._replace(partitions=left)
            after = after.with_topics([rest]) if left else after.with_topics(removed=[topic])
            if room == 0:
                yield MetadataDelta(before, after, removed=going)
                before, going, room = after, [], size
    if going:
        yield MetadataDelta(before, after, removed=going)


def without_replicas(
    image: MetadataImage, partitions: Iterable[TopicPartition], broker_id: int
) -> MetadataImage:
    """The image in which a broker's replicas are offline and lead nothing; unknown ones are
    ignored."""
    return _with_each(image, partitions, lambda partition: _with_offline(partition, broker_id))


def with_replicas(
    image: MetadataImage, partitions: Iterable[TopicPartition], broker_id: int
) -> MetadataImage:
    """The image in which a broker's replicas are back, leading nothing yet; unknown ones are
    ignored."""
    return _with_each(image, partitions, lambda partition: _with_online(partition, broker_id))


def _with_each(
    image: MetadataImage,
    partitions: Iterable[TopicPartition],
    change: Callable[[PartitionImage], PartitionImage],
) -> MetadataImage:
    changed: dict[str, TopicImage] = {}
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(index)
    for topic, wanted in indexes.items():
        topic_image = image.topic(topic)
        if topic_image is not None:
            there = [index for index in wanted if index < len(topic_image.partitions)]
            changed[topic] = topic_image.with_partitions(
                change(topic_image.partitions[index]) for index in there
            )
    return image.with_topics(changed.values())


def _as_in(image: MetadataImage, topics: Iterable[TopicImage]) -> list[TopicImage]:
    return [image.topics[topic.name] for topic in topics]


def _with_online(partition: PartitionImage, broker_id: int) -> PartitionImage:
    offline = tuple(replica for replica in partition.offline if replica != broker_id)
    return partition._replace(offline=offline)


def _with_offline(partition: PartitionImage, broker_id: int) -> PartitionImage:
    leader = NO_LEADER if partition.leader == broker_id else partition.leader
    offline = tuple(sorted({*partition.offline, broker_id}))
    return partition._replace(leader=leader, offline=offline)
