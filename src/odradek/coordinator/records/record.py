"""A coordinator's record: a key and a value, still as values, and how they become bytes.

A record without a value is a tombstone: it removes the object of its key.
"""

from abc import ABC, abstractmethod
from typing import final

from mypy_extensions import mypyc_attr


@final
class CoordinatorRecord:
    """One change of durable state. Not a tuple: those take longer to make."""

    def __init__(self, key: object, value: object | None) -> None:
        self.key = key
        self.value = value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, CoordinatorRecord)
            and self.key == other.key
            and self.value == other.value
        )

    def __repr__(self) -> str:
        return f"CoordinatorRecord({self.key!r}, {self.value!r})"


class RecordError(ValueError):
    """The bytes of a key or a value are not what their version says."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RecordCodec(ABC):
    """The formats of one internal topic."""

    @abstractmethod
    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """The record as it is in the log.

        Raises:
            ValueError: it cannot be written: a text is longer than the format allows.
        """

    @abstractmethod
    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """Decodes a record; None for an unknown kind.

        Raises:
            RecordError: they are malformed.
        """
