"""The states of a record that is handed out to a share group: a table, state by event.

                 acquire                        accept
    AVAILABLE ───────────────► ACQUIRED ──────────────────► ACKNOWLEDGED
        │  ▲                   │ │ ▲ │ renew
        │  └───────────────────┘ │ └─┘
        │    release, expire     │ reject, gap; release or expire on the last delivery
        │ archive                ▼
        └──────────────────► ARCHIVED

The last two columns' states are final. A record is archived when it was rejected, has reached the
delivery limit, or is gone from the log.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class RecordState(IntEnum):
    """The states; the log contains these numbers. ACQUIRED never does: a restarted broker has no
    locks."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class RecordEvent(IntEnum):
    """An event of a record; the first five are the acknowledgements, by their wire numbers."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    ACQUIRE = 5
    EXPIRE = 6
    ARCHIVE = 7


ACKNOWLEDGEMENTS: Final = frozenset(
    {
        RecordEvent.GAP,
        RecordEvent.ACCEPT,
        RecordEvent.RELEASE,
        RecordEvent.REJECT,
        RecordEvent.RENEW,
    }
)

TRANSITIONS: Final[Mapping[tuple[RecordState, RecordEvent], RecordState]] = MappingProxyType(
    {
        (RecordState.AVAILABLE, RecordEvent.ACQUIRE): RecordState.ACQUIRED,
        (RecordState.AVAILABLE, RecordEvent.ARCHIVE): RecordState.ARCHIVED,
        (RecordState.ACQUIRED, RecordEvent.ACCEPT): RecordState.ACKNOWLEDGED,
        (RecordState.ACQUIRED, RecordEvent.REJECT): RecordState.ARCHIVED,
        (RecordState.ACQUIRED, RecordEvent.GAP): RecordState.ARCHIVED,
        (RecordState.ACQUIRED, RecordEvent.RELEASE): RecordState.AVAILABLE,
        (RecordState.ACQUIRED, RecordEvent.EXPIRE): RecordState.AVAILABLE,
        (RecordState.ACQUIRED, RecordEvent.RENEW): RecordState.ACQUIRED,
    }
)

FINAL_STATES: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


def transition(
    state: RecordState, event: RecordEvent, *, is_last_delivery: bool = False
) -> RecordState | None:
    """The state after an event; None where the event is illegal. A record that would be available
    again after its last delivery is archived."""
    after = TRANSITIONS.get((state, event))
    if after is RecordState.AVAILABLE and is_last_delivery:
        return RecordState.ARCHIVED
    return after
