"""The port that sends released records to the leader of their target."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from odradek.errors import BrokerError, ErrorCode
from odradek.model import UNKNOWN_OFFSET, TopicPartition

OnSent = Callable[[BrokerError | None], None]
OnLooked = Callable[[int | BrokerError], None]

NO_SEQUENCE: Final = -1


class NotAppended(BrokerError):
    """This attempt has not appended the batch, and will not. After any other error that is
    unknown."""


def outcome_of(code: ErrorCode, message: str | None, base_offset: int) -> BrokerError | None:
    """Reads the answer of a target's leader. Only appended records have an offset; a failed disk
    may keep records that it did not acknowledge."""
    if code is ErrorCode.NONE:
        return None
    if base_offset == UNKNOWN_OFFSET and code is not ErrorCode.KAFKA_STORAGE_ERROR:
        return NotAppended(code, message or code.text)
    return BrokerError(code, message or code.text)


class RecordSender(ABC):
    """Appends batches of an idempotent producer at the leaders of partitions."""

    @abstractmethod
    def send(self, target: TopicPartition, batch: bytearray, on_done: OnSent) -> None:
        """Appends one batch with acks=all. `on_done` is called exactly once, maybe before this
        returns, with None when all in-sync replicas have the batch, from now or from before, and
        with `NotAppended` when this attempt has certainly appended nothing."""

    def look(self, target: TopicPartition, producer_id: int, on_done: OnLooked) -> None:  # noqa: ARG002
        """Asks the target's leader for the last sequence of a producer; `NO_SEQUENCE` if it knows
        none. `on_done` is called exactly once. This implementation always fails."""
        on_done(BrokerError(ErrorCode.UNSUPPORTED_VERSION))
