"""The state table of classic groups, as a table."""

from tests.unit.coordinator.state_tables import assert_happens_by_the_table, predecessors

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
    assert predecessors(TRANSITIONS, GroupState) == LEGAL_PREDECESSORS


def test_what_is_not_in_the_table_cannot_happen():
    """Fails when an impossible event would go unnoticed."""
    assert_happens_by_the_table(transition, TRANSITIONS, GroupState, GroupEvent)


def test_nothing_comes_back_from_the_dead():
    """Fails when a removed group could still change."""
    assert not [event for state, event in TRANSITIONS if state is GroupState.DEAD]
