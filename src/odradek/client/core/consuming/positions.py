"""What a consumer reads and where it stands: one state a partition.

position None    not known yet: the committed offset is asked for, or `reset` says where to
position n       the next record to be given out is n
chunk            what was fetched and not given out yet
following        the chunk behind it, fetched meanwhile; nothing more is fetched while it is there
"""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from odradek.client.core.consuming.fetched import FetchedChunk
from odradek.model import TopicPartition

PREFERRED_REPLICA_AGE_MS: Final = 300_000


class PartitionPosition:
    """Where a consumer stands in one partition that it has."""

    def __init__(self) -> None:
        self.position: int | None = None
        self.reset: int | None = None  # a timestamp, or LATEST or EARLIEST, to go to
        self.is_paused = False
        self.is_revoking = False
        self.chunk: FetchedChunk | None = None
        self.following: FetchedChunk | None = None
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.preferred_replica: int | None = None
        self.preferred_until_ms = 0
        self.not_before_ms = 0
        self.topic_id: UUID | None = None  # of the topic that `position` is in, as far as known

    @property
    def is_withheld(self) -> bool:
        """Whether nothing of it is to be given out at present."""
        return self.is_paused or self.is_revoking

    @property
    def is_full(self) -> bool:
        """Whether it has as much as may be fetched ahead."""
        return self.following is not None

    @property
    def fetch_offset(self) -> int | None:
        """Where the next fetch begins: behind what was fetched; None while that is not known."""
        return self.position if self.chunk is None else self.chunk.end_offset

    def fetched(self, chunk: FetchedChunk) -> None:
        """What came from `fetch_offset` on."""
        if self.chunk is None:
            self.chunk = chunk
        else:
            self.following = chunk

    def taken(self) -> bool:
        """Records were taken of the chunk: the position moves; whether it is used up."""
        assert self.chunk is not None, "something was taken from it"
        self.position = self.chunk.position
        if not self.chunk.is_used_up:
            return False
        self.chunk, self.following = self.following, None
        return True

    def seek(self, offset: int) -> None:
        """Goes to an offset; what was fetched is dropped."""
        self.position, self.reset, self.topic_id = offset, None, None
        self.chunk = self.following = None

    def seek_by(self, reset: int) -> None:
        """Goes to where a timestamp, the beginning or the end turns out to be."""
        self.position, self.reset, self.topic_id = None, reset, None
        self.chunk = self.following = None


class Positions:
    """The partitions that a consumer has at present."""

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, PartitionPosition] = {}
        self._order: list[TopicPartition] = []

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Has exactly these from now on; what is kept keeps its place."""
        wanted = dict.fromkeys(partitions)
        known = self._by_partition
        self._by_partition = {each: known.get(each) or PartitionPosition() for each in wanted}
        self._order = list(wanted)

    def get(self, partition: TopicPartition) -> PartitionPosition | None:
        """The state of a partition, if the consumer has it."""
        return self._by_partition.get(partition)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions."""
        return frozenset(self._by_partition)

    def items(self) -> list[tuple[TopicPartition, PartitionPosition]]:
        """The partitions with their states."""
        return list(self._by_partition.items())

    def unplaced(self) -> list[TopicPartition]:
        """Those whose position is not known."""
        return [each for each, state in self._by_partition.items() if state.position is None]

    def in_turn(self) -> list[TopicPartition]:
        """The partitions, the one that had its turn longest ago first."""
        return list(self._order)

    def had_turn(self, partition: TopicPartition) -> None:
        """It goes to the end of the line."""
        if partition in self._by_partition:
            self._order.remove(partition)
            self._order.append(partition)

    def consumed(self) -> dict[TopicPartition, int]:
        """The positions that are known: what can be committed."""
        return {
            each: state.position
            for each, state in self._by_partition.items()
            if state.position is not None
        }
