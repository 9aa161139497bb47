"""The port through which a share partition stores its state in the share coordinator."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from mypy_extensions import mypyc_attr

from odradek.errors import BrokerError
from odradek.replication.share.states import RecordState

UNINITIALIZED_START_OFFSET: Final = -1
"""A start that nobody has stored: the group's settings say where to begin."""
NO_DELIVERY_COMPLETE_COUNT: Final = -1


class SharePartitionKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.group_id}:{self.topic_id}:{self.partition}"


class StateBatch(NamedTuple):
    """Consecutive records in the same state, as they are stored. Available ones may be handed out
    from `due_ms` on, in milliseconds since 1970; 0 is at once."""

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int
    due_ms: int = 0


class ShareState(NamedTuple):
    """The stored state of a share partition. `delivery_complete_count` is how many records from the
    start on are finished, -1 if unknown."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = NO_DELIVERY_COMPLETE_COUNT


class ShareSummary(NamedTuple):
    """The same without the records between start and end, with the leader that wrote last."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = NO_DELIVERY_COMPLETE_COUNT


OnPersisted = Callable[[BrokerError | None], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class SharePersister(ABC):
    """Reads and writes states. Every callback is called exactly once, maybe before the call
    returns."""

    @abstractmethod
    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, on_done: OnPersisted
    ) -> None:
        """Makes a state, in place of one of an older epoch."""

    @abstractmethod
    def delete(self, key: SharePartitionKey, on_done: OnPersisted) -> None:
        """Deletes a state; deleting a missing one succeeds."""

    @abstractmethod
    def summarize(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        on_done: Callable[[ShareSummary | BrokerError], None],
    ) -> None:
        """The stored state in short; a missing one has no start."""

    @abstractmethod
    def read(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        on_done: Callable[[ShareState | BrokerError], None],
    ) -> None:
        """Reads the stored state; from here on older leaders are fenced off."""

    @abstractmethod
    def write(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        state: ShareState,
        on_done: OnPersisted,
    ) -> None:
        """Stores the changes: the start, and the batches of `state`."""


def combined(batches: Sequence[StateBatch]) -> tuple[StateBatch, ...]:
    """The batches in order, with equal neighbours joined."""
    joined: list[StateBatch] = []
    for batch in batches:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.last_offset + 1 == batch.first_offset
            and last.state is batch.state
            and last.delivery_count == batch.delivery_count
            and last.due_ms == batch.due_ms
        ):
            joined[-1] = last._replace(last_offset=batch.last_offset)
        else:
            joined.append(batch)
    return tuple(joined)
