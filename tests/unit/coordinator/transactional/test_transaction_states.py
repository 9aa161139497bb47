"""The state table of transactional ids, as a table."""

from tests.unit.coordinator.state_tables import assert_happens_by_the_table, predecessors

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
    assert predecessors(TRANSITIONS, S) == LEGAL_PREDECESSORS


def test_what_is_not_in_the_table_cannot_happen():
    """Fails when an impossible event would go unnoticed."""
    assert_happens_by_the_table(transition, TRANSITIONS, S, TransactionEvent)
