"""The port to the metadata store: an embedded database, or ZooKeeper for a cluster.

A store is one broker's view of it: the broker's session, the image that it acts on, its listeners.
Every operation that changes something takes `on_done`, since a commit blocks and is done elsewhere:
it is called exactly once, on the loop, with a result or a `BrokerError`. When it is called, the
change is durable, the listeners have acted on it, and its image is published. Operations take
effect one after another in the order of the calls. The store enforces what must hold for every
request (names are unique, epochs match, the requester is alive); the controller decides whether a
request is sensible.

A broker is alive from `register_broker` until its session ends: by `close`, or because the store
got no heartbeat in time. The store elects one of the live brokers as controller, each under the
next `controller_epoch`. Any live broker may request topics; if the controller cannot be reached,
and for a broker whose session is over, the answer is NOT_CONTROLLER. The controller decides who
leads a partition, never the store.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from odradek.acl import AclBinding
from odradek.client_quota import QuotaEntity, QuotaKey
from odradek.errors import BrokerError, EnvironmentFailure
from odradek.metadata.image import (
    BrokerRegistration,
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    ReplicaAssignment,
    TopicImage,
)
from odradek.model import EndPoint, TopicPartition

T = TypeVar("T")
OnDone: TypeAlias = Callable[[T | BrokerError], None]
Assignment: TypeAlias = tuple[tuple[int, ...], ...]
"""The replicas of partition 0, 1, ..., the preferred leader first."""


MetadataListener: TypeAlias = Callable[[MetadataDelta], Collection[TopicPartition]]
"""Acts on a change; answers the replicas of its broker that cannot be served."""


class ListenerStage(IntEnum):
    """When a listener acts on a change: all of one stage before any of the next."""

    SETTINGS = 0
    REPLICAS = 1
    COORDINATORS = 2
    CONTROLLER = 3


class MetadataStoreError(EnvironmentFailure):
    """The store cannot be used: its file is corrupt, foreign, in use or not writable."""


class NewTopic(NamedTuple):
    """A topic to create, with everything decided but its id."""

    name: str
    assignment: Assignment
    configs: Mapping[str, str]


class NewPartitions(NamedTuple):
    """Partitions to add behind the `first` ones that the topic is thought to have."""

    name: str
    first: int
    assignment: Assignment


class PartitionChange(NamedTuple):
    """A new leader, ISR or, where it is named, assignment; refused when the partition's epoch is
    no longer `partition_epoch`."""

    topic_partition: TopicPartition
    partition_epoch: int
    leader: int
    isr: tuple[int, ...]
    assignment: ReplicaAssignment | None = None


class MetadataStore(ABC):
    """Where metadata is kept."""

    @abstractmethod
    def load(self) -> MetadataImage:
        """Opens the store and publishes what it holds; blocks, for use at the start.

        Raises:
            MetadataStoreError: the store cannot be used.
        """

    @property
    @abstractmethod
    def deleted_topics(self) -> frozenset[UUID]:
        """Topics that were deleted before the start, and whose logs may be left after a crash."""

    @abstractmethod
    def forget_deleted_topics(self) -> None:
        """Forgets the `deleted_topics`, which have no logs any more; does not wait for the
        commit."""

    @abstractmethod
    def close(self) -> None:
        """Ends the session and closes the store; operations that have not begun are answered with
        an error."""

    @abstractmethod
    def subscribe(self, stage: ListenerStage, listener: MetadataListener) -> None:
        """Calls `listener` with every committed change, before its image is published: stage by
        stage, within one in the order of subscription. Replicas that a listener cannot serve are
        offline for the later stages and for clients."""

    @abstractmethod
    def on_session_lost(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when the broker's session is over: it has to stop leading before it
        answers anything else, and to register again."""

    @abstractmethod
    def register_broker(
        self,
        broker_id: int,
        endpoints: Sequence[EndPoint],
        rack: str | None,
        on_done: OnDone[BrokerRegistration],
    ) -> None:
        """Begins a session: the broker is alive under a new epoch, and the controller if there is
        none. An id with another live session answers DUPLICATE_BROKER_REGISTRATION."""

    @abstractmethod
    def sync(self, on_done: OnDone[None]) -> None:
        """Answers when everything that was begun before, by listeners too, has taken effect."""

    @abstractmethod
    def create_topics(
        self, topics: Sequence[NewTopic], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Creates topics; a name that is taken answers TOPIC_ALREADY_EXISTS in its place."""

    @abstractmethod
    def delete_topics(
        self, topic_ids: Sequence[UUID], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Deletes topics and their settings; an id that is gone answers UNKNOWN_TOPIC_ID."""

    @abstractmethod
    def create_partitions(
        self, additions: Sequence[NewPartitions], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Adds partitions to topics."""

    @abstractmethod
    def change_partitions(
        self,
        changes: Sequence[PartitionChange],
        on_done: OnDone[list[PartitionImage | BrokerError]],
    ) -> None:
        """Changes leaders, in-sync replicas and assignments; stale ones answer
        INVALID_UPDATE_VERSION. A new leader, or a replica less, is a new leader epoch."""

    @abstractmethod
    def alter_configs(
        self,
        altered: Mapping[ConfigResource, Mapping[str, str | None]],
        on_done: OnDone[None],
    ) -> None:
        """Sets and, where the value is None, deletes settings of resources."""

    @abstractmethod
    def alter_acls(
        self, added: Collection[AclBinding], removed: Collection[AclBinding], on_done: OnDone[None]
    ) -> None:
        """Adds and removes ACLs; existing and missing ones stay as they are."""

    @abstractmethod
    def alter_client_quotas(
        self,
        altered: Mapping[QuotaEntity, Mapping[QuotaKey, float | None]],
        on_done: OnDone[None],
    ) -> None:
        """Sets quotas of clients and, where the value is None, takes them away."""

    @abstractmethod
    def update_features(self, levels: Mapping[str, int], on_done: OnDone[None]) -> None:
        """Finalizes features at other levels for the whole cluster; level 0 switches a feature
        off."""

    @abstractmethod
    def allocate_producer_ids(self, count: int, on_done: OnDone[range]) -> None:
        """Takes a block of producer ids, each of which is given out only once."""

    @abstractmethod
    def report_offline(self, partitions: Sequence[TopicPartition], broker_id: int) -> None:
        """Publishes replicas as offline after their log directory failed. This is not stored: the
        next start tries the directory again."""

    @abstractmethod
    def report_online(self, partitions: Sequence[TopicPartition], broker_id: int) -> None:
        """Offers offline replicas to the listeners again, and publishes the outcome. Unknown ones
        are ignored."""
