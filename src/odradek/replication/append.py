"""What is asked of an append, and what each partition answers.

One `AppendRequest` is one client's produce request: several partitions, one answer. The
results are values, in the order of the entries, because one partition's failure is none of
the others' business.
"""

from collections.abc import Callable, Sequence
from typing import Final

from odradek.errors import BrokerError, ErrorCode
from odradek.model import NO_TIMESTAMP, UNKNOWN_OFFSET, AppendOrigin, TopicPartition
from odradek.records.errors import InvalidRecords
from odradek.records.validate import Batches
from odradek.storage.log.offset_metadata import LogAppendInfo

ACKS_ALL: Final = -1
ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1

RecordErrors = list[tuple[int, str | None]]


class AppendResult:
    """One partition's outcome; offsets are unknown (-1) when nothing was appended."""

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
        """Takes over where the records came to lie."""
        self.base_offset = info.first_offset
        self.last_offset = info.last_offset
        self.log_append_time_ms = info.log_append_time_ms
        self.log_start_offset = info.log_start_offset


OnAppended = Callable[[list[AppendResult]], None]


class AppendRequest:
    """One request to append, to one or more partitions.

    `entries` pairs a partition with the batches for it; the views are stamped in place and
    must stay valid until the call that was handed the request returns. `required_acks` is
    -1, 0 or 1; anything else answers INVALID_REQUIRED_ACKS. `on_done` is called exactly
    once, at once or when the replicas have it or `timeout_ms` is over. `origin` says what is
    checked, and whether internal topics may be written; `transaction_version` is that of the
    end markers among the batches.
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
