"""Whether a leader epoch checkpoint, which has no checksum, is what the batches say.

An epoch begins with a batch that has it, behind one of an earlier epoch. Only the latest epochs
are looked at, which are the ones that followers and consumers ask for: a log with many of
them opens as quickly as one with few.
"""

from collections.abc import Sequence
from typing import Final

from odradek.model import NO_LEADER_EPOCH
from odradek.records.batch import BatchHeader, parse_header
from odradek.storage.segments import LogSegments

_LOOKED_AT: Final = 4


def contradiction(
    epochs: Sequence[tuple[int, int]], segments: LogSegments, log_end_offset: int
) -> str | None:
    """What the batches have against the (epoch, start offset) pairs; None when nothing.

    Raises:
        CorruptRecords: the records are damaged.
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
        before = _batch_at(segments, start_offset - 1, log_end_offset) if index > 0 else None
        if before is not None and before.partition_leader_epoch >= epoch:
            return f"epoch {epoch} begins before offset {start_offset}"
    return None


def _batch_at(segments: LogSegments, offset: int, log_end_offset: int) -> BatchHeader | None:
    """The batch that holds `offset`, or the next one of its segment that has an epoch."""
    segment = segments.floor(offset)
    if segment is None or offset >= log_end_offset:
        return None
    place = segment.locate(offset)
    if place is None:
        return None
    header = parse_header(segment.read(place.position, place.size_bytes))
    return header if header.partition_leader_epoch > NO_LEADER_EPOCH else None
