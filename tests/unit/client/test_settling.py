"""The items of an admin's call. If these fail, an item is asked for again that was answered, or one
that would be answered yet is not, or its error does not say which limit has ended the call."""

import pytest

from odradek.client.core.retries import UNKNOWN_TOPIC_PATIENCE_MS, TimeLimit
from odradek.client.core.settling import Settling
from odradek.client.errors import KafkaError, error_for
from odradek.clock import ManualClock
from odradek.errors import ErrorCode

LIMIT_MS = 10_000
PASSING = error_for(ErrorCode.LEADER_NOT_AVAILABLE, "it moves")
UNKNOWN = error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it is not there")
REFUSED = error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")
FINAL = error_for(ErrorCode.REQUEST_TIMED_OUT, "it may be done")


class Call:
    """A call about items, on a clock."""

    def __init__(self, *items: str) -> None:
        self.clock = ManualClock()
        self.answers: dict[str, int | KafkaError] = {}
        limit = TimeLimit(self.clock, LIMIT_MS, "default.api.timeout.ms")
        self.settling = Settling(items, limit, {ErrorCode.REQUEST_TIMED_OUT}, self.answers)


def test_what_may_pass_is_asked_for_again_and_nothing_else() -> None:
    call = Call("value", "passing", "refused", "final", "missing")
    answers = {"value": 1, "passing": PASSING, "refused": REFUSED, "final": FINAL}
    errors = call.settling.take(answers)
    assert errors[:3] == [PASSING, REFUSED, FINAL]
    assert call.settling.pending == ["passing", "missing"]
    call.settling.take({"passing": 2, "missing": 3, "value": 4})
    assert call.settling.pending == []
    call.settling.raise_pending()
    assert call.settling.outcome(None) == {
        "value": 1,
        "passing": 2,
        "refused": REFUSED,
        "final": FINAL,
        "missing": 3,
    }


def test_a_topic_that_is_not_there_is_asked_for_during_its_own_time() -> None:
    """And not as long as what else is asked for."""
    call = Call("unknown", "passing")
    answers = {"unknown": UNKNOWN, "passing": PASSING}
    call.settling.take(answers)
    with pytest.raises(KafkaError) as raised:
        call.settling.raise_pending()
    assert raised.value is PASSING, "that of who may be asked longest"
    call.clock.advance(UNKNOWN_TOPIC_PATIENCE_MS)
    call.settling.take(answers)
    assert call.settling.pending == ["passing"]
    call.clock.advance(LIMIT_MS)
    found = call.settling.outcome(None)
    assert found["unknown"] is UNKNOWN, "no limit of the call has ended that"
    assert str(found["passing"]).endswith(
        "it moves; no other outcome within 10000 ms (default.api.timeout.ms)"
    )


def test_an_error_names_no_limit_that_has_not_ended_it() -> None:
    call = Call("passing", "refused", "final")
    answers = {"passing": PASSING, "refused": REFUSED, "final": FINAL}
    call.settling.take(answers)
    assert call.settling.outcome(None) == answers, "the attempts were used up"
    call.clock.advance(LIMIT_MS)
    found = call.settling.outcome(None)
    assert (found["refused"], found["final"]) == (REFUSED, FINAL)
    assert found["passing"] is not PASSING


def test_what_failed_as_a_whole_is_the_error_of_what_has_none() -> None:
    """Others may have answered meanwhile, one by one: their answers count."""
    call = Call("answered", "silent")
    call.answers["answered"] = 1
    assert call.settling.outcome(PASSING) == {"answered": 1, "silent": PASSING}
