"""The states of a member of a classic group, and of its join.

UNJOINED --join sent--> REBALANCING --assignment came--> STABLE
REBALANCING, STABLE --left, thrown out, or failed--> UNJOINED
STABLE --join sent--> REBALANCING
"""

from enum import Enum
from typing import Final


class MemberState(Enum):
    """The states of a member."""

    UNJOINED = "unjoined"
    REBALANCING = "rebalancing"
    STABLE = "stable"


class MemberEvent(Enum):
    """An event that changes a connection's state."""

    JOIN_SENT = "join sent"
    ASSIGNED = "assignment came"
    LOST = "left, thrown out, or failed"


TRANSITIONS: Final[dict[MemberState, dict[MemberEvent, MemberState]]] = {
    MemberState.UNJOINED: {
        MemberEvent.JOIN_SENT: MemberState.REBALANCING,
        MemberEvent.LOST: MemberState.UNJOINED,
    },
    MemberState.REBALANCING: {
        MemberEvent.JOIN_SENT: MemberState.REBALANCING,
        MemberEvent.ASSIGNED: MemberState.STABLE,
        MemberEvent.LOST: MemberState.UNJOINED,
    },
    MemberState.STABLE: {
        MemberEvent.JOIN_SENT: MemberState.REBALANCING,
        MemberEvent.LOST: MemberState.UNJOINED,
    },
}


def moved(state: MemberState, event: MemberEvent) -> MemberState:
    """The state after an event."""
    target = TRANSITIONS[state].get(event)
    assert target is not None, f"{event.name} cannot happen to a member that is {state.name}"
    return target
