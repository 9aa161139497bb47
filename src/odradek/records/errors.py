"""The faults that records can have, as the broker's errors.

Two kinds. `CorruptRecords`: the bytes cannot be trusted (length, magic, checksum, a codec that
fails); a reader of the log stops there. `InvalidRecords`: the bytes are what the client meant, and
Kafka does not accept them; it may point at single records of the batch. Interpreted, so that
compiled modules can raise them and any code can subclass them.
"""

from collections.abc import Sequence

from odradek.errors import BrokerError, ErrorCode


class CorruptRecords(BrokerError):
    """The bytes were changed after they were written: CORRUPT_MESSAGE."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class UnsupportedCompression(BrokerError):
    """A codec that does not exist: UNSUPPORTED_COMPRESSION_TYPE."""

    def __init__(self, codec_id: int) -> None:
        super().__init__(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{codec_id} is not the id of a codec"
        )


class InvalidRecords(BrokerError):
    """Records that Kafka refuses; `record_errors` are (index in the batch, why) pairs.

    The code is INVALID_RECORD unless another is given (INVALID_TIMESTAMP, MESSAGE_TOO_LARGE).
    """

    def __init__(
        self,
        message: str,
        record_errors: Sequence[tuple[int, str | None]] = (),
        code: ErrorCode = ErrorCode.INVALID_RECORD,
    ) -> None:
        super().__init__(code, message)
        self.record_errors = list(record_errors)
