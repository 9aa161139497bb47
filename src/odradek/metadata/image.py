"""The cluster's metadata at one moment: an immutable image, and the delta between two.

Everything that reads metadata reads an image and sees one consistent moment. A change makes
a new image that shares all that stayed, so creating many topics is linear. The delta tells
listeners what to do without comparing images. Nothing here knows where metadata is kept.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from odradek.metadata.shared_map import SharedMap
from odradek.model import INTERNAL_TOPICS, NO_LEADER, EndPoint, TopicPartition

ZERO_UUID: Final = UUID(int=0)
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


class PartitionImage(NamedTuple):
    """The state of one partition.

    `leader_epoch` rises with every election, `partition_epoch` with every change at all.
    `offline` names the replicas whose broker is gone or whose log directory failed.
    """

    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()


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
    """One consistent moment of the metadata. `controller_id` is -1 while there is none."""

    cluster_id: str
    controller_id: int = -1
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    topics: SharedMap[str, TopicImage] = field(default_factory=SharedMap)
    topics_by_id: SharedMap[UUID, TopicImage] = field(default_factory=SharedMap)
    configs: SharedMap[ConfigResource, Mapping[str, str]] = field(default_factory=SharedMap)

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

    def with_brokers(
        self, brokers: Mapping[int, BrokerRegistration], controller_id: int
    ) -> "MetadataImage":
        """This image with other live brokers."""
        return replace(self, brokers=MappingProxyType(dict(brokers)), controller_id=controller_id)


class MetadataDelta:
    """What a change did: the image before, the image after, and what is different.

    A listener that cannot serve a partition (its log does not open) says so by
    `report_offline`; the image that clients get to see lists it without a leader.
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
        brokers_changed: bool = False,
    ) -> None:
        self.previous: Final = previous
        self.image = image
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

    def report_offline(self, topic_partition: TopicPartition, broker_id: int) -> None:
        """Publishes the partition as one whose replica on `broker_id` is offline."""
        self.image = without_replica(self.image, [topic_partition], broker_id)


def without_replica(
    image: MetadataImage, partitions: Iterable[TopicPartition], broker_id: int
) -> MetadataImage:
    """The image in which a broker's replicas are offline and lead nothing; unknown ones are
    passed over."""
    changed: dict[str, TopicImage] = {}
    for topic, index in partitions:
        topic_image = changed.get(topic) or image.topic(topic)
        if topic_image is None or index >= len(topic_image.partitions):
            continue
        partition = _with_offline(topic_image.partitions[index], broker_id)
        changed[topic] = topic_image.with_partitions([partition])
    return image.with_topics(changed.values())


def with_replica(
    image: MetadataImage, partitions: Iterable[TopicPartition], broker_id: int
) -> MetadataImage:
    """The image in which a broker's replicas are back, and lead where nobody does and they are
    in sync; unknown ones are passed over."""
    changed: dict[str, TopicImage] = {}
    for topic, index in partitions:
        topic_image = changed.get(topic) or image.topic(topic)
        if topic_image is not None and index < len(topic_image.partitions):
            partition = _with_online(topic_image.partitions[index], broker_id)
            changed[topic] = topic_image.with_partitions([partition])
    return image.with_topics(changed.values())


def _with_online(partition: PartitionImage, broker_id: int) -> PartitionImage:
    leads = partition.leader == NO_LEADER and broker_id in partition.isr
    offline = tuple(replica for replica in partition.offline if replica != broker_id)
    leader = broker_id if leads else partition.leader
    return partition._replace(leader=leader, offline=offline)


def _with_offline(partition: PartitionImage, broker_id: int) -> PartitionImage:
    leader = NO_LEADER if partition.leader == broker_id else partition.leader
    offline = tuple(sorted({*partition.offline, broker_id}))
    return partition._replace(leader=leader, offline=offline)
