"""How much of a log could be compacted now, and how urgently.

    log start       first dirty offset      first uncleanable offset    log end
        |  cleaned before  |  dirty, cleanable  |  not yet                 |

Not yet: the active segment, records above the last stable offset, records younger than
`min.compaction.lag.ms`, and records that may not be on the disk: a record must not be removed for a
newer one that a power failure would take. A log is due when its dirty part is large enough compared
with the whole (`min.cleanable.dirty.ratio`), or its oldest dirty record has waited for longer than
`max.compaction.lag.ms`. Records held by a reader's lease are not compacted either; only a log that
is due looks for leases. It only assesses; `LogCleaner` acts.
"""

from typing import NamedTuple

from odradek.storage.log.log import Log
from odradek.storage.log.segment import LogSegment


class Cleanable(NamedTuple):
    """A log and its parts; `ratio` is the cleanable share of the bytes that would be read."""

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    cleanable_bytes: int
    ratio: float
    is_overdue: bool

    @property
    def is_due(self) -> bool:
        """Whether the log should be cleaned at all."""
        if self.cleanable_bytes == 0 or self.first_dirty_offset >= self.first_uncleanable_offset:
            return False
        return self.is_overdue or self.ratio > self.log.config.min_cleanable_dirty_ratio


def assess(log: Log, now_ms: int) -> Cleanable:
    """The state of a log."""
    found = _assess(log, now_ms, log.log_end_offset)
    if not found.is_due:
        log.held_from_compaction.end()
        return found
    held = log.held_from_compaction.offset(log.log_directory.file_system, log.local.path, now_ms)
    return found if held is None else _assess(log, now_ms, held)


def _assess(log: Log, now_ms: int, limit: int) -> Cleanable:
    """The state of a log, as if its records ended at `limit`."""
    first_dirty_offset = max(log.cleaned_offset, log.log_start_offset)
    dirty = [
        segment
        for segment in log.segments.between(first_dirty_offset, log.segments.active.base_offset)
        if segment is not log.segments.active
    ]
    limit = min(limit, _first_uncleanable(log, dirty, now_ms))
    first_uncleanable_offset = max(limit, first_dirty_offset)
    cleanable_bytes = sum(
        segment.size_bytes for segment in dirty if segment.base_offset < first_uncleanable_offset
    )
    dirty_base = dirty[0].base_offset if dirty else log.segments.active.base_offset
    clean_bytes = sum(s.size_bytes for s in log.segments.all() if s.base_offset < dirty_base)
    total_bytes = clean_bytes + cleanable_bytes
    return Cleanable(
        log,
        first_dirty_offset,
        first_uncleanable_offset,
        cleanable_bytes,
        cleanable_bytes / total_bytes if total_bytes else 0.0,
        _is_overdue(log, dirty, now_ms),
    )


def _first_uncleanable(log: Log, dirty: list[LogSegment], now_ms: int) -> int:
    limit = min(log.last_stable_offset, log.segments.active.base_offset, log.local.recovery_point)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in dirty:
            if segment.newest_ms > now_ms - lag_ms:
                return min(limit, segment.base_offset)
    return limit


def _is_overdue(log: Log, dirty: list[LogSegment], now_ms: int) -> bool:
    lag_ms = max(log.config.max_compaction_lag_ms, log.config.min_compaction_lag_ms)
    oldest = [s.first_timestamp for s in dirty if s.first_timestamp > 0]
    return bool(oldest) and min(oldest) < now_ms - lag_ms
