"""Many produce requests of one socket read, appended with one write per partition.

Requests are taken apart by partition, each partition's log is handed all of its batches in
the order of the requests, and the outcomes find their way back into the requests' answers.
For every partition the order is: append, wake the fetches that wait for it, move the high
watermark, and, if that moved, wake whatever waits for it.

A partition that cannot append at all (not the leader, directory failed) fails the entries
for it and nothing else.
"""

from collections.abc import Sequence
from typing import Final

from odradek.errors import BrokerError, ErrorCode
from odradek.model import INTERNAL_TOPICS, AppendOrigin, TopicPartition
from odradek.records.validate import Batches
from odradek.replication.append import (
    ACKS_ALL,
    ACKS_LEADER,
    AppendRequest,
    AppendResult,
)
from odradek.replication.partition import Partition
from odradek.replication.partition_table import PartitionTable
from odradek.replication.purgatories import APPEND, COMMITTED, ReplicationPurgatories

# What goes to a log in one call: one partition, one origin, one version of transactions.
_Key = tuple[TopicPartition, AppendOrigin, int]
_CLIENT: Final = AppendOrigin.CLIENT


class _Entry:
    """One partition's share of one request, on its way to the log."""

    def __init__(self, result: AppendResult, batches: Batches, required_acks: int) -> None:
        self.result = result
        self.batches = batches
        self.required_acks = required_acks


class BatchAppender:
    """Appends requests together. Keeps nothing between calls, so a call may come in a call:
    waking a fetch may let its connection go on, and with it another append.
    """

    def __init__(self, partitions: PartitionTable, purgatories: ReplicationPurgatories) -> None:
        self._partitions = partitions
        self._purgatories = purgatories

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
        return answers

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
            else:
                entry.result.succeed(outcome)
                appended = True
        if appended:
            self._purgatories.wake_fetches(partition.operation_key, APPEND)
            if partition.maybe_increment_leader_high_watermark():
                self._purgatories.wake_all(partition.operation_key, COMMITTED)


def _admit(partition: Partition, entries: list[_Entry]) -> list[_Entry]:
    """Fails what asks for more in-sync replicas than there are; returns the rest."""
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
