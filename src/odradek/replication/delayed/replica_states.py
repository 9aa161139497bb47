"""The port through which a delayed operation looks at the replicas that it waits for.

Delayed operations hold no partitions: leadership may move, a topic may be deleted, a
directory may fail while they wait. Each check asks again by name, and a failure is the
answer to the question ("it moved away"), so every method raises `BrokerError`:
UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR,
FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
"""

from typing import NamedTuple

from mypy_extensions import mypyc_attr

from odradek.model import TopicPartition
from odradek.replication.fetch import FetchInfo, FetchParams, FetchResult
from odradek.storage.log.offset_metadata import LogOffsetMetadata


class EpochEndOffset(NamedTuple):
    """Where a leader epoch ends; (-1, -1) when it is not known."""

    leader_epoch: int
    end_offset: int


class ReadableEnd:
    """The end of what a reader may see, with its position in the log, and the log end."""

    def __init__(self, offset: LogOffsetMetadata, log_end_offset: int) -> None:
        self.offset = offset
        self.log_end_offset = log_end_offset


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplicaStates:
    """The questions delayed operations ask: `PartitionTable` answers them, and fakes do in
    tests."""

    def readable_end(self, info: FetchInfo, params: FetchParams) -> ReadableEnd:
        """The end of the reader's view of the partition."""
        raise NotImplementedError

    def diverging_end(self, info: FetchInfo, params: FetchParams) -> EpochEndOffset | None:
        """The point at which the reader's history diverges from ours, if it does."""
        raise NotImplementedError

    def is_throttled(self, topic_partition: TopicPartition, params: FetchParams) -> bool:
        """Whether the follower that fetches is being held back by a quota at the moment."""
        raise NotImplementedError

    def read(self, params: FetchParams, infos: list[FetchInfo]) -> list[FetchResult]:
        """Reads all partitions as they are now; failures are in the results."""
        raise NotImplementedError

    def has_enough_replicas(self, topic_partition: TopicPartition, required_offset: int) -> bool:
        """Whether every in-sync replica has everything below `required_offset`.

        Raises:
            BrokerError: NOT_ENOUGH_REPLICAS_AFTER_APPEND when they have, but are fewer than
                `min.insync.replicas` by now; besides the failures of the module's docstring.
        """
        raise NotImplementedError

    def low_watermark(self, topic_partition: TopicPartition) -> int:
        """The smallest log start offset of the partition's live replicas."""
        raise NotImplementedError
