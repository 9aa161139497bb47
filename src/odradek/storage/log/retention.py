"""Decides which segments retention drops; `Log` deletes them.

Always the oldest ones first, and none that reaches the high watermark: records that not every
replica has must stay. By time: the newest record of the segment is older than `retention.ms`. By
size: without the segment the log still has `retention.bytes`. By start: the log start offset has
moved beyond it, whatever the cleanup policy. Records held by a reader's lease stay, unless the log
already starts behind them.
"""

from odradek.config.topic import LogConfig
from odradek.storage.log.segment import LogSegment
from odradek.storage.log.segments import LogSegments


def segments_to_delete(
    segments: LogSegments,
    config: LogConfig,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
) -> list[LogSegment]:
    """The oldest segments of a log that retention drops; the active one only if it is old, or if no
    record may stay."""
    doomed: list[LogSegment] = []
    excess = _excess_bytes(segments, config)
    for segment in segments.all():
        following = segments.following(segment)
        is_active = following is None
        end_offset = log_end_offset if following is None else following.base_offset
        if end_offset > high_watermark or (is_active and segment.size_bytes == 0):
            break
        by_size = excess - segment.size_bytes >= 0
        by_start = not is_active and end_offset <= log_start_offset
        if not (by_size or by_start or _is_too_old(segment, config, now_ms)):
            break
        excess -= segment.size_bytes
        doomed.append(segment)
    return doomed


def without_held(
    doomed: list[LogSegment],
    segments: LogSegments,
    log_start_offset: int,
    held_offset: int | None,
) -> list[LogSegment]:
    """The first of the segments, up to the offset that a lease holds."""
    if held_offset is None:
        return doomed
    limit = max(held_offset, log_start_offset)
    free: list[LogSegment] = []
    for segment in doomed:
        following = segments.following(segment)
        # The active one is dropped only without any lease.
        if following is None or following.base_offset > limit:
            break
        free.append(segment)
    return free


def _excess_bytes(segments: LogSegments, config: LogConfig) -> int:
    """The bytes beyond `retention.bytes`, -1 without that limit."""
    if not config.delete or config.retention_bytes < 0:
        return -1
    return segments.size_bytes - config.retention_bytes


def _is_too_old(segment: LogSegment, config: LogConfig, now_ms: int) -> bool:
    if not config.delete or config.retention_ms < 0:
        return False
    return now_ms - segment.newest_ms > config.retention_ms
