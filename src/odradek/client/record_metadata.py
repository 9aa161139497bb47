"""Where a record is, for its producer."""

from typing import NamedTuple


class RecordMetadata(NamedTuple):
    """Where a record is; the offset is -1 without acknowledgements."""

    topic: str
    partition: int
    offset: int
    timestamp: int
