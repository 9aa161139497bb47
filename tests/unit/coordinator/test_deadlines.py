"""Deadlines of members, without a group."""

import pytest

from odradek.coordinator.consumer.revocation import DelayedRevocation, RevocationKey
from odradek.coordinator.modern.deadlines import (
    Deadlines,
    DelayedSession,
    MemberDeadline,
    SessionKey,
)
from odradek.purgatory import DelayedOperationPurgatory
from odradek.timer import MockTimer


class Watch:
    """Deadlines over a timer that the test moves; who was late is noted with the time."""

    def __init__(self) -> None:
        self.timer = MockTimer()
        self.purgatory = DelayedOperationPurgatory("Heartbeat", self.timer)
        self.deadlines = Deadlines(self.purgatory)
        self.late: list[tuple[str, int]] = []

    def session(self, member_id: str, delay_ms: int) -> SessionKey:
        key = SessionKey("g", member_id)
        self.deadlines.start(key, DelayedSession(delay_ms, lambda _late: self.note(member_id)))
        return key

    def note(self, member_id: str) -> None:
        self.late.append((member_id, self.timer.now_ms))


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_a_member_that_is_late_is_told_once(watch: Watch) -> None:
    """A dead member would keep its partitions, or be thrown out twice."""
    watch.session("a", 100)
    watch.session("b", 200)
    watch.timer.advance_clock(150)
    assert watch.late == [("a", 100)]
    watch.timer.advance_clock(1000)
    assert watch.late == [("a", 100), ("b", 200)]


def test_a_heartbeat_ends_the_session_and_begins_another(watch: Watch) -> None:
    """The old deadline must be out of the timer, not only out of mind."""
    watch.session("a", 100)
    watch.timer.advance_clock(99)
    key = watch.session("a", 100)
    assert watch.timer.size == 1
    watch.timer.advance_clock(99)
    assert watch.late == []
    assert watch.deadlines.awaits(key)
    watch.deadlines.met(key)
    assert not watch.deadlines.awaits(key)
    watch.timer.advance_clock(1000)
    assert watch.late == []


def test_a_session_and_a_revocation_of_one_member_are_apart(watch: Watch) -> None:
    """A heartbeat says that the member lives, not that it has given anything back."""
    session = watch.session("a", 100)
    revocation = RevocationKey("g", "a")
    assert session != revocation
    watch.deadlines.start(revocation, DelayedRevocation(300, lambda _late: watch.note("a keeps")))
    watch.deadlines.met(session)
    watch.timer.advance_clock(300)
    assert watch.late == [("a keeps", 300)]


def test_clearing_awaits_nothing_any_more(watch: Watch) -> None:
    """A group that was unloaded elsewhere has no business with its members."""
    for name in ("a", "b"):
        watch.session(name, 100)
    watch.deadlines.clear()
    assert (watch.timer.size, watch.purgatory.delayed) == (0, 0)
    watch.deadlines.met(SessionKey("g", "nobody"))
    watch.timer.advance_clock(1000)
    assert watch.late == []


@pytest.mark.parametrize(
    ("kind", "missing"),
    [(DelayedSession, "a heartbeat"), (DelayedRevocation, "partitions to be given back")],
)
def test_they_say_what_they_wait_for(
    watch: Watch, kind: type[MemberDeadline], missing: str
) -> None:
    """This answers "why is this member being watched?"."""
    watch.timer.advance_clock(50)
    key = SessionKey("g", "a")
    watch.deadlines.start(key, kind(100, lambda _late: None))
    (waiting,) = watch.purgatory.waiting()
    assert waiting.kind == kind.__name__
    assert (waiting.keys, waiting.missing) == ((key,), missing)
    assert (waiting.since_ms, waiting.deadline_ms) == (50, 150)
    assert waiting.is_routine == (kind is DelayedSession), "every member that lives has a session"
