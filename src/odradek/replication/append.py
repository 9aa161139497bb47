"""Append requests, the result of each partition, and how requests are appended together.

One `AppendRequest` is one client's produce request: several partitions, one answer. The
results are values, in the order of the entries, because partitions fail independently: a partition
that cannot append at all (not the leader, directory failed) fails its own entries and nothing else.

The requests of one socket read are appended with one write per partition: they are taken apart
by partition, each partition's log is handed all of its batches in the order of the requests, and
the outcomes find their way back into the requests' answers. For every partition the order is:
append, wake the fetches that wait for it, move the high watermark, and, if it moved, wake the
operations that wait for it.
"""

from collections.abc import Callable, Sequence
from typing import Final

from odradek.errors import BrokerError, ErrorCode
from odradek.model import (
    INTERNAL_TOPICS,
    NO_TIMESTAMP,
    UNKNOWN_OFFSET,
    AppendOrigin,
    TopicPartition,
)
from odradek.records.errors import InvalidRecords
from odradek.records.validate import Batches
from odradek.replication.delayed.purgatories import APPEND, COMMITTED, ReplicationPurgatories
from odradek.replication.partition import Partition
from odradek.replication.partition_table import PartitionTable
from odradek.replication.traffic import Traffic
from odradek.storage.log.offset_metadata import LogAppendInfo

ACKS_ALL: Final = -1
ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1

_CLIENT: Final = AppendOrigin.CLIENT

RecordErrors = list[tuple[int, str | None]]


class AppendResult:
    """One partition's outcome; its offsets are -1 (unknown) when nothing was appended; with some
    errors the log start offset is -1, too."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        error_code: ErrorCode = ErrorCode.NONE,
        error_message: str | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.error_code = error_code
        self.error_message = error_message
        self.record_errors: RecordErrors = []
        self.base_offset = UNKNOWN_OFFSET
        self.last_offset = UNKNOWN_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP
        self.log_start_offset = UNKNOWN_OFFSET

    def fail(self, error: BrokerError) -> None:
        """Takes over the error's code and text; an offset that was assigned stays known."""
        self.error_code = error.code
        self.error_message = error.message
        if isinstance(error, InvalidRecords):
            self.record_errors = error.record_errors

    def succeed(self, info: LogAppendInfo) -> None:
        """Takes over the offsets and the timestamp of the appended records."""
        self.base_offset = info.first_offset
        self.last_offset = info.last_offset
        self.log_append_time_ms = info.log_append_time_ms
        self.log_start_offset = info.log_start_offset


OnAppended = Callable[[list[AppendResult]], None]


class AppendRequest:
    """One request to append, to one or more partitions.

    `entries` pairs a partition with the batches for it; the views are stamped in place and must
    stay valid until the call that was handed the request returns. `required_acks` is -1, 0 or 1;
    anything else answers INVALID_REQUIRED_ACKS. `on_done` is called exactly once, at once or when
    the replicas have it or `timeout_ms` is over. `origin` decides what is checked, and whether
    internal topics may be written; `transaction_version` is the version of the end markers among
    the batches.
    """

    def __init__(
        self,
        required_acks: int,
        timeout_ms: int,
        origin: AppendOrigin,
        entries: Sequence[tuple[TopicPartition, Batches]],
        on_done: OnAppended,
        transaction_version: int = 0,
    ) -> None:
        self.required_acks = required_acks
        self.timeout_ms = timeout_ms
        self.origin = origin
        self.entries = entries
        self.on_done = on_done
        self.transaction_version = transaction_version


# Errors of a log for which Kafka does not tell the log start offset.
_WITHOUT_START: Final = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)

# The key of one call of a log: one partition, one origin, one version of transactions.
_Key = tuple[TopicPartition, AppendOrigin, int]


class _Entry:
    """One partition's part of one request, on its way to the log."""

    def __init__(self, result: AppendResult, batches: Batches, required_acks: int) -> None:
        self.result = result
        self.batches = batches
        self.required_acks = required_acks


class RequestAppender:
    """Appends requests together. Keeps nothing between calls, so a call may come in a call: waking
    a fetch may let its connection continue, and with it another append.
    """

    def __init__(
        self, partitions: PartitionTable, purgatories: ReplicationPurgatories, traffic: Traffic
    ) -> None:
        self._partitions = partitions
        self._purgatories = purgatories
        self._traffic = traffic

    def append(self, requests: Sequence[AppendRequest]) -> list[list[AppendResult]]:
        """Appends everything; one list of results a request, in the order of its entries."""
        answers: list[list[AppendResult]] = []
        by_partition: dict[_Key, list[_Entry]] = {}
        for request in requests:
            results: list[AppendResult] = []
            acks = request.required_acks
            acks_are_legal = ACKS_ALL <= acks <= ACKS_LEADER
            from_client = request.origin is _CLIENT
            for topic_partition, batches in request.entries:
                result = AppendResult(topic_partition)
                results.append(result)
                if not acks_are_legal:
                    result.fail(BrokerError(ErrorCode.INVALID_REQUIRED_ACKS))
                elif from_client and topic_partition.topic in INTERNAL_TOPICS:
                    result.fail(_internal_topic(topic_partition))
                else:
                    key = (topic_partition, request.origin, request.transaction_version)
                    entries = by_partition.get(key)
                    if entries is None:
                        by_partition[key] = entries = []
                    entries.append(_Entry(result, batches, acks))
            answers.append(results)
        for key, entries in by_partition.items():
            self._append_to(key, entries)
            if self._traffic.is_counted:
                self._count_refused(entries)
        return answers

    def _count_refused(self, entries: list[_Entry]) -> None:
        for entry in entries:
            result = entry.result
            if result.error_code != ErrorCode.NONE:
                self._traffic.refused(result.topic_partition.topic, result.error_code)

    def _append_to(self, key: _Key, entries: list[_Entry]) -> None:
        topic_partition, origin, transaction_version = key
        try:
            partition = self._partitions.get(topic_partition)
            admitted = _admit(partition, entries)
            if not admitted:
                return
            outcomes = partition.append_to_leader(
                [each.batches for each in admitted], origin, transaction_version
            )
        except BrokerError as error:
            _fail_all(entries, error)
            return
        appended = False
        for entry, outcome in zip(admitted, outcomes, strict=True):
            if isinstance(outcome, BrokerError):
                entry.result.fail(outcome)
                if outcome.code not in _WITHOUT_START and partition.log is not None:
                    entry.result.log_start_offset = partition.log.log_start_offset
            else:
                entry.result.succeed(outcome)
                appended = True
                if self._traffic.is_counted:
                    size_bytes, record_count = outcome.size_bytes, outcome.record_count
                    self._traffic.appended(topic_partition.topic, size_bytes, record_count)
        if appended:
            self._purgatories.wake_fetches(partition.operation_key, APPEND)
            if partition.maybe_increment_leader_high_watermark():
                self._purgatories.wake_all(partition.operation_key, COMMITTED)


def _admit(partition: Partition, entries: list[_Entry]) -> list[_Entry]:
    """Fails entries that need more in-sync replicas than there are; returns the others."""
    refusal = partition.refuse_under_min_in_sync()
    if refusal is None:
        return entries
    admitted: list[_Entry] = []
    for entry in entries:
        if entry.required_acks == ACKS_ALL:
            entry.result.fail(refusal)
        else:
            admitted.append(entry)
    return admitted


def _fail_all(entries: list[_Entry], error: BrokerError) -> None:
    for entry in entries:
        if entry.result.error_code == ErrorCode.NONE:
            entry.result.fail(error)


def _internal_topic(topic_partition: TopicPartition) -> BrokerError:
    return BrokerError(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"{topic_partition.topic} is an internal topic: clients cannot append to it",
    )
