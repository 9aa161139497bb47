"""The cluster's metadata at one moment: an immutable image, and the delta between two.

Everything that reads metadata reads an image and sees one consistent moment. A change makes
a new image that shares all that stayed, so creating many topics is linear. The delta tells
listeners what to do without comparing images. Nothing here knows where metadata is kept.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from odradek.config.features import DEFAULT_LEVELS
from odradek.metadata.shared_map import SharedMap
from odradek.model import INTERNAL_TOPICS, NO_LEADER, EndPoint, TopicPartition

ZERO_UUID: Final = UUID(int=0)
NO_CONTROLLER: Final = -1
_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


class ResourceType(IntEnum):
    """Kinds of things that have settings; the numbers are the protocol's."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A thing with settings. A broker of the empty name stands for all brokers."""

    type: ResourceType
    name: str


class BrokerRegistration(NamedTuple):
    """A live broker; `epoch` rises with every registration and fences earlier ones."""

    id: int
    endpoints: tuple[EndPoint, ...]
    rack: str | None
    epoch: int

    def endpoint(self, listener_name: str) -> EndPoint | None:
        """The end point of a listener's name, if the broker has it."""
        for endpoint in self.endpoints:
            if endpoint.listener_name == listener_name:
                return endpoint
        return None


class ReplicaAssignment(NamedTuple):
    """The replicas of a partition, and which of them come and go; see `PartitionImage`."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class PartitionImage(NamedTuple):
    """The state of one partition.

    `leader_epoch` rises with every election, `partition_epoch` with every change at all.
    `offline` names the replicas whose broker is gone or whose log directory failed. While the
    partition is being reassigned, `adding` are the replicas that have yet to catch up, `removing`
    those that go when they have; both are among the `replicas`.
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
        """Its replicas, with those that come and go."""
        return ReplicaAssignment(self.replicas, self.adding, self.removing)

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas come or go."""
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
        partitions = {image.partition: image for image in self.partitions}
        partitions.update((image.partition, image) for image in changed)
        ordered = tuple(partitions[index] for index in sorted(partitions))
        assert [image.partition for image in ordered] == list(range(len(ordered))), ordered
        return self._replace(partitions=ordered)


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """One consistent moment of the metadata. `controller_id` is -1 while there is none;
    `controller_epoch` rises with every controller and fences the earlier ones. Of `features` are
    the finalized levels, those that are in use; `features_epoch` rises with every change of them.
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
        """What was set for a resource at run time; empty when nothing was."""
        return self.configs.get(resource, _NO_SETTINGS)

    def topic_config(self, name: str) -> Mapping[str, str]:
        """What the topic itself sets."""
        return self.config(ConfigResource(ResourceType.TOPIC, name))

    def with_topics(
        self, put: Iterable[TopicImage] = (), removed: Iterable[TopicImage] = ()
    ) -> "MetadataImage":
        """This image with topics added or replaced, and others gone."""
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
    """What a change did: the image before, the image after, and what is different. Immutable."""

    def __init__(
        self,
        previous: MetadataImage,
        image: MetadataImage,
        *,
        added: Iterable[TopicImage] = (),
        removed: Iterable[TopicImage] = (),
        changed: Iterable[TopicImage] = (),
        configs: Iterable[ConfigResource] = (),
        brokers_changed: bool = False,
    ) -> None:
        self.previous: Final = previous
        self.image: Final = image
        self.topics_added: Final = tuple(added)
        self.topics_removed: Final = tuple(removed)
        self.topics_changed: Final = tuple(changed)
        self.configs_changed: Final = frozenset(configs)
        self.brokers_changed: Final = brokers_changed

    def partitions(self) -> Iterator[tuple[TopicImage, PartitionImage]]:
        """Every partition that is new or has a new state, with its topic."""
        for topic in self.topics_added:
            for partition in topic.partitions:
                yield topic, partition
        for topic in self.topics_changed:
            before = self.previous.topics[topic.name].partitions
            for partition in topic.partitions:
                index = partition.partition
                if index >= len(before) or before[index] != partition:
                    yield topic, partition

    def without_replicas(
        self, partitions: Collection[TopicPartition], broker_id: int
    ) -> "MetadataDelta":
        """The same change, but that replicas of `broker_id` cannot be had."""
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
            brokers_changed=self.brokers_changed,
        )


def without_replicas(
    image: MetadataImage, partitions: Iterable[TopicPartition], broker_id: int
) -> MetadataImage:
    """The image in which a broker's replicas are offline and lead nothing; unknown ones are
    passed over."""
    return _with_each(image, partitions, lambda partition: _with_offline(partition, broker_id))


def with_replicas(
    image: MetadataImage, partitions: Iterable[TopicPartition], broker_id: int
) -> MetadataImage:
    """The image in which a broker's replicas are back, leading nothing yet; unknown ones are
    passed over."""
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
