"""Values that every floor speaks of: partitions, end points, record positions.

Immutable, comparable, hashable, and free of behaviour. They live on the ground floor so
that two floors can talk about the same thing without importing each other.
"""

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
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})


class TopicPartition(NamedTuple):
    """A partition, by the name of its topic. Prints as Kafka prints it: `orders-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class EndPoint(NamedTuple):
    """Where a listener can be reached; `listener_name` may differ from the protocol (R27)."""

    listener_name: str
    security_protocol: str
    host: str
    port: int
