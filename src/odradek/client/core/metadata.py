"""The metadata a client has of a cluster: an immutable snapshot, replaced by every Metadata answer.

Brokers may be asked in any order, and one that has fallen behind may answer last: a partition's
leader of an older epoch does not replace that of a newer one, unless the topic was recreated.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from uuid import UUID

from odradek.client.addresses import Address
from odradek.client.apis import METADATA
from odradek.client.errors import UnknownTopicOrPartition, error_about, error_for
from odradek.model import NO_LEADER, NO_LEADER_EPOCH, TopicPartition
from odradek.protocol.primitives import Reader, Writer

_NO_OPERATIONS = -(1 << 31)


@dataclass(frozen=True, slots=True)
class Node:
    """A broker: its id and where it listens."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        """The address of the broker."""
        return Address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition: its leader, the leader's epoch, and its replicas."""

    leader: int
    leader_epoch: int = NO_LEADER_EPOCH
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error_code: int = 0


@dataclass(frozen=True)
class TopicMetadata:
    """A topic with its partitions by index; `error_code` says why there are none."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partition_metadata: Mapping[int, PartitionMetadata]
    error_code: int = 0
    authorized_operations: int | None = None

    @cached_property
    def partitions(self) -> list[TopicPartition]:
        """Its partitions, in order."""
        return [TopicPartition(self.name, index) for index in sorted(self.partition_metadata)]

    @cached_property
    def by_index(self) -> Mapping[int, TopicPartition]:
        """Its partitions by their indexes."""
        return {each.partition: each for each in self.partitions}

    @cached_property
    def led_partitions(self) -> list[int]:
        """The indexes of the partitions that have a leader now, in order."""
        return sorted(
            index for index, each in self.partition_metadata.items() if each.leader != NO_LEADER
        )


@dataclass(frozen=True)
class ClusterMetadata:
    """A snapshot: brokers by id and topics by name."""

    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    cluster_id: str | None = None
    controller_id: int = -1
    error_code: int = 0
    throttle_time_ms: int = field(default=0, compare=False)

    @cached_property
    def topics_by_id(self) -> Mapping[UUID, TopicMetadata]:
        """The topics that have an id, by it."""
        return {
            topic.topic_id: topic for topic in self.topics.values() if topic.topic_id is not None
        }

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        """The metadata of a partition."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partition_metadata.get(partition.partition)

    def topic_id(self, topic: str) -> UUID | None:
        """The id of a topic, if it is known and has one."""
        known = self.topics.get(topic)
        return None if known is None else known.topic_id

    def has_other(self, topic: str, topic_id: UUID | None) -> bool:
        """Whether the topic of that name is known to be another than the one with that id: the old
        one was deleted, and this one made anew."""
        return None not in (known := self.topic_id(topic), topic_id) and known != topic_id

    def leader_of(self, partition: TopicPartition) -> Node | None:
        """The broker that leads a partition, if it is known and reachable."""
        found = self.partition(partition)
        return None if found is None else self.nodes.get(found.leader)

    def merged(self, answer: "ClusterMetadata", *, is_complete: bool) -> "ClusterMetadata":
        """This snapshot with an answer worked in; a complete answer lists every topic there is.

        A topic's metadata stays if the response has a transient error for it.
        """
        topics = {} if is_complete else dict(self.topics)
        for name, topic in answer.topics.items():
            known = self.topics.get(name)
            if topic.error_code:
                error = error_for(topic.error_code)
                is_gone = not error.retriable or isinstance(error, UnknownTopicOrPartition)
                topics.pop(name, None)
                if known is not None and not is_gone:
                    topics[name] = known
            elif known is not None and known.topic_id == topic.topic_id:
                topics[name] = replace(
                    topic,
                    partition_metadata=_newest(known.partition_metadata, topic.partition_metadata),
                )
            else:
                topics[name] = topic
        return replace(answer, topics=topics)

    def raise_refused(self, names: Iterable[str]) -> None:
        """Raises what an answer says of a topic for good, such as that its name is illegal.

        Raises:
            KafkaError: of the first such topic.
        """
        for name in names:
            topic = self.topics.get(name)
            if topic is None or not topic.error_code:
                continue
            error = error_about(topic.error_code, name)
            if not error.retriable:
                raise error

    def without_controller(self) -> "ClusterMetadata":
        """This snapshot without a controller: the known one may not be it any more."""
        return replace(self, controller_id=-1)

    def without_topics(self, names: Iterable[str]) -> "ClusterMetadata":
        """This snapshot with some topics forgotten."""
        gone = set(names)
        kept = {name: topic for name, topic in self.topics.items() if name not in gone}
        return replace(self, topics=kept)

    def with_leader(
        self, partition: TopicPartition, topic_id: UUID | None, leader: int, epoch: int
    ) -> "ClusterMetadata":
        """This snapshot with a leader that an answer named (KIP-951), if that is news. The topic is
        the one that was asked about: the epochs of a recreated one are no sequel of its own."""
        topic = self.topics.get(partition.topic)
        known = self.partition(partition)
        if topic is None or known is None or topic.topic_id != topic_id:
            return self
        if epoch <= known.leader_epoch:
            return self
        changed = replace(known, leader=leader, leader_epoch=epoch)
        partitions = {**topic.partition_metadata, partition.partition: changed}
        topics = {**self.topics, topic.name: replace(topic, partition_metadata=partitions)}
        return replace(self, topics=topics)

    def with_nodes(self, nodes: Iterable[Node]) -> "ClusterMetadata":
        """This snapshot with brokers that an answer named."""
        return replace(self, nodes={**self.nodes, **{node.id: node for node in nodes}})


def _newest(
    known: Mapping[int, PartitionMetadata], answered: Mapping[int, PartitionMetadata]
) -> dict[int, PartitionMetadata]:
    return {
        index: known[index]
        if index in known and known[index].leader_epoch > partition.leader_epoch
        else partition
        for index, partition in answered.items()
    }


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions as requests list them."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def encode_metadata_request(
    names: Iterable[str] | None,
    version: int,
    *,
    allow_auto_topic_creation: bool = False,
    include_authorized_operations: bool = False,
) -> bytes:
    """The body of a request for the named topics, or for all."""
    writer = Writer()
    flexible = version >= METADATA.flexible_from
    wanted = None if names is None else list(names)
    writer.array_length(-1 if wanted is None else len(wanted), flexible)
    for name in wanted or ():
        if version >= 10:
            writer.uuid(None)
        writer.nullable_string(name, flexible)
        writer.no_tags(flexible)
    writer.int8(1 if allow_auto_topic_creation else 0)
    if 8 <= version <= 10:
        writer.int8(0)
    if version >= 8:
        writer.int8(1 if include_authorized_operations else 0)
    writer.no_tags(flexible)
    return writer.to_bytes()


def decode_metadata_response(frame: memoryview, version: int, position: int) -> ClusterMetadata:
    """Reads the body of an answer.

    Raises:
        ProtocolError: the body is malformed.
    """
    reader = Reader(frame, position)
    flexible = version >= METADATA.flexible_from
    throttle_time_ms = reader.int32()
    nodes = [_read_node(reader, flexible) for _ in range(reader.array_length(flexible, 10))]
    cluster_id = reader.nullable_string(flexible)
    controller_id = reader.int32()
    count = reader.array_length(flexible, 6)
    topics = [_read_topic(reader, version, flexible) for _ in range(count)]
    if 8 <= version <= 10:
        reader.int32()
    error_code = reader.int16() if version >= 13 else 0
    return ClusterMetadata(
        {node.id: node for node in nodes},
        {topic.name: topic for topic in topics},
        cluster_id,
        controller_id,
        error_code,
        throttle_time_ms,
    )


def _read_node(reader: Reader, flexible: bool) -> Node:
    node_id = reader.int32()
    host = reader.string(flexible)
    port = reader.int32()
    node = Node(node_id, host, port, reader.nullable_string(flexible))
    if flexible:
        reader.skip_tags()
    return node


def _read_topic(reader: Reader, version: int, flexible: bool) -> TopicMetadata:
    error_code = reader.int16()
    name = reader.nullable_string(flexible) or ""
    topic_id = reader.uuid() if version >= 10 else None
    is_internal = reader.boolean()
    count = reader.array_length(flexible, 18)
    partitions = dict([_read_partition(reader, version, flexible) for _ in range(count)])
    operations = reader.int32() if version >= 8 else _NO_OPERATIONS
    if flexible:
        reader.skip_tags()
    return TopicMetadata(
        name,
        topic_id,
        is_internal,
        partitions,
        error_code,
        None if operations == _NO_OPERATIONS else operations,
    )


def _read_partition(reader: Reader, version: int, flexible: bool) -> tuple[int, PartitionMetadata]:
    error_code = reader.int16()
    index = reader.int32()
    leader = reader.int32()
    leader_epoch = reader.int32() if version >= 7 else NO_LEADER_EPOCH
    replicas = _read_ids(reader, flexible)
    in_sync_replicas = _read_ids(reader, flexible)
    offline_replicas = _read_ids(reader, flexible) if version >= 5 else ()
    if flexible:
        reader.skip_tags()
    return index, PartitionMetadata(
        leader, leader_epoch, replicas, in_sync_replicas, offline_replicas, error_code
    )


def _read_ids(reader: Reader, flexible: bool) -> tuple[int, ...]:
    return tuple([reader.int32() for _ in range(reader.array_length(flexible, 4))])
