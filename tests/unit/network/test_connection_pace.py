"""How fast connections are let in, by the rates of the broker and of single listeners."""

import pytest
from tests.unit.network.fakes import FakeTransport, Harness, framed

from odradek.clock import ManualClock
from odradek.network.connection import Connection
from odradek.network.connection_pace import AddressRates, ConnectionPace, CreationRates
from odradek.windowed_rate import WindowedRate


class Door:
    """Two listeners, one of them for brokers; 2 windows of a second each."""

    def __init__(self, of_broker: int, **of_listeners: int) -> None:
        self.harness = Harness()
        self.rates = CreationRates(self.harness.clock, 2, 1000, ["CLIENTS", "BROKERS"])
        self.rates.limit(of_broker, of_listeners)
        self.paces = {
            name: ConnectionPace(
                self.harness.timer, self.rates.that_hold(name, is_protected=name == "BROKERS")
            )
            for name in ("CLIENTS", "BROKERS")
        }
        self.came: list[Connection] = []

    def enter(self, listener: str = "CLIENTS", count: int = 1) -> None:
        """Connects, and asks something at once."""
        for _ in range(count):
            connection = self.harness.connect(FakeTransport())
            self.paces[listener].enter(connection)
            request = framed(b"%d" % len(self.came))
            connection.get_buffer()[: len(request)] = request
            connection.buffer_updated(len(request))
            self.came.append(connection)

    def leave(self, number: int, listener: str = "CLIENTS") -> None:
        self.came[number].connection_lost()
        self.paces[listener].leave(self.came[number])

    def advance(self, ms: int) -> None:
        self.harness.timer.advance_clock(ms)
        self.harness.turn()

    def served(self) -> list[int]:
        """The connections of which a request was handled, in order."""
        return [int(each) for each in self.harness.handler.handled]


def test_who_is_too_early_waits_in_order() -> None:
    """Half a second's worth each, and nobody overtakes."""
    door = Door(2)
    door.enter(count=4)
    assert door.served() == [0, 1]
    door.advance(499)
    assert door.served() == [0, 1]
    door.advance(1)
    assert door.served() == [0, 1, 2]
    door.enter()
    door.advance(500)
    assert door.served() == [0, 1, 2, 3]
    door.advance(2_000)
    assert door.served() == [0, 1, 2, 3, 4]
    door.enter()
    assert door.served() == [0, 1, 2, 3, 4, 5], "nobody waits any more"


def test_who_has_left_is_not_waited_for() -> None:
    """Its turn is the next one's; and a wait for nobody holds nobody up for ever."""
    door = Door(1)
    door.enter(count=3)
    door.leave(1)
    door.advance(1_000)
    assert door.served() == [0, 2]
    door.enter(count=2)
    door.leave(3)
    door.leave(4)
    door.advance(5_000)
    door.enter()
    assert door.served() == [0, 2, 5]


def test_a_listener_of_brokers_has_no_rate_but_its_own() -> None:
    """A flood of clients would keep brokers from each other."""
    door = Door(1)
    door.enter(count=2)
    door.enter("BROKERS", 2)
    assert door.served() == [0, 2, 3]
    door.rates.limit(1, {"BROKERS": 1})
    door.enter("BROKERS")
    assert door.served() == [0, 2, 3]
    door.advance(1_000)
    assert 4 in door.served()


def test_the_slower_of_two_rates_holds_and_may_change() -> None:
    """A listener's own rate; raised again, it lets in who comes, and soon who waits."""
    door = Door(100, CLIENTS=1)
    door.enter(count=3)
    assert door.served() == [0]
    door.rates.limit(100, {})
    door.advance(1_000)
    assert door.served() == [0, 1, 2]
    door.enter(count=50)
    assert len(door.served()) == 53


def test_an_address_over_its_quota_waits_and_does_not_count() -> None:
    """Turned away again and again, it would never come in again."""
    clock = ManualClock(monotonic_ms=1_000_000)
    rates = AddressRates(clock, 2, 1000)
    rates.limit(2, {"10.0.0.9": 1})
    assert [rates.count("10.0.0.1") for _ in range(4)] == [0, 0, 500, 500]
    assert [rates.count("10.0.0.9") for _ in range(2)] == [0, 1000]
    clock.advance(500)
    assert rates.count("10.0.0.1") == 0
    rates.limit(None, {})
    assert [rates.count("10.0.0.1") for _ in range(9)] == [0] * 9


def test_addresses_that_are_gone_are_forgotten() -> None:
    """A network of strangers would fill the memory."""
    clock = ManualClock(monotonic_ms=1_000_000)
    rates = AddressRates(clock, 2, 1000)
    rates.limit(2, {})
    for number in range(200):
        rates.count(f"10.0.0.{number}")
    clock.advance(2_000)
    rates.count("10.0.1.1")
    assert len(rates) == 1
    rates.limit(None, {})
    clock.advance(2_000)
    rates.count("10.0.1.1")
    assert len(rates) == 0


@pytest.mark.parametrize("limit", [0, 1])
def test_a_wait_is_a_window_at_most(limit: int) -> None:
    """As in Kafka: what ends with the window counts no more, and a rate of 0 is a crawl."""
    rate = WindowedRate(windows=3, window_ms=1000)
    rate.record(10_000, 21)
    assert rate.wait_ms(10_000, limit) == 1_000


def test_a_wait_ends_when_the_rate_is_down() -> None:
    """A client that waits longer is served too slowly, one that waits less is over the limit."""
    rate = WindowedRate(windows=3, window_ms=1000)
    rate.record(10_000, 21)
    assert rate.wait_ms(10_000, 11) == 0, "21 in two seconds"
    assert rate.wait_ms(10_000, 10) == 100
    assert rate.per_second(10_099) > 10
    assert rate.per_second(10_100) == 10
