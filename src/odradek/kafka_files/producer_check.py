"""Compares the producer snapshots and transaction indexes of a log with its batches, one by one.

The batches are replayed as a start would replay them. That gives the producers as they were at the
offset of each snapshot, and the aborted transactions whose markers a segment holds. Where records
may be missing (compaction, a log that was cut at its beginning) a problem is only what the batches
contradict, not what they no longer show.
"""

from collections.abc import Sequence
from typing import Final

from odradek.errors import BrokerError
from odradek.kafka_files.inspection import FoundBatch
from odradek.storage.index.transaction_index import AbortedEntry
from odradek.storage.producers.producer_state import ProducerState, ProducerStateManager
from odradek.storage.producers.replay import replay_batch


class ProducerCheck:
    """The producers of a log that begins at `start_offset`; `is_complete`: nothing is missing."""

    def __init__(self, start_offset: int, *, is_complete: bool) -> None:
        self._start_offset: Final = start_offset
        self._is_complete: Final = is_complete
        self._producers: Final = ProducerStateManager("fsck")
        self._aborted: list[AbortedEntry] = []
        # The producers of the markers of the segment, by offset.
        self._markers: dict[int, int] = {}

    def begin_segment(self) -> None:
        """The next batches are of another segment."""
        self._aborted = []
        self._markers = {}

    def see(self, batch: FoundBatch) -> None:
        """The next batch of the log, which has been found to be whole."""
        header = batch.header
        if header.is_control:
            self._markers[header.base_offset] = header.producer_id
        try:
            completed = replay_batch(self._producers, header, batch.data)
        except BrokerError:
            # A marker that cannot be read is a damaged record, whatever its checksum says.
            return
        self._producers.commit()
        if completed is not None:
            self._producers.on_high_watermark(header.last_offset + 1)
            if completed.is_aborted:
                stable = self._producers.last_stable_offset(completed)
                self._aborted.append(
                    AbortedEntry(
                        completed.producer_id, completed.first_offset, completed.last_offset, stable
                    )
                )

    def compare_aborted(self, entries: Sequence[AbortedEntry]) -> list[tuple[int, str]]:
        """Compares a segment's transaction index with its batches: the offset of a marker, and the
        problem there."""
        found = {entry.last_offset: entry for entry in entries}
        problems = []
        for expected in self._aborted:
            entry = found.get(expected.last_offset)
            text = f"the transaction of producer {expected.producer_id} that was aborted there"
            if entry is None:
                problems.append((expected.last_offset, f"{text} is missing"))
            elif not self._agrees(entry, expected):
                problems.append((expected.last_offset, f"{text} has other offsets or producer"))
        problems.extend(
            (entry.last_offset, f"there is no marker of producer {entry.producer_id}")
            for entry in entries
            if self._markers.get(entry.last_offset) != entry.producer_id
        )
        return problems

    def compare_snapshot(self, offset: int, states: Sequence[ProducerState]) -> str | None:
        """Compares a snapshot with the batches below `offset`; None when they agree."""
        for state in states:
            if state.last_offset >= offset or state.txn_first_offset >= offset:
                return f"it knows what producer {state.producer_id} wrote later"
            seen = self._producers.get(state.producer_id)
            if seen is None or not seen.batches or not state.batches:
                if self._is_complete and state.last_offset >= self._start_offset:
                    return f"producer {state.producer_id} has written nothing up to there"
                continue
            if self._contradict(seen, state):
                return (
                    f"producer {state.producer_id} stands at sequence {state.last_sequence}, "
                    f"offset {state.last_offset}; the records say {seen.last_sequence}, "
                    f"{seen.last_offset}"
                )
        return None

    def _agrees(self, entry: AbortedEntry, expected: AbortedEntry) -> bool:
        # Kafka counts transactions as open that began behind the marker in the same write.
        least = expected.last_stable_offset
        if entry.last_stable_offset < least and not self._may_be_gone(entry.last_stable_offset):
            return False
        if entry.producer_id != expected.producer_id:
            return False
        if entry.first_offset == expected.first_offset:
            return True
        is_earlier = 0 <= entry.first_offset < expected.first_offset
        return is_earlier and self._may_be_gone(entry.first_offset)

    def _may_be_gone(self, first_offset: int) -> bool:
        """Whether the log may lack the batches with which a transaction began there."""
        return not self._is_complete or first_offset < self._start_offset

    def _contradict(self, seen: ProducerState, state: ProducerState) -> bool:
        if seen.last_offset != state.last_offset:
            return self._is_complete
        return (seen.last_sequence, seen.epoch) != (state.last_sequence, state.epoch)
