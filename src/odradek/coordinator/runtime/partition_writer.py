"""The port to the log of an internal topic: append, learn of the commit, read back.

The server implements it over replication; tests keep a list. A coordinator needs no more of
a log than this, and so knows nothing of replicas.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from mypy_extensions import mypyc_attr

from odradek.errors import BrokerError

OnCommitted = Callable[[BrokerError | None], None]


class LogBounds(NamedTuple):
    """The log start offset and the log end offset."""

    start_offset: int
    end_offset: int


@mypyc_attr(allow_interpreted_subclasses=True)
class PartitionWriter(ABC):
    """The partitions of one internal topic."""

    @abstractmethod
    def append(
        self,
        partition: int,
        batch: bytearray,
        on_committed: OnCommitted,
        transaction_version: int = 0,
    ) -> None:
        """Appends one record batch; `on_committed` is called exactly once, maybe before this
        returns. An end marker is checked by the rules of its `transaction_version`.

        It gets None when the high watermark has passed the batch: every in-sync replica has it. It
        gets an error when the batch is not in the log, or when this broker has lost the leadership
        before the outcome was known. There is no time-out: the caller's state must not diverge from
        the log because a request has waited too long.
        """

    @abstractmethod
    def max_batch_bytes(self, partition: int) -> int:
        """The largest batch that the partition takes (`max.message.bytes` of its topic).

        Raises:
            BrokerError: this broker does not lead the partition.
        """

    @abstractmethod
    def bounds(self, partition: int) -> LogBounds:
        """The bounds of the log.

        Raises:
            BrokerError: this broker does not lead the partition.
        """

    @abstractmethod
    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Batches from `offset` on: about `max_bytes` of them, the first one always whole.

        The last one may be cut short. Empty at the end of the log.

        Raises:
            BrokerError: the partition cannot be read here, or not from that offset.
        """
