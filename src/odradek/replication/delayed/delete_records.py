"""A DeleteRecords, waiting for every live replica to have moved its log start offset.

The leader moves at once; followers learn the new log start offset from the leader's answers
and report theirs with their next fetch. A partition is satisfied when the low watermark, the
smallest log start among its live replicas, has reached the wanted offset, or when the
question can no longer be asked here.
"""

from collections.abc import Callable
from typing import Final

from odradek.errors import BrokerError, ErrorCode
from odradek.model import UNKNOWN_OFFSET, TopicPartition
from odradek.purgatory import DelayedOperation
from odradek.replication.delayed.replica_states import ReplicaStates

_TIMED_OUT: Final = BrokerError(
    ErrorCode.REQUEST_TIMED_OUT, "not all live replicas had deleted the records in time"
)


class DeleteRecordsResult:
    """One partition's outcome: the low watermark, or why there is none.

    `requested_offset` is the offset before which records go, resolved by the leader.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        requested_offset: int = UNKNOWN_OFFSET,
        low_watermark: int = UNKNOWN_OFFSET,
        error: BrokerError | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.requested_offset = requested_offset
        self.low_watermark = low_watermark
        self.error = error

    @property
    def error_code(self) -> ErrorCode:
        """The error's code, or NONE."""
        return ErrorCode.NONE if self.error is None else self.error.code


OnDeleted = Callable[[list[DeleteRecordsResult]], None]


class DelayedDeleteRecords(DelayedOperation):
    """Waits under the key of every partition whose leader has deleted."""

    def __init__(
        self,
        timeout_ms: int,
        results: list[DeleteRecordsResult],
        replicas: ReplicaStates,
        on_done: OnDeleted,
    ) -> None:
        super().__init__(timeout_ms)
        self._results = results
        self._replicas = replicas
        self._on_done = on_done
        self._pending = [result for result in results if result.error is None]
        for result in self._pending:
            result.error = _TIMED_OUT

    def try_complete(self) -> bool:
        """Checks the pending partitions; completes when there is none."""
        self._pending = [result for result in self._pending if not self._is_satisfied(result)]
        return not self._pending and self.force_complete()

    def _is_satisfied(self, result: DeleteRecordsResult) -> bool:
        try:
            low_watermark = self._replicas.low_watermark(result.topic_partition)
        except BrokerError as error:
            result.error = error
            result.low_watermark = UNKNOWN_OFFSET
            return True
        result.low_watermark = low_watermark
        if low_watermark < result.requested_offset:
            return False
        result.error = None
        return True

    def on_complete(self) -> None:
        """Answers with every partition."""
        self._on_done(self._results)

    def on_expiration(self) -> None:
        """Does nothing: `on_complete` has answered."""

    def missing(self) -> str:
        """Names what it waits for, in words."""
        partitions = ", ".join(
            f"{result.topic_partition} from {result.low_watermark} to {result.requested_offset}"
            for result in self._pending
        )
        return f"log starts of {len(self._pending)} partitions: {partitions}"
