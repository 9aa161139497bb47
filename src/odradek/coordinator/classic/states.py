"""The states of a classic group, as a table of state x event.

Each row is a possible event of a group; `transition` raises for all others.
docs/reference/group-states.md is drawn from this table.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class GroupState(StrEnum):
    """States, by the names that clients and tools know."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(StrEnum):
    """An event of a group, in words."""

    REBALANCE = "a rebalance begins"
    JOINED = "the members have joined"
    DESERTED = "nobody is left"
    ASSIGNED = "the assignment is stored"
    REMOVED = "the group is removed"


STATE_TEXTS: Final[Mapping[GroupState, str]] = MappingProxyType(
    {
        GroupState.EMPTY: "No members; offsets may be left, and the group with them.",
        GroupState.PREPARING_REBALANCE: "Members are called together: `DelayedJoin` waits.",
        GroupState.COMPLETING_REBALANCE: "A generation has begun; the leader's assignment is "
        "awaited, by `DelayedSync` and by every member's SyncGroup.",
        GroupState.STABLE: "Everybody has an assignment; heartbeats go on.",
        GroupState.DEAD: "Removed, by hand or with its last offset, or handed to another broker.",
    }
)

TRANSITIONS: Final[Mapping[tuple[GroupState, GroupEvent], GroupState]] = MappingProxyType(
    {
        (GroupState.EMPTY, GroupEvent.REBALANCE): GroupState.PREPARING_REBALANCE,
        (GroupState.EMPTY, GroupEvent.REMOVED): GroupState.DEAD,
        (GroupState.PREPARING_REBALANCE, GroupEvent.JOINED): GroupState.COMPLETING_REBALANCE,
        (GroupState.PREPARING_REBALANCE, GroupEvent.DESERTED): GroupState.EMPTY,
        (GroupState.PREPARING_REBALANCE, GroupEvent.REMOVED): GroupState.DEAD,
        (GroupState.COMPLETING_REBALANCE, GroupEvent.ASSIGNED): GroupState.STABLE,
        (GroupState.COMPLETING_REBALANCE, GroupEvent.REBALANCE): GroupState.PREPARING_REBALANCE,
        (GroupState.COMPLETING_REBALANCE, GroupEvent.REMOVED): GroupState.DEAD,
        (GroupState.STABLE, GroupEvent.REBALANCE): GroupState.PREPARING_REBALANCE,
        (GroupState.STABLE, GroupEvent.REMOVED): GroupState.DEAD,
    }
)


def transition(state: GroupState, event: GroupEvent) -> GroupState:
    """The state after an event.

    Raises:
        AssertionError: that cannot happen in this state.
    """
    after = TRANSITIONS.get((state, event))
    assert after is not None, f"'{event}' cannot happen to a group that is {state}"
    return after
