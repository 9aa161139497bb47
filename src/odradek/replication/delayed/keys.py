"""Under what name an operation waits in a purgatory of this floor.

A separate type, although it has the fields of `TopicPartition`: a purgatory's keys may be anything,
and a listing of waiting operations should show what kind of thing they wait for.
"""

from typing import NamedTuple

from odradek.model import TopicPartition


class TopicPartitionOperationKey(NamedTuple):
    """A partition that operations wait for."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def operation_key(topic_partition: TopicPartition) -> TopicPartitionOperationKey:
    """The key under which operations on `topic_partition` are watched."""
    return TopicPartitionOperationKey(topic_partition.topic, topic_partition.partition)
