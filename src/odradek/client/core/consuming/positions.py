"""The positions of a consumer: one state a partition.

position None    not known yet: the committed offset is asked for, or `reset` says where to
position n       the next record to be given out is n
chunk            what was fetched and not given out yet
following        the chunk behind it, fetched meanwhile; nothing more is fetched while it is there
"""

from collections.abc import Callable, Collection, Iterable
from math import nan
from typing import Final, NamedTuple
from uuid import UUID

from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.consuming.fetched import FetchedChunk
from odradek.model import NO_LEADER_EPOCH, TopicPartition

PREFERRED_REPLICA_AGE_MS: Final = 300_000


class Fetched(NamedTuple):
    """Up to where a partition was fetched, in which leader's epoch that was written, and the epoch
    of the leader that is asked whether it has it."""

    offset: int
    leader_epoch: int
    validator: int


class EpochEnd(NamedTuple):
    """The latest epoch of a leader's log up to one that was asked for, and the offset behind it."""

    leader_epoch: int
    offset: int


class PartitionPosition:
    """Where a consumer stands in one partition that it has."""

    def __init__(self) -> None:
        self.position: int | None = None
        # The leader's epoch of the record before it, and of who is known to have that record.
        self.leader_epoch = NO_LEADER_EPOCH
        self.validated_epoch = NO_LEADER_EPOCH
        self.stored: CommittedOffset | None = None
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

    @property
    def fetch_leader_epoch(self) -> int:
        """The leader's epoch of the record before `fetch_offset`, as far as known."""
        return self.leader_epoch if self.chunk is None else self.chunk.end_leader_epoch

    def needs_validation(self, leader_epoch: int) -> bool:
        """Whether a leader of that epoch may not have what was read (KIP-320)."""
        if self.fetch_leader_epoch == NO_LEADER_EPOCH:
            self.validated_epoch = leader_epoch
        return leader_epoch > self.validated_epoch

    def fetched(self, chunk: FetchedChunk) -> None:
        """Takes records that came from `fetch_offset` on."""
        if self.chunk is None:
            self.chunk = chunk
        else:
            self.following = chunk

    def taken(self) -> bool:
        """Records were taken of the chunk: the position moves; whether it is used up."""
        assert self.chunk is not None, "something was taken from it"
        self.position = self.chunk.position
        self.leader_epoch = self.chunk.leader_epoch
        if not self.chunk.is_used_up:
            return False
        self.chunk, self.following = self.following, None
        return True

    def seek(self, offset: int, leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Goes to an offset; what was fetched is dropped. Whether whoever leads has the record
        before it is looked at where its leader's epoch is given."""
        self.position, self.reset, self.topic_id = offset, None, None
        self.leader_epoch, self.validated_epoch = leader_epoch, NO_LEADER_EPOCH
        self.drop_fetched()

    def go_back(self, offset: int, leader_epoch: int) -> None:
        """Goes to a record that was taken and not given out: all that is known of its log holds."""
        self.position, self.leader_epoch = offset, leader_epoch
        self.drop_fetched()

    def drop_fetched(self) -> None:
        """Drops what was fetched and not handed out: it will be fetched again."""
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
        self.on_gone: Callable[[Collection[TopicPartition]], None] = lambda _: None
        """Told of partitions that the consumer has no more, even of those that come again."""
        self.is_held: Callable[[TopicPartition], bool] = lambda _: False
        """Whether records that were taken of a partition are yet to be given out."""

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replaces the assignment; partitions that stay keep their positions."""
        wanted = dict.fromkeys(partitions)
        known = self._by_partition
        if gone := known.keys() - wanted.keys():
            self.on_gone(gone)
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
        """Lists the partitions whose position is not known."""
        return [each for each, state in self._by_partition.items() if state.position is None]

    def in_turn(self) -> list[TopicPartition]:
        """The partitions, the one that had its turn longest ago first."""
        return list(self._order)

    def had_turn(self, partition: TopicPartition) -> None:
        """It goes to the end of the line."""
        if partition in self._by_partition:
            self._order.remove(partition)
            self._order.append(partition)

    def largest_lag(self) -> float:
        """How far the one that is furthest behind is from the end; NaN where nobody knows."""
        return max(
            (
                state.high_watermark - state.position
                for state in self._by_partition.values()
                if state.position is not None and state.high_watermark >= 0
            ),
            default=nan,
        )

    def consumed(self) -> dict[TopicPartition, CommittedOffset]:
        """The positions that are known: what can be committed."""
        return {
            each: CommittedOffset(state.position, "", state.leader_epoch)
            for each, state in self._by_partition.items()
            if state.position is not None
        }
