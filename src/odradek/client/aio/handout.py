"""Hands out records that the fetcher has brought: one after the other, or in columns.

`getone` takes its records from a read of many; those are `held` here until they are given out, and
count as not given out.
"""

import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from odradek.client.aio.fetching.fetcher import Fetcher
from odradek.client.aio.fetching.requests import FETCH_METRICS
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.consuming.consumer_record import ConsumerRecord, Deserializer
from odradek.client.core.consuming.positions import PartitionPosition, Positions
from odradek.client.errors import BadRecord
from odradek.model import TopicPartition
from odradek.records.columnar import ColumnBuffers

_LOGGER: Final = logging.getLogger(__name__)
Records = dict[TopicPartition, list[ConsumerRecord]]
Columns = dict[TopicPartition, ColumnBuffers]
_OFFSET_BYTES: Final = 8


class ConsumerInterceptor(Protocol):
    """Sees records before they are given out, and offsets that were committed."""

    def on_consume(self, records: Records) -> Records:
        """May change what is given out."""
        ...

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """These are committed."""
        ...


class Handout:
    """Takes from what was fetched; positions move with it."""

    def __init__(
        self,
        positions: Positions,
        fetcher: Fetcher,
        key: Deserializer | None,
        value: Deserializer | None,
        interceptors: Sequence[ConsumerInterceptor],
        *,
        stores_itself: bool,
    ) -> None:
        self._positions = positions
        positions.on_gone = self.drop
        positions.is_held = lambda partition: self.first_held(partition) is not None
        self._stores_itself = stores_itself
        self._fetcher = fetcher
        self._key = key
        self._value = value
        self._interceptors = interceptors
        self.held: deque[ConsumerRecord] = deque()
        self._consumed_records = fetcher.metrics.meter("records-consumed", FETCH_METRICS)

    def ready(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Lists those of some partitions, or of all, that have records to hand out, in turn."""
        wanted = frozenset(partitions)
        ready = []
        for partition in self._positions.in_turn():
            state = self._state(partition)
            if state.chunk and not state.is_withheld and (not wanted or partition in wanted):
                ready.append(partition)
        return ready

    def take(self, partitions: Collection[TopicPartition], limit: int) -> Records:
        """Records of these, as many as there are or `limit`.

        Raises:
            BadRecord: the first of them cannot be read.
        """
        records: Records = {}
        left = limit
        for partition in self.ready(partitions):
            if left <= 0:
                break
            state = self._state(partition)
            assert state.chunk is not None, "it is ready"
            try:
                taken = state.chunk.take(left, self._key, self._value)
            except BadRecord as error:
                if records:
                    break  # those of the others first; it comes again
                state.position = error.offset
                raise
            self._after_taking(partition, state)
            if taken:
                records[partition] = taken
                self._consumed_records.add(len(taken))
                left -= len(taken)
        self._fetcher.pump()
        return self._intercepted(records) if records else records

    def take_columns(
        self, partitions: Collection[TopicPartition], *, headers: bool, views: bool
    ) -> Columns:
        """The chunks of these, in columns.

        Raises:
            BadRecord: the first batch of them cannot be read.
        """
        found: Columns = {}
        for partition in self.ready(partitions):
            state = self._state(partition)
            assert state.chunk is not None, "it is ready"
            try:
                columns = state.chunk.columns(headers=headers, views=views)
            except BadRecord as error:
                if found:
                    break  # as above
                state.position = error.offset
                raise
            self._after_taking(partition, state)
            if columns.row_count:
                found[partition] = columns
                self._consumed_records.add(columns.row_count)
        self._fetcher.pump()
        return found

    def release(self) -> Records:
        """Releases what is held for `getone`, by partition: a read of many hands it out first."""
        records: Records = {}
        left = []
        for record in self.held:
            partition = TopicPartition(record.topic, record.partition)
            if self._state(partition).is_withheld:
                left.append(record)
            else:
                records.setdefault(partition, []).append(record)
        self.held.clear()
        self.held.extend(left)
        return records

    def give_back(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Takes back what is held for `getone`, of some partitions or of all: it will be fetched
        again."""
        wanted = self._positions.assigned & (frozenset(partitions) or self._positions.assigned)
        first = {each: self.first_held(each) for each in wanted} if self.held else {}
        self.drop(wanted)
        for partition, record in first.items():
            if record is not None:
                self._state(partition).go_back(record.offset, record.leader_epoch)

    def put_back(self, found: Records | Columns) -> None:
        """Takes back what has reached nobody: the next read gives it out, unless its partition has
        gone elsewhere meanwhile."""
        for partition in reversed(list(found)):
            taken = found[partition]
            state = self._positions.get(partition)
            if state is None or state.position is None:
                continue
            if isinstance(taken, ColumnBuffers):
                assert taken.offset is not None, "consumers ask for offsets"
                first_offset = int.from_bytes(taken.offset[:_OFFSET_BYTES], "little")
                state.go_back(first_offset, state.leader_epoch)
            elif state.position > taken[-1].offset:
                self.held.extendleft(reversed(taken))

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Holds records of these no more: they are somebody else's, or are not wanted here."""
        kept = [
            each
            for each in self.held
            if TopicPartition(each.topic, each.partition) not in partitions
        ]
        if len(kept) < len(self.held):
            self.held.clear()
            self.held.extend(kept)

    def first_held(self, partition: TopicPartition) -> ConsumerRecord | None:
        """The first record held of a partition."""
        records = (
            each
            for each in self.held
            if each.topic == partition.topic and each.partition == partition.partition
        )
        return next(records, None)

    def consumed(self) -> dict[TopicPartition, CommittedOffset]:
        """The offsets behind all that was given out, or behind all of which the user has said that
        it was dealt with: what can be committed."""
        if not self._stores_itself:
            return {each: state.stored for each, state in self._positions.items() if state.stored}
        consumed = self._positions.consumed()
        for record in reversed(self.held):
            partition = TopicPartition(record.topic, record.partition)
            consumed[partition] = CommittedOffset(record.offset, "", record.leader_epoch)
        return consumed

    def _after_taking(self, partition: TopicPartition, state: PartitionPosition) -> None:
        if state.taken():
            self._positions.had_turn(partition)
            self._fetcher.used_up()

    def _state(self, partition: TopicPartition) -> PartitionPosition:
        state = self._positions.get(partition)
        assert state is not None, f"{partition} is assigned"
        return state

    def _intercepted(self, records: Records) -> Records:
        for interceptor in self._interceptors:
            try:
                records = interceptor.on_consume(records)
            except Exception:
                _LOGGER.warning("an interceptor failed; the records go on", exc_info=True)
        return records
