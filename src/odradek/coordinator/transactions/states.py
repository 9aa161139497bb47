"""The states of a transactional id, as a table of state x event.

Each row is a possible event of a transactional id; `transition` raises for all others.
docs/reference/transaction-states.md is drawn from it.

PrepareEpochFence is never written: it is the moment in which a transaction is taken from its
producer, and the record that follows says PrepareAbort.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from odradek.coordinator.records.transaction_records import TransactionState

_EMPTY: Final = TransactionState.EMPTY
_ONGOING: Final = TransactionState.ONGOING
_PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
_PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
_COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT
_DEAD: Final = TransactionState.DEAD
_FENCE: Final = TransactionState.PREPARE_EPOCH_FENCE

STATE_NAMES: Final[Mapping[TransactionState, str]] = MappingProxyType(
    {
        _EMPTY: "Empty",
        _ONGOING: "Ongoing",
        _PREPARE_COMMIT: "PrepareCommit",
        _PREPARE_ABORT: "PrepareAbort",
        _COMPLETE_COMMIT: "CompleteCommit",
        _COMPLETE_ABORT: "CompleteAbort",
        _DEAD: "Dead",
        _FENCE: "PrepareEpochFence",
    }
)
"""The names that clients and tools know."""


class TransactionEvent(StrEnum):
    """An event of a transactional id, in words."""

    INITIALIZED = "a producer gets the id"
    PARTITIONS_ADDED = "a partition is added"
    FENCED = "it is taken from its producer"
    COMMIT = "commit is decided"
    ABORT = "abort is decided"
    MARKED = "all markers are written"
    EXPIRED = "nobody has used it for long"


STATE_TEXTS: Final[Mapping[TransactionState, str]] = MappingProxyType(
    {
        _EMPTY: "A producer has the id and no transaction.",
        _ONGOING: "A transaction is open: partitions belong to it.",
        _PREPARE_COMMIT: "Commit is decided and stored; the markers are on their way: "
        "`DelayedMarkers` waits.",
        _PREPARE_ABORT: "Abort is decided and stored; the markers are on their way likewise.",
        _COMPLETE_COMMIT: "Every partition has its marker; the next transaction may begin.",
        _COMPLETE_ABORT: "The same after an abort.",
        _DEAD: "Forgotten: a tombstone is in the log.",
        _FENCE: "Another producer, or the time-out, takes the open transaction away; the epoch "
        "is raised and abort follows at once. Never stored.",
    }
)


def _rows() -> dict[tuple[TransactionState, TransactionEvent], TransactionState]:
    event = TransactionEvent
    idle = (_EMPTY, _COMPLETE_COMMIT, _COMPLETE_ABORT)
    rows = {(state, event.INITIALIZED): _EMPTY for state in idle}
    rows |= {(state, event.PARTITIONS_ADDED): _ONGOING for state in (*idle, _ONGOING)}
    rows |= {(state, event.ABORT): _PREPARE_ABORT for state in (_ONGOING, _FENCE, *idle)}
    rows[_ONGOING, event.COMMIT] = _PREPARE_COMMIT
    rows[_ONGOING, event.FENCED] = _FENCE
    rows[_PREPARE_COMMIT, event.MARKED] = _COMPLETE_COMMIT
    rows[_PREPARE_ABORT, event.MARKED] = _COMPLETE_ABORT
    return rows | {(state, event.EXPIRED): _DEAD for state in idle}


TRANSITIONS: Final[Mapping[tuple[TransactionState, TransactionEvent], TransactionState]] = (
    MappingProxyType(_rows())
)


def transition(state: TransactionState, event: TransactionEvent) -> TransactionState:
    """The state after an event.

    Raises:
        AssertionError: that cannot happen in this state.
    """
    after = TRANSITIONS.get((state, event))
    assert after is not None, f"'{event}' cannot happen to an id that is {STATE_NAMES[state]}"
    return after


def is_prepared(state: TransactionState) -> bool:
    """Whether an end is decided and markers are still to be written."""
    return state in (_PREPARE_COMMIT, _PREPARE_ABORT)


def may_expire(state: TransactionState) -> bool:
    """Whether an unused id in this state may be forgotten."""
    return state in (_EMPTY, _COMPLETE_COMMIT, _COMPLETE_ABORT)
