"""A broker tells a test of time: what comes next, and what it refuses to say."""

import asyncio

import pytest

import odradek
from odradek.clock import ManualClock
from odradek.errors import BrokerError, ErrorCode
from odradek.server.in_process.calls.time_helpers import Deadline
from odradek.timer import TimerTask


def spin() -> None:
    """Something to do."""


def add(broker: odradek.Broker | odradek.Cluster, delay_ms: int) -> None:
    broker._now(lambda: broker._servers[-1].timer.add(TimerTask(delay_ms, spin)))


def test_what_comes_next_and_why() -> None:
    """Goal: who waits for the clock sees for how long, and for what."""
    clock = ManualClock(wall_ms=1_700_000_000_000)
    with odradek.Broker(clock=clock) as broker:
        assert broker.next_deadline() is None, "upkeep comes round for ever, and is not news"
        add(broker, 5_000)
        add(broker, 300)
        at_ms = clock.wall_ms() + 300
        assert broker.next_deadline() == Deadline(300, at_ms, "TimerTask", "spin", 1)
        assert broker.advance_to_next_deadline().in_ms == 300
        assert clock.wall_ms() == at_ms
        clock.advance(700)
        left = broker.next_deadline()
        assert left is not None
        assert left.in_ms == 4_000
        broker.advance_to_next_deadline()
        assert broker.next_deadline() is None
        with pytest.raises(RuntimeError, match="nothing waits"):
            broker.advance_to_next_deadline()


def test_upkeep_is_there_for_who_asks_for_it() -> None:
    """Goal: a test goes from one round of retention to the next."""
    with odradek.Broker(clock=ManualClock()) as broker:
        upkeep = broker.advance_to_next_deadline("PeriodicTask")
        assert upkeep.why.startswith("a round of ")
        with pytest.raises(RuntimeError, match="no DelayedJoin"):
            broker.advance_to_next_deadline("DelayedJoin")


def test_a_clock_that_goes_by_itself_is_not_moved() -> None:
    """Goal: a sentence that says what to do, not an AttributeError."""
    with odradek.Broker() as broker:
        add(broker, 3_600_000)
        deadline = broker.next_deadline()
        assert deadline is not None
        assert 0 < deadline.in_ms <= 3_600_000
        with pytest.raises(RuntimeError, match="ManualClock"):
            broker.advance_to_next_deadline()


def test_a_cluster_has_the_first_of_all_its_brokers() -> None:
    """Goal: one answer for all wheels, which says whose it is."""
    clock = ManualClock()
    with odradek.Cluster(brokers=3, clock=clock) as cluster:
        add(cluster, 300)
        deadline = cluster.next_deadline("TimerTask")
        assert deadline is not None
        assert (deadline.in_ms, deadline.broker_id) == (300, 3)
        cluster.advance_to_next_deadline("TimerTask")
        assert clock.monotonic_ms() == 300


def test_a_group_that_is_not_there_has_no_member_to_expire() -> None:
    """Goal: a misspelt name is an error, not a test that proves nothing."""

    async def story() -> None:
        async with odradek.Broker(clock=ManualClock()) as broker:
            with pytest.raises(BrokerError) as refused:
                await broker.expire_member_async("billing", "till")
            assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
            with pytest.raises(RuntimeError, match="expire_member_async"):
                broker.expire_member("billing", "till")

    asyncio.run(story())
