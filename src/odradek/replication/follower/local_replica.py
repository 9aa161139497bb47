"""A follower's writes to its own log: append, truncate, follow the leader's watermarks.

A follower's log is a prefix of its leader's, or becomes one: where the histories diverge, the
leader's counts. The point is found by epochs, never by the high watermark, which a follower hears
of late (KIP-101).
"""

from odradek.protocol.direct.fetch import FetchPartition, FetchPartitionResponse
from odradek.replication.partition import Partition
from odradek.storage.log.log import Log


def fetch_position(partition: Partition, log: Log, max_bytes: int) -> FetchPartition:
    """The next position a follower fetches of this partition: the end of its log."""
    return FetchPartition(
        partition.topic_partition.partition,
        log.log_end_offset,
        max_bytes,
        partition.leader_epoch,
        log.leader_epochs.latest_epoch,
        log.log_start_offset,
    )


def append_fetched(log: Log, answer: FetchPartitionResponse) -> bool:
    """Appends what a leader answered and follows its watermarks; True when more can be read.

    Raises:
        BrokerError: CORRUPT_MESSAGE, or KAFKA_STORAGE_ERROR.
    """
    log.finish_truncation()
    if answer.records:
        buffers = answer.records
        records = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        log.appender.append_as_follower(memoryview(records))
    before = log.high_watermark
    # A new leader learns late what its predecessor had committed; readers here keep the earlier
    # high watermark.
    if answer.high_watermark > before:
        log.update_high_watermark(answer.high_watermark)
    if log.log_start_offset < answer.log_start_offset <= log.high_watermark:
        log.maybe_increment_log_start_offset(answer.log_start_offset)
    return log.high_watermark > before


def truncate_diverged(log: Log, diverging_epoch: int, end_offset: int) -> bool:
    """Cuts the log where its history parts from the leader's; True when something went.

    The leader says up to where its log holds batches of `diverging_epoch`, the largest epoch that
    it knows of and that is not above the follower's last one. The leader does not have the
    follower's records beyond that. If the follower does not know that epoch either, it goes back to
    the end of the largest that it knows below, and asks again from there.

    Raises:
        BrokerError: KAFKA_STORAGE_ERROR.
    """
    epoch, own_end_offset = log.leader_epochs.end_offset_for(diverging_epoch, log.log_end_offset)
    if own_end_offset < 0:
        target = end_offset
    elif epoch == diverging_epoch:
        target = min(end_offset, own_end_offset)
    else:
        target = own_end_offset
    return log.truncate_to(min(target, log.log_end_offset))


def truncate_to_range(log: Log, leader_start_offset: int, leader_end_offset: int) -> bool:
    """Brings the log's end into the range that the leader has; True when it was outside.

    A longer log than the leader's comes from an unclean election: its tail is lost. A log that
    ends before the leader's begins has missed what retention has taken: it starts over.

    Raises:
        BrokerError: KAFKA_STORAGE_ERROR.
    """
    if leader_end_offset < log.log_end_offset:
        return log.truncate_to(leader_end_offset)
    if leader_start_offset > log.log_end_offset:
        log.truncate_fully_and_start_at(leader_start_offset)
        return True
    return False
