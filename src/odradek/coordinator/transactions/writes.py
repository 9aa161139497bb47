"""The port through which a write asks whether its transaction is open.

The leader of a partition asks before the first write of a transaction; the transactional id may
be coordinated by this broker or by another.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

from mypy_extensions import mypyc_attr

from odradek.coordinator.transactions.requests import AddPartitionsRequest
from odradek.errors import ErrorCode

OnCodes = Callable[[list[ErrorCode]], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class TransactionWrites(ABC):
    """The port to the coordinators of transactional ids, on any broker."""

    @abstractmethod
    def add_or_verify(
        self, request: AddPartitionsRequest, verify_only: bool, on_done: OnCodes
    ) -> None:
        """Adds the partitions to the open transaction, or only asks whether they belong to it.

        `on_done` is called exactly once, maybe before this returns, with a code for each
        partition.
        """
