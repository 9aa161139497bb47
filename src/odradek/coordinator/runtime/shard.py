"""`CoordinatorShard`: the state of one partition of an internal topic, and the callbacks that it
may use.

The runtime replays the log into it and runs commands on it; a command looks at it and returns a
`CoordinatorResult`. The runtime does not know the meaning of the records.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar, final

from mypy_extensions import mypyc_attr

from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.runtime.partition_writer import OnCommitted
from odradek.errors import BrokerError
from odradek.model import TransactionResult

R = TypeVar("R")

OnLate = Callable[[], None]

Uncommitted = Callable[[], Iterator[CoordinatorRecord]]
"""The records of a shard that are being written, and not replayed yet."""


@mypyc_attr(allow_interpreted_subclasses=True)
class CoordinatorShard(ABC):
    """The state of one partition. Called on the broker's loop only."""

    @abstractmethod
    def replay(self, record: CoordinatorRecord, producer_id: int) -> None:
        """Applies a committed record. Must not fail, must not append, must not answer.

        With a `producer_id` other than -1 the record belongs to that producer's transaction, and is
        valid only if its end marker commits it.
        """

    @abstractmethod
    def on_loaded(self) -> None:
        """Takes charge: the log has been replayed to its end."""

    @abstractmethod
    def on_unloaded(self) -> None:
        """Ends the shard's time-outs and answers its waiting requests, since it is dropped."""

    # The other methods are for shards whose records may belong to transactions.

    def replay_end_transaction_marker(  # noqa: B027 - by default nothing happens
        self, producer_id: int, producer_epoch: int, result: TransactionResult
    ) -> None:
        """Applies a committed end marker: the producer's records become valid, or are dropped."""

    def on_transactional_append(  # noqa: B027
        self, producer_id: int, records: Sequence[CoordinatorRecord]
    ) -> None:
        """Notes records of a transaction that are about to be appended: requests for stable offsets
        have to wait from now on. `replay` follows, or `on_transactional_failure`."""

    def on_transactional_failure(  # noqa: B027
        self, producer_id: int, records: Sequence[CoordinatorRecord]
    ) -> None:
        """Drops such records, which did not get into the log."""


@final
class CoordinatorResult(Generic[R]):
    """The decision of a command: the records to write, and the response to give once they are
    committed.

    `follow_up` of an exclusive command is called after the answer when the records are replayed,
    however late; never if they are lost.
    """

    def __init__(
        self,
        records: Sequence[CoordinatorRecord],
        response: R,
        follow_up: Callable[[], None] | None = None,
    ) -> None:
        self.records = records
        self.response = response
        self.follow_up = follow_up


class Append(Protocol):
    """Lets a shard write records without a command."""

    def __call__(
        self,
        records: Sequence[CoordinatorRecord],
        on_committed: OnCommitted,
        on_late: OnLate | None = None,
    ) -> None:
        """`on_committed` is called once, when the records are replayed or lost; `on_late` if the
        outcome is not known in time."""
        ...


class Execute(Protocol):
    """Lets a shard run its own commands, after the others of the same key, as the runtime runs
    `exclusive` ones."""

    def __call__(
        self,
        key: str,
        command: Callable[[], CoordinatorResult[R]],
        on_done: Callable[[R | BrokerError], None],
    ) -> None:
        """`on_done` is called once, with the response when the records are committed."""
        ...
