"""The positions of a consumer: one state a partition.

position None    not known yet: the committed offset is asked for, or `reset` says where to
position n       the next record to be given out is n
held             records that were read of the chunk and wait for `getone`: `position` is the first
chunk            what was fetched and not read yet
following        the chunk behind it, fetched meanwhile; nothing more is fetched while it is there

A state owns all of these, so fetched records are dropped with their partition, or when the reader
seeks. Lag and commits follow from `position` alone.
"""

from collections import deque
from collections.abc import Callable, Iterable
from math import nan
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.consuming.consumer_record import ConsumerRecord, Deserializing
from odradek.client.core.consuming.fetched import FetchedChunk
from odradek.client.errors import BadRecord
from odradek.clock import LONG_AGO_MS
from odradek.model import NO_LEADER_EPOCH, TopicPartition
from odradek.records.columnar import ColumnBuffers

T = TypeVar("T")
PREFERRED_REPLICA_AGE_MS: Final = 300_000


class Fetched(NamedTuple):
    """The end of the fetched records of a partition, the leader epoch of the last one, and the
    epoch of the leader to validate them."""

    offset: int
    leader_epoch: int
    validator: int


class EpochEnd(NamedTuple):
    """The latest epoch of a leader's log up to one that was asked for, and the offset behind it."""

    leader_epoch: int
    offset: int


class PartitionPosition:
    """A consumer's position in one assigned partition, and the records that it has fetched."""

    def __init__(self) -> None:
        # Behind what was read of chunks, and the leader's epoch of the record before.
        self._read_to: int | None = None
        self._read_epoch = NO_LEADER_EPOCH
        # The epoch of the leader that is known to have that record.
        self.validated_epoch = NO_LEADER_EPOCH
        self.stored: CommittedOffset | None = None
        self.reset: int | None = None  # a timestamp, or LATEST or EARLIEST, to go to
        self.seeks = 0  # an answer to what was asked before the last of them is too old
        self.is_paused = False
        self.is_revoking = False
        self.held: deque[ConsumerRecord] = deque()
        self.chunk: FetchedChunk | None = None
        self.following: FetchedChunk | None = None
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.preferred_replica: int | None = None
        self.preferred_until_ms = LONG_AGO_MS
        self.not_before_ms = LONG_AGO_MS
        self.topic_id: UUID | None = None  # of the topic that `position` is in, as far as known

    @property
    def position(self) -> int | None:
        """The offset of the next record to be given out, as far as known."""
        return self.held[0].offset if self.held else self._read_to

    @property
    def leader_epoch(self) -> int:
        """The leader's epoch of the record before it, or of that record."""
        return self.held[0].leader_epoch if self.held else self._read_epoch

    @property
    def has_records(self) -> bool:
        """Whether fetched records are still to be returned."""
        return bool(self.held) or self.chunk is not None

    @property
    def is_withheld(self) -> bool:
        """Whether no record of the partition may be returned at present."""
        return self.is_paused or self.is_revoking

    @property
    def is_full(self) -> bool:
        """Whether the partition has as many records as may be fetched ahead."""
        return self.following is not None

    @property
    def fetch_offset(self) -> int | None:
        """Where the next fetch begins: behind the fetched records; None while that is not known."""
        return self._read_to if self.chunk is None else self.chunk.end_offset

    @property
    def fetch_leader_epoch(self) -> int:
        """The leader's epoch of the record before `fetch_offset`, as far as known."""
        return self._read_epoch if self.chunk is None else self.chunk.end_leader_epoch

    def needs_validation(self, leader_epoch: int) -> bool:
        """Whether a leader of that epoch may lack the read records (KIP-320)."""
        if self.fetch_leader_epoch == NO_LEADER_EPOCH:
            self.validated_epoch = leader_epoch
        return leader_epoch > self.validated_epoch

    def fetched(self, chunk: FetchedChunk) -> None:
        """Takes records that came from `fetch_offset` on."""
        if self.chunk is None:
            self.chunk = chunk
        else:
            self.following = chunk

    def take(
        self, limit: int, key: Deserializing | None, value: Deserializing | None
    ) -> list[ConsumerRecord]:
        """Reads up to so many records of the chunk.

        Raises:
            BadRecord: the first of them cannot be read.
        """
        return self._read(lambda chunk: chunk.take(limit, key, value))

    def take_columns(self, *, headers: bool, views: bool) -> ColumnBuffers:
        """Reads the chunk, in columns.

        Raises:
            BadRecord: its first batch cannot be read.
        """
        return self._read(lambda chunk: chunk.columns(headers=headers, views=views))

    def _read(self, read: Callable[[FetchedChunk], T]) -> T:
        chunk = self.chunk
        assert chunk is not None, "something was fetched"
        try:
            found = read(chunk)
        except BadRecord as error:
            if self.chunk is chunk:
                self._read_to = error.offset
            raise
        if self.chunk is not chunk:  # a deserializer has moved the consumer
            return found
        self._read_to, self._read_epoch = chunk.position, chunk.leader_epoch
        if chunk.is_used_up:
            self.chunk, self.following = self.following, None
        return found

    def take_held(self, limit: int) -> list[ConsumerRecord]:
        """Takes up to so many of the records that wait."""
        return [self.held.popleft() for _ in range(min(limit, len(self.held)))]

    def seek(self, offset: int, leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Goes to an offset; drops the fetched records. With the leader epoch of the record before
        it the leader is asked whether it has that."""
        self.go_back(offset, leader_epoch)
        self.validated_epoch = NO_LEADER_EPOCH
        self.reset = self.topic_id = None
        self.seeks += 1

    def seek_by(self, reset: int) -> None:
        """Moves to the offset of a timestamp, the beginning or the end."""
        self.drop_fetched()
        self._read_to, self.reset, self.topic_id = None, reset, None
        self.seeks += 1

    def go_back(self, offset: int, leader_epoch: int) -> None:
        """Goes to a record that was taken and not given out: all that is known of its log holds."""
        self.drop_fetched()
        self._read_to, self._read_epoch = offset, leader_epoch

    def drop_fetched(self) -> None:
        """Drops fetched records that were not returned: they will be fetched again."""
        self._read_to, self._read_epoch = self.position, self.leader_epoch
        self.held.clear()
        self.chunk = self.following = None


class Positions:
    """The partitions that a consumer has at present."""

    def __init__(self, *, stores_itself: bool = True) -> None:
        """With `stores_itself` returned records count as processed."""
        self._stores_itself = stores_itself
        self._by_partition: dict[TopicPartition, PartitionPosition] = {}
        self._order: list[TopicPartition] = []
        # One object until the assignment changes: it is looked at for each record.
        self.assigned: frozenset[TopicPartition] = frozenset()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replaces the assignment; partitions that stay keep their positions."""
        wanted = dict.fromkeys(partitions)
        known = self._by_partition
        for partition in known.keys() - wanted.keys():
            known[partition].drop_fetched()  # though somebody has the state in hand yet
        self._by_partition = {each: known.get(each) or PartitionPosition() for each in wanted}
        self._order = list(wanted)
        self.assigned = frozenset(wanted)

    def get(self, partition: TopicPartition) -> PartitionPosition | None:
        """The state of a partition, if the consumer has it."""
        return self._by_partition.get(partition)

    def items(self) -> list[tuple[TopicPartition, PartitionPosition]]:
        """The partitions with their states."""
        return list(self._by_partition.items())

    def unplaced(self) -> list[TopicPartition]:
        """Lists the partitions whose position is not known."""
        return [each for each, state in self._by_partition.items() if state.position is None]

    def in_turn(self) -> list[TopicPartition]:
        """The partitions, the least recently used first."""
        return list(self._order)

    def had_turn(self, partition: TopicPartition) -> None:
        """Moves a partition behind all others."""
        if partition in self._by_partition:
            self._order.remove(partition)
            self._order.append(partition)

    def largest_lag(self) -> float:
        """The largest lag of a partition; NaN if none is known."""
        return max(
            (
                state.high_watermark - state.position
                for state in self._by_partition.values()
                if state.position is not None and state.high_watermark >= 0
            ),
            default=nan,
        )

    def committable(self) -> dict[TopicPartition, CommittedOffset]:
        """Finds the offsets that can be committed: behind all returned records, or behind those
        that the user has marked as processed."""
        if not self._stores_itself:
            return {each: state.stored for each, state in self.items() if state.stored}
        return {
            each: CommittedOffset(state.position, "", state.leader_epoch)
            for each, state in self.items()
            if state.position is not None
        }
