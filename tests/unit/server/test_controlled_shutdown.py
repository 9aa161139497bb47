"""Leaving a cluster in order."""

import asyncio
from uuid import UUID

import pytest

from odradek.config import BrokerConfig
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import (
    BrokerRegistration,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from odradek.model import EndPoint, TopicPartition
from odradek.server.controlled_shutdown import FAREWELL_MS, ControlledShutdown
from odradek.timer import MockTimer

PLAIN = EndPoint("PLAINTEXT", "PLAINTEXT", "somewhere", 9092)
BROKERS = {number: BrokerRegistration(number, (PLAIN,), None, number) for number in (1, 2, 3)}
STILL_LED = [TopicPartition("orders", 0)]
SILENCE = None
AWAY = BrokerError(ErrorCode.NETWORK_EXCEPTION)


class Cluster:
    """Broker 1 stops; `outcomes` are what it hears, from whom is in `asked`."""

    def __init__(self, controller_id, *outcomes):
        self.outcomes = list(outcomes)
        self.asked = []
        self.timer = MockTimer()
        self.cache = MetadataCache()
        self.elect(controller_id)

    def elect(self, controller_id, brokers=BROKERS):
        image = MetadataImage("cluster", controller_id, 1, brokers)
        self.cache.publish(MetadataDelta(self.cache.image, image))

    def controlled_shutdown(self, controller, broker_id, broker_epoch, on_done):
        assert (broker_id, broker_epoch) == (1, 9)
        self.asked.append(controller.id)
        if self.outcomes[0] is SILENCE:
            return
        on_done(self.outcomes.pop(0))

    def on_controlled_shutdown(self, broker_id, broker_epoch, on_done):
        self.controlled_shutdown(BROKERS[1], broker_id, broker_epoch, on_done)

    def stop(self, between=lambda: None, **settings):
        """Leaves; the milliseconds that it took."""
        names = {name.replace("_", "."): str(value) for name, value in settings.items()}
        config = BrokerConfig({"broker.id": "1", **names})
        shutdown = ControlledShutdown(config, self.cache, self.timer, self, self)

        async def run():
            running = asyncio.ensure_future(shutdown.run(9))
            for _ in range(10):
                await asyncio.sleep(0)
            while not running.done():
                between()
                self.timer.advance_clock(FAREWELL_MS)
                for _ in range(10):
                    await asyncio.sleep(0)
            await running

        asyncio.run(run())
        return self.timer.now_ms


def test_the_controller_is_asked_once():
    """A broker would take as long to stop as it takes to give up."""
    cluster = Cluster(2, [])
    cluster.stop()
    assert cluster.asked == [2]


@pytest.mark.parametrize("leader", [1, 2])
def test_a_leader_stays_until_clients_have_heard_that_it_leads_no_more(leader):
    """Their connections would break, and they rest before they look for the new leader."""
    cluster = Cluster(2, [])
    partition = PartitionImage(0, leader, 1, 1, (leader, 3), (leader, 3))
    before = cluster.cache.image
    image = before.with_topics([TopicImage("orders", UUID(int=1), (partition,))])
    cluster.cache.publish(MetadataDelta(before, image))
    assert cluster.stop() == (FAREWELL_MS if leader == 1 else 0)


def test_the_controller_itself_asks_nobody():
    """The controller could not leave in order."""
    cluster = Cluster(1, [])
    cluster.stop()
    assert cluster.asked == [1]


def test_a_controller_that_is_gone_has_a_successor():
    """A broker would leave its partitions without leaders until its session is over."""
    cluster = Cluster(2, AWAY, STILL_LED, [])
    cluster.stop(between=lambda: cluster.elect(3))
    assert cluster.asked == [2, 3, 3]


def test_a_broker_gives_up_in_the_end():
    """It would never stop where nobody else can lead."""
    cluster = Cluster(2, *[STILL_LED] * 10)
    cluster.stop(controlled_shutdown_max_retries=2)
    assert cluster.asked == [2, 2, 2]


def test_the_last_broker_of_a_cluster_asks_once():
    """Stopping a whole cluster would take as long as its last broker takes to give up."""
    cluster = Cluster(1, *[STILL_LED] * 10)
    cluster.elect(1, {1: BROKERS[1]})
    cluster.stop()
    assert cluster.asked == [1]


def test_a_cluster_without_a_controller():
    """It would never stop."""
    cluster = Cluster(-1)
    cluster.stop()
    assert cluster.asked == []


def test_a_controller_that_is_silent_is_not_asked_for_ever():
    """Without ZooKeeper no broker could be stopped: the controller waits for it itself."""
    for controller_id in (1, 2):
        cluster = Cluster(controller_id, SILENCE)
        cluster.stop(controller_socket_timeout_ms=15_000)
        assert cluster.asked == [controller_id]
