"""Which batches of a log belong to aborted transactions, and which end markers may go.

The cleaner walks the log in order and passes every transactional batch and every marker. A batch of
an aborted transaction is dropped at once. A marker may be dropped only when no batch of its
transaction is left: until then readers need the marker (and the transaction index's entry of an
aborted one) to know whether the batch was committed. It also stays in a segment at whose beginning
its transaction was open: a replay of the log may begin there, from the snapshot of that moment, and
has to find the marker.

A round ends below the first undecided transaction, so each transaction that begins within the round
is decided, even if its marker lies behind the round's end. Behind that end all batches stay, and so
do the entries of the markers there.
"""

from collections import deque
from collections.abc import Collection, Sequence

from odradek.records.batch import BatchHeader, Buffer
from odradek.storage.index.transaction_index import AbortedEntry
from odradek.storage.producers.end_marker import parse_end_marker


class CleanedTransactions:
    """One walk over a log with these aborted transactions.

    `retained` collects the entries whose markers stay, for the transaction index of the cleaned
    segment.
    """

    def __init__(self, aborted: Sequence[AbortedEntry]) -> None:
        self._coming = deque(sorted(aborted, key=lambda entry: entry.first_offset))
        self._by_marker = {entry.last_offset: entry for entry in aborted}
        # Producers whose current transaction will be aborted, and whether a batch of it was met.
        self._aborted: dict[int, AbortedEntry] = {}
        self._has_batches: set[int] = set()
        # Producers with a batch of a transaction that will be committed.
        self._committed: set[int] = set()
        # Producers whose first marker in the segment ends a transaction that began before it.
        self._open_before: set[int] = set()
        self.retained: list[AbortedEntry] = []

    def begin_segment(self, open_before: Collection[int]) -> None:
        """Begins a segment, at whose beginning these producers are in a transaction."""
        self._open_before = set(open_before)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Takes in a data batch; returns whether its transaction is aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._has_batches.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def may_drop_marker(self, buffer: Buffer, header: BatchHeader) -> bool:
        """Takes in a control batch; returns whether its transaction does not need it any more."""
        ends_earlier_one = header.producer_id in self._open_before
        self._open_before.discard(header.producer_id)
        return self._has_nothing_left(buffer, header) and not ends_earlier_one

    def _has_nothing_left(self, buffer: Buffer, header: BatchHeader) -> bool:
        self._begin_up_to(header.last_offset)
        if header.record_count == 0:
            return True
        marker = parse_end_marker(memoryview(buffer)[header.position : header.end_position])
        if marker is None:
            return False
        if marker.is_commit:
            is_needed = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not is_needed
        entry = self._aborted.pop(header.producer_id, None)
        if entry is None or header.producer_id not in self._has_batches:
            return True
        self._has_batches.discard(header.producer_id)
        self.retained.append(entry)
        return False

    def pass_over(self, header: BatchHeader) -> None:
        """Takes in a batch behind the round's end."""
        entry = self._by_marker.get(header.base_offset) if header.is_control else None
        if entry is not None:
            self.retained.append(entry)

    def take_retained(self) -> list[AbortedEntry]:
        """The entries retained since the last call."""
        retained, self.retained = self.retained, []
        return retained

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            entry = self._coming.popleft()
            # Retention may have taken the marker away before it was met.
            if entry.last_offset >= offset:
                self._aborted[entry.producer_id] = entry
