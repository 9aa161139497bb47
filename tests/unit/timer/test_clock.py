"""Clocks: what sleepers ask them, and what subscribers hear."""

import pytest

from odradek.clock import ManualClock, SystemClock


def test_a_manual_clock_stands_until_it_is_moved() -> None:
    """A sleeper by the machine's time would wake for nothing, or never."""
    clock = ManualClock(wall_ms=1_000)
    assert clock.wait_s(5_000) is None
    clock.advance(5_000)
    assert (clock.monotonic_ms(), clock.wall_ms()) == (5_000, 6_000)


def test_a_manual_clock_at_a_speed_runs_and_can_be_moved_all_the_same() -> None:
    """A test that wants weeks in seconds still jumps where it likes."""
    clock = ManualClock(wall_ms=1_000, monotonic_ms=10, speed=1_000_000)
    assert clock.wait_s(60_000) == 0.00006
    before_ms = clock.monotonic_ms()
    while clock.monotonic_ms() < before_ms + 1_000:
        pass
    before_ms = clock.monotonic_ms()
    clock.advance(10**12)
    assert clock.monotonic_ms() >= before_ms + 10**12
    earliest, wall_ms, latest = clock.monotonic_ms(), clock.wall_ms(), clock.monotonic_ms()
    assert earliest + 990 <= wall_ms <= latest + 990


def test_subscribers_hear_of_a_move_before_and_after_it() -> None:
    """Before, a broker finishes what it has; after, it does what has become due."""
    clock = ManualClock()
    heard: list[tuple[str, int]] = []
    unsubscribe = clock.subscribe(
        lambda: heard.append(("moved", clock.monotonic_ms())),
        lambda: heard.append(("moving", clock.monotonic_ms())),
    )
    clock.subscribe(lambda: heard.append(("other", clock.monotonic_ms())))
    clock.advance(7)
    assert heard == [("moving", 0), ("moved", 7), ("other", 7)]
    unsubscribe()
    unsubscribe()
    clock.advance(1)
    assert heard[3:] == [("other", 8)]


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt])
def test_everybody_hears_of_a_move_though_somebody_fails(failure: type[BaseException]) -> None:
    """A broker that is not told of it sleeps on, on a clock that stands."""

    def fail() -> None:
        raise failure("gone")

    clock = ManualClock()
    heard: list[int] = []
    for on_moved in (fail, lambda: heard.append(clock.monotonic_ms()), fail):
        clock.subscribe(on_moved)
    with pytest.raises(failure, match="gone"):
        clock.advance(7)
    assert heard == [7]


def test_nobody_moves_the_machines_clock() -> None:
    """Its subscribers are never called, and may leave."""
    clock = SystemClock()
    clock.subscribe(lambda: pytest.fail("nobody can have moved it"))()
    assert clock.wait_s(250) == 0.25


def test_time_does_not_go_back() -> None:
    """Deadlines that have passed would come again."""
    with pytest.raises(ValueError, match="cannot go back"):
        ManualClock().advance(-1)
    with pytest.raises(ValueError, match="cannot go back"):
        ManualClock(speed=-1)
