"""The state table of classic groups, as a table."""

import pytest

from odradek.coordinator.classic.states import TRANSITIONS, GroupEvent, GroupState, transition

LEGAL_PREDECESSORS = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {
        GroupState.EMPTY,
        GroupState.STABLE,
        GroupState.COMPLETING_REBALANCE,
    },
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState) - {GroupState.DEAD},
}


def test_every_state_has_kafkas_predecessors():
    """Fails when a group can go a way that Kafka's cannot, or cannot go one that it can."""
    found = {state: set() for state in GroupState}
    for (before, _), after in TRANSITIONS.items():
        found[after].add(before)
    assert found == LEGAL_PREDECESSORS


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("event", GroupEvent)
def test_what_is_not_in_the_table_cannot_happen(state, event):
    """Fails when an impossible event would go unnoticed."""
    if (state, event) in TRANSITIONS:
        assert transition(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(AssertionError):
            transition(state, event)


def test_nothing_comes_back_from_the_dead():
    """Fails when a removed group could still change."""
    assert not [event for state, event in TRANSITIONS if state is GroupState.DEAD]
