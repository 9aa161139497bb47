"""The port to the log of an internal topic: append, hear when it is committed, read back.

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
    """Where a log begins and ends; the end is the next offset to be written."""

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

        With None when the high watermark has passed the batch: every in-sync replica has it.
        With an error when it is not in the log, or when this broker has lost the leadership
        before it could tell. There is no time-out: the caller's state must not part from the
        log's because somebody grew impatient.
        """

    @abstractmethod
    def max_batch_bytes(self, partition: int) -> int:
        """How large a batch the partition takes, as its topic says (`max.message.bytes`).

        Raises:
            BrokerError: this broker does not lead the partition.
        """

    @abstractmethod
    def bounds(self, partition: int) -> LogBounds:
        """Where the log begins and ends.

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
