"""Which partitions this broker hosts, and the right error for those that it does not."""

from collections.abc import Callable, Iterator

from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.replication.partition import Partition


class PartitionTable:
    """The partitions with a replica here.

    `exists` tells a partition of the cluster without a replica here (the client has old
    metadata) from one that does not exist.
    """

    def __init__(self, exists: Callable[[TopicPartition], bool]) -> None:
        self._partitions: dict[TopicPartition, Partition] = {}
        self._exists = exists

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def find(self, topic_partition: TopicPartition) -> Partition | None:
        """The partition, if it is hosted here."""
        return self._partitions.get(topic_partition)

    def get(self, topic_partition: TopicPartition) -> Partition:
        """The partition.

        Raises:
            BrokerError: NOT_LEADER_OR_FOLLOWER when only other brokers host it,
                UNKNOWN_TOPIC_OR_PARTITION when nobody does.
        """
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            return partition
        if self._exists(topic_partition):
            raise BrokerError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic_partition} has no replica here"
            )
        raise BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic_partition}"
        )

    def add(self, partition: Partition) -> None:
        """Takes a partition in; it must not be hosted yet."""
        key = partition.topic_partition
        assert key not in self._partitions, f"{key} is hosted already"
        self._partitions[key] = partition

    def remove(self, topic_partition: TopicPartition) -> Partition | None:
        """Lets a partition go; returns it, if it was there."""
        return self._partitions.pop(topic_partition, None)

    def in_directory(self, directory: str) -> list[Partition]:
        """The partitions whose logs lie in one log directory."""
        return [
            partition
            for partition in self._partitions.values()
            if partition.log is not None and partition.log.log_directory.path == directory
        ]
