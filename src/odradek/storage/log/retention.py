"""Which segments retention does not keep. It decides; `Log` deletes.

Always from the oldest on, and nothing that reaches the high watermark: what not every replica
has is not old. By time: the newest record of the segment is older than `retention.ms`. By
size: without the segment the log still has `retention.bytes`. By start: the log start offset
has moved beyond it, whatever the cleanup policy.
"""

from typing import TYPE_CHECKING

from odradek.storage.log.segment import LogSegment

if TYPE_CHECKING:
    from odradek.storage.log.log import Log


def segments_to_delete(log: "Log", now_ms: int) -> list[LogSegment]:
    """The oldest segments of the log that nothing keeps; the active one only if it is old."""
    doomed: list[LogSegment] = []
    excess = _excess_bytes(log)
    segments = log.segments.all()
    for index, segment in enumerate(segments):
        is_active = index == len(segments) - 1
        end_offset = log.log_end_offset if is_active else segments[index + 1].base_offset
        if end_offset > log.high_watermark or (is_active and segment.size_bytes == 0):
            break
        by_size = not is_active and excess - segment.size_bytes >= 0
        by_start = not is_active and end_offset <= log.log_start_offset
        if not (by_size or by_start or _is_too_old(log, segment, now_ms)):
            break
        excess -= segment.size_bytes
        doomed.append(segment)
    return doomed


def _excess_bytes(log: "Log") -> int:
    """The bytes beyond `retention.bytes`, -1 when that does not count."""
    if not log.config.delete or log.config.retention_bytes < 0:
        return -1
    return log.size_bytes - log.config.retention_bytes


def _is_too_old(log: "Log", segment: LogSegment, now_ms: int) -> bool:
    if not log.config.delete or log.config.retention_ms < 0:
        return False
    return now_ms - segment.newest_ms > log.config.retention_ms
