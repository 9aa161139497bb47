"""The session of a broker: at its start, and after it was lost."""

import asyncio

import pytest

from odradek.config import BrokerConfig
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import BrokerRegistration, MetadataDelta, MetadataImage
from odradek.model import EndPoint
from odradek.server.errors import StartError
from odradek.server.registration import RETRY_MS, Registration
from odradek.timer import MockTimer

HERE = EndPoint("PLAINTEXT", "PLAINTEXT", "here", 9092)
THERE = HERE._replace(host="there")
TAKEN = BrokerError(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
AWAY = BrokerError(ErrorCode.BROKER_NOT_AVAILABLE)


class Store:
    """Answers registrations in order with what it was given, then with rising epochs."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.registered = 0
        self.lost = []

    def on_session_lost(self, listener):
        self.lost.append(listener)

    def register_broker(self, broker_id, endpoints, rack, on_done):
        self.registered += 1
        fresh = BrokerRegistration(broker_id, tuple(endpoints), rack, 100 + self.registered)
        on_done(self.outcomes.pop(0) if self.outcomes else fresh)

    def sync(self, on_done):
        on_done(None)


class Broker:
    def __init__(self, *outcomes, other=None):
        self.store = Store(*outcomes)
        self.timer = MockTimer()
        self.resigned = 0
        self.may_register = True
        self.raises = None
        self.broken = []
        cache = MetadataCache()
        brokers = {} if other is None else {1: BrokerRegistration(1, (other,), None, 7)}
        before = MetadataImage("cluster")
        cache.publish(MetadataDelta(before, MetadataImage("cluster", brokers=brokers)))
        self.registration = Registration(
            self.store,
            cache,
            BrokerConfig({"broker.id": "1", "zookeeper.session.timeout.ms": "2000"}),
            self.timer,
            endpoints=self.endpoints,
            may_register=lambda: self.may_register,
            resign=self.resign,
            on_broken=self.broken.append,
        )

    def endpoints(self):
        if self.raises is not None:
            raise self.raises
        return [HERE]

    def resign(self):
        self.resigned += 1

    async def begin(self):
        """Begins, with as much time as it wants."""
        beginning = asyncio.ensure_future(self.registration.begin())
        while not beginning.done():
            await asyncio.sleep(0)
            self.timer.advance_clock(RETRY_MS)
        await beginning


def test_a_broker_begins_under_the_epoch_of_its_session():
    """Its logs would be marked as clean under another, and its followers be fenced."""
    broker = Broker()
    asyncio.run(broker.begin())
    assert broker.registration.epoch == 101


def test_the_session_of_the_broker_before_a_crash_is_waited_for():
    """A broker that was killed could not come back before its session's time-out."""
    broker = Broker(TAKEN, TAKEN, other=HERE)
    asyncio.run(broker.begin())
    assert broker.registration.epoch == 103


@pytest.mark.parametrize(("other", "asked", "where"), [(THERE, 1, "there:9092"), (HERE, 15, "")])
def test_a_second_broker_of_the_same_number_does_not_start(other, asked, where):
    """Two brokers would take each other's session away for ever."""
    broker = Broker(*[TAKEN] * 100, other=other)
    with pytest.raises(StartError, match=f"already.*{where}.*another broker.id"):
        asyncio.run(broker.begin())
    assert broker.store.registered == asked


def test_another_error_is_no_second_broker():
    """It would be told to take another number because ZooKeeper is away."""
    broker = Broker(AWAY)
    with pytest.raises(BrokerError):
        asyncio.run(broker.begin())


def test_a_lost_session_ends_leaderships_first_and_is_begun_again():
    """It would acknowledge what its successor does not have, or stay away for good."""

    async def scenario():
        broker = Broker()
        await broker.registration.begin()
        broker.store.outcomes = [AWAY, TAKEN]
        broker.store.lost[0]()
        assert (broker.resigned, broker.store.registered) == (1, 1)
        for _ in range(3):
            await asyncio.sleep(0)
            broker.timer.advance_clock(RETRY_MS)
        assert broker.store.registered == 4
        assert broker.registration.epoch == 104

    asyncio.run(scenario())


@pytest.mark.parametrize("refusals", [0, 1])
def test_a_broker_that_raises_instead_of_registering_again_ends(refusals):
    """It would live on for its clients, and be dead for the cluster for good."""

    async def scenario():
        broker = Broker()
        await broker.registration.begin()
        broker.store.outcomes = [AWAY] * refusals
        broker.store.lost[0]()
        if refusals:
            await asyncio.sleep(0)
        broker.raises = KeyError("no invariant is asserted")
        await asyncio.sleep(0)
        broker.timer.advance_clock(RETRY_MS)
        assert broker.broken == [broker.raises]

    asyncio.run(scenario())


@pytest.mark.parametrize("loses_while_stopping", [True, False])
def test_a_broker_that_stops_begins_no_session(loses_while_stopping):
    """The others would take it for alive until the time-out."""

    async def scenario():
        broker = Broker()
        await broker.registration.begin()
        broker.store.outcomes = [AWAY]
        if loses_while_stopping:
            broker.may_register = False
        broker.store.lost[0]()
        await asyncio.sleep(0)
        broker.registration.close()
        registered = broker.store.registered
        broker.timer.advance_clock(10 * RETRY_MS)
        assert broker.store.registered == registered == (1 if loses_while_stopping else 2)

    asyncio.run(scenario())
