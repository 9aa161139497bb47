"""Compares a leader epoch checkpoint, which has no checksum, with the batches.

An epoch begins with a batch that has it, behind one of an earlier epoch. The start of a broker
looks at the latest epochs only (`contradiction`), which followers and consumers ask for: a log with
many opens as quickly as one with few. A check looks at all (`EpochCheck`).
"""

from collections.abc import Sequence
from typing import Final

from odradek.model import NO_LEADER_EPOCH
from odradek.records.batch import BatchHeader, parse_header
from odradek.records.errors import CorruptRecords
from odradek.storage.log.leader_epochs import epochs_from
from odradek.storage.log.segments import LogSegments

_LOOKED_AT: Final = 4


def contradiction(
    epochs: Sequence[tuple[int, int]],
    segments: LogSegments,
    log_start_offset: int,
    log_end_offset: int,
) -> str | None:
    """Compares the (epoch, start offset) pairs with the batches; None when they agree.

    Raises:
        OSError: the disk failed.
    """
    for index in range(max(len(epochs) - _LOOKED_AT, 0), len(epochs)):
        epoch, start_offset = epochs[index]
        first = _batch_at(segments, start_offset, log_end_offset)
        if first is None:
            continue
        # Compaction may have taken the first batches of an epoch, retention those before it.
        if first.partition_leader_epoch < epoch or (
            first.base_offset <= start_offset and first.partition_leader_epoch != epoch
        ):
            return f"offset {start_offset} is of epoch {first.partition_leader_epoch}, not {epoch}"
        if index == 0 and start_offset <= log_start_offset:
            continue
        before = _batch_at(segments, start_offset - 1, log_end_offset)
        if before is None or before.base_offset >= start_offset:
            # Compaction has removed it.
            continue
        if index == 0 or before.partition_leader_epoch >= epoch:
            return f"epoch {before.partition_leader_epoch} has offset {before.base_offset}"
    return None


def _batch_at(segments: LogSegments, offset: int, log_end_offset: int) -> BatchHeader | None:
    """The batch that holds `offset`, or the next one of its segment that has an epoch."""
    segment = segments.floor(offset)
    if segment is None or offset >= log_end_offset:
        return None
    try:
        place = segment.locate(offset)
    except CorruptRecords:
        # Damaged records say nothing about the checkpoint.
        return None
    if place is None:
        return None
    header = parse_header(segment.read(place.position, place.size_bytes))
    return header if header.partition_leader_epoch > NO_LEADER_EPOCH else None


class EpochCheck:
    """All epochs of a log, whose batches come one by one; `is_complete`: none is missing."""

    def __init__(self, *, is_complete: bool) -> None:
        self._is_complete: Final = is_complete
        # (epoch, first offset) by the batches.
        self._seen: list[tuple[int, int]] = []

    def see(self, header: BatchHeader) -> None:
        """Takes in the next batch."""
        epoch = header.partition_leader_epoch
        if epoch > NO_LEADER_EPOCH and (not self._seen or epoch != self._seen[-1][0]):
            self._seen.append((epoch, header.base_offset))

    def compare(
        self, epochs: Sequence[tuple[int, int]], log_start_offset: int, log_end_offset: int
    ) -> list[tuple[int, str]]:
        """Compares a checkpoint with its log; returns offsets with the differences."""
        problems = []
        # As the next start cuts them, where a crash kept retention from doing so.
        epochs = epochs_from(epochs, log_start_offset)
        starts = dict(self._seen)
        for index, (epoch, start_offset) in enumerate(epochs):
            if start_offset > log_end_offset:
                problems.append((start_offset, f"epoch {epoch} begins behind the log's end"))
            elif start_offset < log_end_offset and not self._fits(
                starts.get(epoch), start_offset, is_first=index == 0
            ):
                problems.append((start_offset, f"epoch {epoch} does not begin there"))
        listed = {epoch for epoch, _ in epochs}
        # Without one all records may lie below the log's start.
        first = epochs[0][1] if epochs else log_end_offset
        for epoch, start_offset in self._seen:
            if epoch not in listed and start_offset >= first:
                problems.append((start_offset, f"epoch {epoch}, which begins there, is missing"))
        return problems

    def _fits(self, seen: int | None, start_offset: int, *, is_first: bool) -> bool:
        """Whether an epoch may begin at `start_offset` when its first batch is at `seen`."""
        if seen == start_offset or (seen is None and not self._is_complete):
            return True
        if seen is None:
            return False
        # The log's start may have been raised; compaction may have taken the first batches.
        return (is_first and seen < start_offset) or (not self._is_complete and seen > start_offset)
