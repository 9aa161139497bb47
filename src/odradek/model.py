"""Values that every floor speaks of: partitions, end points, record positions.

Immutable, comparable, hashable, and free of behaviour. They live on the ground floor so
that two floors can talk about the same thing without importing each other.
"""

from enum import Enum, IntEnum
from typing import Final, NamedTuple

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
UNKNOWN_OFFSET: Final = -1
NO_LEADER: Final = -1
NO_LEADER_EPOCH: Final = -1

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
COMPACTED_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})
INTERNAL_TOPICS: Final = COMPACTED_TOPICS | {SHARE_GROUP_STATE_TOPIC}


class AppendOrigin(Enum):
    """The source of an append, which decides what is checked.

    CLIENT: a producer; everything is checked. COORDINATOR: this broker's own coordinators, for
    records of groups and transactions and for the markers that end transactions; they write
    internal topics and control records, and number nothing. REPLICATION: the leader, whose log
    is copied as it is.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class TransactionResult(IntEnum):
    """How a transaction ended, by the numbers that end markers carry."""

    ABORT = 0
    COMMIT = 1


class TopicPartition(NamedTuple):
    """A partition, by the name of its topic. Prints as Kafka prints it: `orders-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class EndPoint(NamedTuple):
    """The address of a listener; `listener_name` may differ from the protocol."""

    listener_name: str
    security_protocol: str
    host: str
    port: int


class KafkaPrincipal(NamedTuple):
    """The identity at the other end of a connection. Prints as Kafka prints it: `User:alice`."""

    principal_type: str
    name: str

    def __str__(self) -> str:
        return f"{self.principal_type}:{self.name}"


USER_TYPE: Final = "User"
ANONYMOUS: Final = KafkaPrincipal(USER_TYPE, "ANONYMOUS")
"""The principal of every connection that has not authenticated."""


class ResourceType(IntEnum):
    """The kind of resource that permissions apply to; Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    __hash__ = int.__hash__  # that of Enum is slow, and these are keys


class ConfigResourceType(IntEnum):
    """The kind of resource that settings belong to; Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
    # Only the store uses it: a request has 8 bits for this field and cannot carry it.
    USER = 1024
    DELEGATION_TOKEN = 2048


class AclOperation(IntEnum):
    """The operation on a resource that a permission allows or denies; Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    __hash__ = int.__hash__  # that of Enum is slow, and these are keys
