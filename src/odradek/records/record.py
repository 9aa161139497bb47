"""One record, whatever format it was read from."""

from mypy_extensions import mypyc_attr

from odradek.records.batch import BatchHeader


# Out of the garbage collector's sight: a record is in no cycle, and there are very many.
@mypyc_attr(acyclic=True)
class Record:
    """A record with the batch it came in, which says what all its records have in common.

    `timestamp` is in milliseconds, -1 where magic 0 had none; of a LogAppendTime batch it is
    the batch's. Records of magic 0 and 1 have no headers.
    """

    def __init__(
        self,
        batch: BatchHeader,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
    ) -> None:
        self.batch = batch
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime."""
        return self.batch.timestamp_type

    @property
    def is_control(self) -> bool:
        """True for a transaction's end marker, which consumers never see."""
        return self.batch.is_control

    @property
    def sequence(self) -> int:
        """The idempotent producer's number of this record, -1 if there was none."""
        if self.batch.base_sequence < 0:
            return -1
        return (self.batch.base_sequence + self.offset - self.batch.base_offset) & 0x7FFFFFFF

    def __repr__(self) -> str:
        return f"Record({self.offset}, {self.timestamp}, {self.key!r}, {self.value!r})"
