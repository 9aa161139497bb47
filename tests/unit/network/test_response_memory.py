"""Answers that are not read: a budget for all, and the end of who is stuck."""

from tests.unit.network.fakes import FakeTransport, Harness, framed


def stall(harness: Harness, unread_bytes: int) -> FakeTransport:
    """A connection whose transport is over its limit, with so many bytes."""
    transport = FakeTransport()
    connection = harness.connect(transport)
    transport.unread_bytes = unread_bytes
    connection.pause_writing()
    return transport


def test_what_is_unread_is_counted_until_it_has_left() -> None:
    """Fetches would be cut short for ever, or never."""
    harness = Harness()
    harness.receive(framed(b"park"))
    exchange = harness.handler.parked[0]
    assert exchange.answer_bytes() == 1000
    harness.transport.unread_bytes = 400
    harness.connection.pause_writing()
    assert exchange.answer_bytes() == 600
    harness.transport.unread_bytes = 700
    exchange.send([b"answer"])
    assert harness.answers.used_bytes == 700, "an answer that came on top counts"
    harness.connection.resume_writing()
    assert harness.answers.used_bytes == 0
    harness.connection.pause_writing()
    harness.connection.connection_lost()
    assert harness.answers.used_bytes == 0


def test_within_the_budget_nobody_is_dropped() -> None:
    """A slow but honest client would lose its connection on an idle broker."""
    harness = Harness()
    transport = stall(harness, 900)
    harness.clock.advance(1_000_000)
    stall(harness, 100)
    assert not transport.aborted


def test_over_the_budget_the_longest_stuck_are_dropped() -> None:
    """Clients that do not read would take the memory of those that do."""
    harness = Harness()
    first, reads = stall(harness, 300), stall(harness, 300)
    harness.clock.advance(20_000)
    third = stall(harness, 300)
    harness.clock.advance(10_000)
    reads.unread_bytes = 250
    stall(harness, 500)
    assert (first.aborted, reads.aborted, third.aborted) == (True, False, False)
    assert harness.dropped == [300]
    assert harness.answers.used_bytes == 250 + 300 + 500


def test_over_the_budget_one_that_has_just_begun_stays() -> None:
    """An answer larger than the budget could never be read."""
    harness = Harness()
    transport = stall(harness, 5000)
    assert harness.answers.left_bytes == 0
    stall(harness, 5000)
    assert not transport.aborted
