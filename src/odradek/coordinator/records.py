"""What a coordinator writes: a key and a value, still as values, and how they become bytes.

A record without a value is a tombstone: it ends what its key stands for.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import NamedTuple

from mypy_extensions import mypyc_attr


class CoordinatorRecord(NamedTuple):
    """One change of durable state."""

    key: Hashable
    value: object | None


class RecordError(ValueError):
    """The bytes of a key or a value are not what their version says."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RecordCodec(ABC):
    """The formats of one internal topic."""

    @abstractmethod
    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """The record as it stands in the log.

        Raises:
            ValueError: it cannot be written: a text is longer than the format allows.
        """

    @abstractmethod
    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """The record that the bytes stand for; None for a kind that is not known here.

        Raises:
            RecordError: they are malformed.
        """
