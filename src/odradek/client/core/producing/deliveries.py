"""The callers that wait for records' results: a future for each record, or one for all that were
sent together.

Compiled: it is called for every record.
"""

from collections.abc import Callable
from typing import Protocol

from odradek.client.errors import KafkaError
from odradek.client.record_metadata import RecordMetadata


class Delivery(Protocol):
    """The waiter for the end of a record: a future."""

    def done(self) -> bool:
        """Whether the future is done."""
        ...

    def set_result(self, result: RecordMetadata, /) -> None:
        """Reports that the record is in the log."""
        ...


class BulkDelivery:
    """Records that were sent together, with one report: `on_end` is called once, when the last of
    them is in the log or has failed."""

    def __init__(self, record_count: int, on_end: "Callable[[BulkDelivery], None]") -> None:
        self.places: list[RecordMetadata | None] = [None] * record_count
        """The metadata of each record; None if it is not in the log (yet)."""
        self.errors: dict[int, KafkaError] = {}
        """The errors of records, by their index."""
        self._left = record_count
        self._on_end = on_end

    def delivered(self, index: int, place: RecordMetadata) -> None:
        """Reports a record that is in the log."""
        self.places[index] = place
        self._one_less()

    def failed(self, index: int, error: KafkaError) -> None:
        """Reports a record that will not be in the log."""
        self.errors[index] = error
        self._one_less()

    def _one_less(self) -> None:
        self._left -= 1
        if not self._left:
            self._on_end(self)
