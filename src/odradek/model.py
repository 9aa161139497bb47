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
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})


class AppendOrigin(Enum):
    """Who wants records in a log, which decides what is asked of them.

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
    """Where a listener can be reached; `listener_name` may differ from the protocol."""

    listener_name: str
    security_protocol: str
    host: str
    port: int


class ResourceType(IntEnum):
    """What permissions are about; Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(IntEnum):
    """What one may be permitted to do with a resource; Kafka's numbers."""

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
