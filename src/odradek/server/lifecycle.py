"""The states of a broker, Kafka's names and numbers, as a table with one function that moves.

    NOT_RUNNING --start--> STARTING --recover--> RECOVERY --serve--> RUNNING
    RUNNING --stop--> PENDING_CONTROLLED_SHUTDOWN --leave--> SHUTTING_DOWN --end--> NOT_RUNNING

A start that fails goes through SHUTTING_DOWN as well, since what was opened must be closed.
"""

from enum import Enum, IntEnum, auto
from typing import Final


class BrokerState(IntEnum):
    """The state of a broker, with the numbers of Kafka's `BrokerState` metric."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class BrokerEvent(Enum):
    """An event that moves a broker from state to state."""

    START = auto()
    RECOVER = auto()
    SERVE = auto()
    STOP = auto()
    LEAVE = auto()
    FAIL = auto()
    END = auto()


TRANSITIONS: Final[dict[BrokerState, dict[BrokerEvent, BrokerState]]] = {
    BrokerState.NOT_RUNNING: {BrokerEvent.START: BrokerState.STARTING},
    BrokerState.STARTING: {
        BrokerEvent.RECOVER: BrokerState.RECOVERY,
        BrokerEvent.FAIL: BrokerState.SHUTTING_DOWN,
    },
    BrokerState.RECOVERY: {
        BrokerEvent.SERVE: BrokerState.RUNNING,
        BrokerEvent.FAIL: BrokerState.SHUTTING_DOWN,
    },
    BrokerState.RUNNING: {BrokerEvent.STOP: BrokerState.PENDING_CONTROLLED_SHUTDOWN},
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: {BrokerEvent.LEAVE: BrokerState.SHUTTING_DOWN},
    BrokerState.SHUTTING_DOWN: {BrokerEvent.END: BrokerState.NOT_RUNNING},
}


class Lifecycle:
    """The state of one broker. `transition` is the only way to change it."""

    def __init__(self) -> None:
        self.state = BrokerState.NOT_RUNNING

    def transition(self, event: BrokerEvent) -> None:
        """Moves as the table says; an event that it does not know here is our mistake."""
        target = TRANSITIONS[self.state].get(event)
        assert target is not None, f"{event.name} cannot happen to a broker in {self.state.name}"
        self.state = target
