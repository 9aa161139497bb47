"""What a consumer gives out of what the fetcher has brought: records in turn, or columns.

`getone` takes its records from a read of many; those are `held` here until they are given out, and
count as not given out.
"""

import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from odradek.client.aio.fetcher import Fetcher
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.consuming.consumer_record import ConsumerRecord, Deserializer
from odradek.client.core.consuming.positions import PartitionPosition, Positions
from odradek.client.errors import BadRecord
from odradek.model import TopicPartition
from odradek.records.columnar import ColumnBuffers

_LOGGER: Final = logging.getLogger(__name__)
Records = dict[TopicPartition, list[ConsumerRecord]]
Columns = dict[TopicPartition, ColumnBuffers]


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
    ) -> None:
        self._positions = positions
        self._fetcher = fetcher
        self._key = key
        self._value = value
        self._interceptors = interceptors
        self.held: deque[ConsumerRecord] = deque()

    def ready(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Those of some partitions, or of all, that have something to give out, in turn."""
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
                left -= len(taken)
        self._fetcher.pump()
        return self._intercepted(records) if records else records

    def take_columns(self, partitions: Collection[TopicPartition], *, headers: bool) -> Columns:
        """The chunks of these, in columns.

        Raises:
            BadRecord: the first batch of them cannot be read.
        """
        found: Columns = {}
        for partition in self.ready(partitions):
            state = self._state(partition)
            assert state.chunk is not None, "it is ready"
            try:
                columns = state.chunk.columns(headers=headers)
            except BadRecord as error:
                if found:
                    break  # as above
                state.position = error.offset
                raise
            self._after_taking(partition, state)
            if columns.row_count:
                found[partition] = columns
        self._fetcher.pump()
        return found

    def release(self) -> Records:
        """What is held for `getone`, by partition: a read of many gives it out first."""
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
        wanted = frozenset(partitions) or self._positions.assigned
        first = {each: self.first_held(each) for each in wanted} if self.held else {}
        self.keep(self._positions.assigned - wanted)
        for partition, offset in first.items():
            if offset is not None:
                self._state(partition).seek(offset)

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Holds records of these partitions only."""
        kept = [
            each for each in self.held if TopicPartition(each.topic, each.partition) in partitions
        ]
        if len(kept) < len(self.held):
            self.held.clear()
            self.held.extend(kept)

    def first_held(self, partition: TopicPartition) -> int | None:
        """The offset of the first record held of a partition."""
        offsets = (
            each.offset
            for each in self.held
            if each.topic == partition.topic and each.partition == partition.partition
        )
        return next(offsets, None)

    def consumed(self) -> dict[TopicPartition, int]:
        """The offsets behind all that was given out: what can be committed."""
        consumed = self._positions.consumed()
        for record in reversed(self.held):
            consumed[TopicPartition(record.topic, record.partition)] = record.offset
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
