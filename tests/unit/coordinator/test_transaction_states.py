"""The state table of transactional ids, as a table."""

import pytest

from odradek.coordinator.records.transaction_records import TransactionState
from odradek.coordinator.transactions.states import TRANSITIONS, TransactionEvent, transition

S = TransactionState
IDLE = {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}
LEGAL_PREDECESSORS = {
    S.EMPTY: IDLE,
    S.ONGOING: IDLE | {S.ONGOING},
    S.PREPARE_COMMIT: {S.ONGOING},
    S.PREPARE_ABORT: IDLE | {S.ONGOING, S.PREPARE_EPOCH_FENCE},
    S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
    S.COMPLETE_ABORT: {S.PREPARE_ABORT},
    S.DEAD: IDLE,
    S.PREPARE_EPOCH_FENCE: {S.ONGOING},
}


def test_every_state_has_kafkas_predecessors():
    """Fails when an id can go a way that Kafka's cannot, or cannot go one that it can."""
    found = {state: set() for state in S}
    for (before, _), after in TRANSITIONS.items():
        found[after].add(before)
    assert found == LEGAL_PREDECESSORS


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("event", TransactionEvent)
def test_what_is_not_in_the_table_cannot_happen(state, event):
    """Fails when an impossible event would go unnoticed."""
    if (state, event) in TRANSITIONS:
        assert transition(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(AssertionError):
            transition(state, event)
