"""Arguments and results of an admin: topics, settings, groups, offsets, as plain values.

Names and numbers are the protocol's. No request is sent here.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from odradek.client.core.metadata import Node
from odradek.model import NO_LEADER_EPOCH, ConfigResourceType, KafkaPrincipal, TopicPartition


class ConfigOperation(IntEnum):
    """The operations on a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ElectionType(IntEnum):
    """The kinds of election."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic, a broker or a group, as the owner of settings; a broker "" is every broker."""

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> "ConfigResource":
        """The settings of a topic."""
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None) -> "ConfigResource":
        """The settings of a broker, or the defaults of all."""
        return cls(ConfigResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def group(cls, group_id: str) -> "ConfigResource":
        """The settings of a group."""
        return cls(ConfigResourceType.GROUP, group_id)


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A possible source of a value."""

    name: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting with its value; `source` and `type` are DescribeConfigs' numbers."""

    name: str
    value: str | None
    source: int
    type: int = 0
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one setting; a `value` of None goes with DELETE."""

    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 is the broker's default; an assignment (brokers by partition, the
    preferred leader first) takes the place of both numbers."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    config: Mapping[str, str | None] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A created topic; brokers before 2.4 return only the name."""

    name: str
    topic_id: UUID | None
    partitions: int
    replication_factor: int
    config: Mapping[str, ConfigEntry]


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new number of partitions of a topic, and the replicas of the new ones."""

    count: int
    assignment: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers of a cluster; `fenced` are registered but not at work."""

    cluster_id: str
    controller_id: int
    nodes: tuple[Node, ...]
    fenced: frozenset[int] = frozenset()
    authorized_operations: int | None = None


@dataclass(frozen=True, slots=True)
class FeatureDescription:
    """The versions of a feature that a broker supports, and that of the whole cluster; 0 says that
    the feature is not in use."""

    min_version: int
    max_version: int
    finalized: int


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A controller in the quorum, or an observer; a timestamp of -1 is not known."""

    node_id: int
    directory_id: UUID | None
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The controllers that keep the metadata; `listeners` of a node are as `NAME://host:port`."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    listeners: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group; `target` is its target assignment, for newer protocols."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    member_epoch: int | None = None
    is_classic: bool | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members and the broker that coordinates it."""

    group_id: str
    type: str
    protocol_type: str
    state: str
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: Node
    group_epoch: int | None = None
    target_epoch: int | None = None
    authorized_operations: int | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The offset that a group has committed for a partition."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """The offset from which a share group hands out a partition; -1 if it has not begun. The lag is
    the number of unfinished records ahead of it, if the broker knows it."""

    start_offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """An answer of ListOffsets; an offset of -1 says that there is none."""

    offset: int
    timestamp: int
    leader_epoch: int = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A copy of a partition in a log directory."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment under way: all replicas, and which of them come and go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of a broker; the totals are -1 where the broker does not tell."""

    path: str
    error_code: int
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer as a partition remembers it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transaction as ListTransactions shows it."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transaction with its partitions; the start is -1 when none is open."""

    transactional_id: str
    coordinator_id: int
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]


class DelegationToken(NamedTuple):
    """A token by which others log in as its owner; `hmac` is its password. Times are milliseconds
    since 1970."""

    token_id: str
    hmac: bytes
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int

    @property
    def password(self) -> str:
        """The password of a login whose name is the token's id."""
        return base64.b64encode(self.hmac).decode()

    def __repr__(self) -> str:
        return f"DelegationToken({self.token_id!r}, {self.owner}, until {self.expiry_ms})"


LEAST_ITERATIONS: Final = 4096


class ScramPassword(NamedTuple):
    """A user's password for one mechanism of SCRAM."""

    name: str
    mechanism: str
    password: str
    iterations: int = LEAST_ITERATIONS

    def __repr__(self) -> str:
        return f"ScramPassword({self.name!r}, {self.mechanism})"
