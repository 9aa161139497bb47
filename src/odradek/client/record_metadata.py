"""The place of a record in the log, for its producer."""

from typing import NamedTuple


class RecordMetadata(NamedTuple):
    """The place of a record in the log; the offset is -1 without acknowledgements."""

    topic: str
    partition: int
    offset: int
    timestamp: int
