"""Hands out fetched records: one after the other, many, or in columns.

`getone` takes its records from a read of many; those are held by their partitions' positions until
they are given out.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from odradek.client.aio.fetching.fetcher import Fetcher
from odradek.client.aio.fetching.requests import FETCH_METRICS
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.core.consuming.deserializers import Deserializer, deserializing
from odradek.client.core.consuming.positions import PartitionPosition, Positions
from odradek.client.errors import BadRecord
from odradek.model import TopicPartition
from odradek.records.columnar import ColumnBuffers

_LOGGER: Final = logging.getLogger(__name__)
Records = dict[TopicPartition, list[ConsumerRecord]]
Columns = dict[TopicPartition, ColumnBuffers]
T = TypeVar("T")
_OFFSET_BYTES: Final = 8


class ConsumerInterceptor(Protocol):
    """Sees records before they are returned, and committed offsets."""

    def on_consume(self, records: Records) -> Records:
        """May change the returned records."""
        ...

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Called with committed offsets."""
        ...


class Handout:
    """Takes fetched records; positions move with them."""

    def __init__(
        self,
        positions: Positions,
        fetcher: Fetcher,
        key: Deserializer | None,
        value: Deserializer | None,
        interceptors: Sequence[ConsumerInterceptor],
    ) -> None:
        self._positions = positions
        self._fetcher = fetcher
        self._key = deserializing(key)
        self._value = deserializing(value)
        self._interceptors = interceptors
        # Which may do with partitions what it likes, while their records are read.
        self._has_users_code = not (key is None and value is None and not interceptors)
        # Whose held records `take_one` takes, one after the other.
        self._in_line: deque[PartitionPosition] = deque()
        self._consumed_records = fetcher.metrics.meter("records-consumed", FETCH_METRICS)

    def ready(self, partitions: Collection[TopicPartition] = ()) -> list[TopicPartition]:
        """Lists those of some partitions, or of all, that have records to hand out, in turn."""
        wanted = frozenset(partitions)
        ready = []
        for partition in self._positions.in_turn():
            state = self._state(partition)
            if state.has_records and not state.is_withheld and (not wanted or partition in wanted):
                ready.append(partition)
        return ready

    def take(self, partitions: Collection[TopicPartition], limit: int) -> Records:
        """Records of these partitions, at most `limit`: held ones, or else others.

        Raises:
            BadRecord: the first of them cannot be read.
        """
        found = self._take_held(partitions, limit) or self._records(partitions, limit)
        self._consumed_records.add(sum(map(len, found.values())))
        return found

    def take_one(self, limit: int) -> ConsumerRecord | None:
        """The next record, if there is one; if none is held, up to `limit` are read and held.

        Raises:
            BadRecord: the first of them cannot be read.
        """
        line = self._in_line
        if not line or not line[0].held or line[0].is_withheld:
            line = self._next_in_line() or self._lined_up(limit)
            if not line:
                return None
        self._consumed_records.add()
        return line[0].held.popleft()

    def take_columns(
        self, partitions: Collection[TopicPartition], *, headers: bool, views: bool
    ) -> Columns:
        """The chunks of these, in columns.

        Raises:
            BadRecord: the first batch of them cannot be read.
        """
        self.give_back(partitions)  # also of a partition that was resumed meanwhile
        read = self._read(
            partitions, lambda _, state: state.take_columns(headers=headers, views=views)
        )
        found = {partition: columns for partition, columns in read.items() if columns.row_count}
        self._consumed_records.add(sum(each.row_count for each in found.values()))
        return found

    def give_back(self, partitions: Collection[TopicPartition]) -> None:
        """Drops the held records of these, or of all: columns are made of chunks, which are fetched
        again."""
        for partition in self.ready(partitions):
            state = self._state(partition)
            if state.held:
                state.drop_fetched()

    def put_back(self, found: Records | Columns) -> None:
        """Takes back records that no caller got: the next read returns them, unless their partition
        has been revoked meanwhile."""
        for partition in reversed(list(found)):
            taken = found[partition]
            state = self._positions.get(partition)
            if state is None or state.position is None:
                continue
            if isinstance(taken, ColumnBuffers):
                assert taken.offset is not None, "consumers ask for offsets"
                first_offset = int.from_bytes(taken.offset[:_OFFSET_BYTES], "little")
                state.go_back(first_offset, state.leader_epoch)
            elif taken and state.position > taken[-1].offset:
                state.held.extendleft(reversed(taken))

    def _take_held(self, partitions: Collection[TopicPartition], limit: int) -> Records:
        found: Records = {}
        left = limit
        for partition in self.ready(partitions):
            if taken := self._state(partition).take_held(left):
                found[partition] = taken
                left -= len(taken)
        return found

    def _next_in_line(self) -> deque[PartitionPosition]:
        """The line, from a partition on that holds something; looks at all partitions, once for all
        that they hold, where none of it does. Empty if none does."""
        line = self._in_line
        while line and (not line[0].held or line[0].is_withheld):
            line.popleft()
        if not line:
            line.extend(each for each in map(self._state, self.ready()) if each.held)
        return line

    def _lined_up(self, limit: int) -> deque[PartitionPosition]:
        """The line behind reading up to `limit` records."""
        self._hold(self._records((), limit))
        return self._next_in_line()

    def _hold(self, records: Records) -> None:
        for partition, some in records.items():
            state = self._positions.get(partition)
            if state is not None:  # else of a partition that an interceptor has made up
                state.held.extend(some)

    def _records(self, partitions: Collection[TopicPartition], limit: int) -> Records:
        """Records of the chunks of these, as interceptors leave them."""
        left = limit
        read_from: dict[TopicPartition, PartitionPosition] = {}

        def take(partition: TopicPartition, state: PartitionPosition) -> list[ConsumerRecord]:
            nonlocal left
            if self._has_users_code:
                read_from[partition] = state
            taken = state.take(left, self._key, self._value) if left > 0 else []
            left -= len(taken)
            return taken

        read = self._read(partitions, take)
        found = {partition: records for partition, records in read.items() if records}
        return self._left_to_us(found, read_from) if read_from else found

    def _left_to_us(
        self, found: Records, read_from: Mapping[TopicPartition, PartitionPosition]
    ) -> Records:
        """The records as interceptors leave them, without partitions that these or a deserializer
        have given up."""
        if found:
            found = self._intercepted(found)
        lost = {
            partition
            for partition, state in read_from.items()
            if self._positions.get(partition) is not state
        }
        return {partition: each for partition, each in found.items() if partition not in lost}

    def _read(
        self,
        partitions: Collection[TopicPartition],
        take: Callable[[TopicPartition, PartitionPosition], T],
    ) -> dict[TopicPartition, T]:
        """Takes from the chunks of these, in turn, up to an unreadable one, whose error comes with
        the next call, alone."""
        found: dict[TopicPartition, T] = {}
        for partition in self.ready(partitions):
            state = self._positions.get(partition)
            # A deserializer may have dropped, paused or moved other partitions.
            if state is None or state.is_withheld or state.chunk is None:
                continue
            chunk = state.chunk
            try:
                found[partition] = take(partition, state)
            except BadRecord:
                if found:
                    break
                raise
            if state.chunk is not chunk:
                self._positions.had_turn(partition)
                self._fetcher.used_up()
        self._fetcher.pump()
        return found

    def _state(self, partition: TopicPartition) -> PartitionPosition:
        state = self._positions.get(partition)
        assert state is not None, f"{partition} is assigned"
        return state

    def _intercepted(self, records: Records) -> Records:
        for interceptor in self._interceptors:
            try:
                records = interceptor.on_consume(records)
            except Exception:  # a user's interceptor, without which the records are good
                _LOGGER.warning(
                    "an interceptor failed; the records are returned without it", exc_info=True
                )
        return records
