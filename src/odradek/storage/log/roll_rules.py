"""The time after which a segment is closed even when it is not full. Pure."""

from zlib import crc32

from odradek.config.topic import LogConfig
from odradek.model import TopicPartition


def segment_ms(topic_partition: TopicPartition, config: LogConfig) -> int:
    """`segment.ms` without the jitter, which keeps partitions from rolling all at once.

    The jitter is drawn from the name: as good as random, and the same after a restart. A compacted
    log rolls early enough for `max.compaction.lag.ms`: the active segment cannot be compacted.
    """
    longest_ms = config.segment_ms
    if config.compact:
        longest_ms = min(longest_ms, config.max_compaction_lag_ms)
    jitter_ms = min(config.segment_jitter_ms, longest_ms - 1)
    if jitter_ms <= 0:
        return longest_ms
    return longest_ms - crc32(str(topic_partition).encode()) % (jitter_ms + 1)
