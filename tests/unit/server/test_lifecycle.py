"""The states of a broker: the table itself."""

import pytest

from odradek.server.lifecycle import TRANSITIONS, BrokerEvent, BrokerState, Lifecycle


def test_a_broker_lives_and_can_live_again() -> None:
    """Goal: the straight way through, twice."""
    lifecycle = Lifecycle()
    for _ in range(2):
        seen = []
        for event in (
            BrokerEvent.START,
            BrokerEvent.RECOVER,
            BrokerEvent.SERVE,
            BrokerEvent.STOP,
            BrokerEvent.LEAVE,
            BrokerEvent.END,
        ):
            lifecycle.transition(event)
            seen.append(lifecycle.state)
        assert seen == [
            BrokerState.STARTING,
            BrokerState.RECOVERY,
            BrokerState.RUNNING,
            BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            BrokerState.SHUTTING_DOWN,
            BrokerState.NOT_RUNNING,
        ]


def test_every_state_leads_back_to_the_end() -> None:
    """Goal: no state is a trap, and every one is in the table."""
    assert set(TRANSITIONS) == set(BrokerState)
    for state in BrokerState:
        reached = {state}
        while True:
            more = {target for each in reached for target in TRANSITIONS[each].values()}
            if more <= reached:
                break
            reached |= more
        assert BrokerState.NOT_RUNNING in reached


def test_an_illegal_event_is_our_mistake() -> None:
    """Goal: stopping twice is found at once."""
    with pytest.raises(AssertionError, match="STOP cannot happen to a broker in NOT_RUNNING"):
        Lifecycle().transition(BrokerEvent.STOP)
