"""Where the partitions of running brokers begin and end: asked of the logs, without a socket."""

from collections.abc import Iterable, Mapping

from odradek.model import NO_LEADER_EPOCH, UNKNOWN_OFFSET, TopicPartition
from odradek.replication.fetch import ISOLATION_HIGH_WATERMARK, ISOLATION_TXN_COMMITTED
from odradek.replication.offset_lookup import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    find_offset,
)
from odradek.server.in_process.calls.running_brokers import RunningBrokers
from odradek.tables.plan.bounds import Bounds
from odradek.tables.plan.identity import Identity
from odradek.tables.plan.offsets import PartitionOffsets
from odradek.tables.plan.options import TopicSelection


class RunningBounds(Bounds):
    """For their loop. Records are read at once, so there are no ids to compare later."""

    def __init__(self, brokers: RunningBrokers, read_committed: bool) -> None:
        self._brokers = brokers
        self._isolation = ISOLATION_TXN_COMMITTED if read_committed else ISOLATION_HIGH_WATERMARK

    def partitions(self, selection: TopicSelection) -> list[TopicPartition]:
        """The partitions of the topics that are named, or those that are assigned."""
        if selection.assignment:
            return list(selection.assignment)
        return [
            TopicPartition(name, index)
            for name in selection.names
            for index in range(len(self._brokers.topic(name).partitions))
        ]

    def earliest(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Log start offsets."""
        return {part: self._find(part, EARLIEST_TIMESTAMP) for part in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """High watermarks, or last stable offsets for committed reads."""
        return {part: self._find(part, LATEST_TIMESTAMP) for part in partitions}

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Looked up in the logs."""
        found = {part: self._find(part, time_ms) for part, time_ms in times_ms.items()}
        return {p: None if offset == UNKNOWN_OFFSET else offset for p, offset in found.items()}

    def identity(self, _: Iterable[str]) -> Identity:
        """Does nothing: no identity can change before the read."""
        return Identity()

    def close(self) -> None:
        """Does nothing: nothing is held."""

    def _find(self, part: TopicPartition, timestamp: int) -> int:
        partition = self._brokers.leader(part).replicas.partition(part)
        return find_offset(partition, timestamp, self._isolation, NO_LEADER_EPOCH, True).offset
