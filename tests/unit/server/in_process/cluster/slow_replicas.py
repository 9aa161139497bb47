"""Three brokers, of which a follower may be cut off for as long as a test likes: it stays in sync,
so that its leader waits for it."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.deadlines import deadline_s

import odradek
from odradek.controller import CreatableTopic
from odradek.server.in_process.calls.making import create_topic

VERY_LONG_MS = 3_600_000


@contextmanager
def slow_replica(**config: object) -> Iterator[odradek.Cluster]:
    """Brokers that lose patience neither with a follower nor with each other."""
    patient = {
        "replica.lag.time.max.ms": VERY_LONG_MS,
        "replica.socket.timeout.ms": VERY_LONG_MS,
        "request.timeout.ms": VERY_LONG_MS,
        "offsets.topic.replication.factor": 1,
        **config,
    }
    with odradek.Cluster(brokers=3, config=patient) as cluster:
        yield cluster


def create(
    cluster: odradek.Cluster,
    name: str,
    *replicas: Sequence[int],
    config: Mapping[str, str | None] = {},
) -> None:
    """Creates a topic, of which each partition has these replicas, led by the first."""
    topic = CreatableTopic(name, assignments=list(enumerate(replicas)), configs=config)
    controller = cluster.controller
    assert controller is not None, "no broker is running"
    cluster.run(create_topic(controller.server, topic))


def wait_for(cluster: odradek.Cluster, broker_id: int, kind: str) -> None:
    """Waits until an operation of that kind waits at a broker."""

    async def look() -> None:
        async with asyncio.timeout(deadline_s(60)):
            broker = cluster.broker(broker_id).server
            while not any(one.kind == kind for one in broker.waiting()):
                await asyncio.sleep(0.01)

    cluster.run(look())
