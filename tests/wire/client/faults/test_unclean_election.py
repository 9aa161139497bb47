"""A leader that lacks what was read is elected, on three brokers with real sockets (KIP-320).

Followers are cut off and leave the ISR, so what is written then is on the leader alone, and read;
the leader dies, and `unclean.leader.election.enable` gives the partition to one that has less.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.deadlines import deadline_s

import odradek
from odradek.client import Consumer, Producer
from odradek.client.errors import LogTruncated
from odradek.model import TopicPartition

pytestmark = pytest.mark.slow

ONE = TopicPartition("a", 0)
CONFIG = {
    "unclean.leader.election.enable": True,
    "replica.lag.time.max.ms": 500,
    "replica.fetch.wait.max.ms": 100,
    "replica.fetch.backoff.ms": 50,
}
PATIENCE_S = deadline_s(30)


async def write(servers: str, *values: str) -> list[int]:
    async with Producer(servers) as producer:
        sent = [await producer.send_and_wait("a", each.encode(), partition=0) for each in values]
    return [each.offset for each in sent]


async def read(consumer: Consumer, count: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            record = await consumer.getone()
            found.append((record.offset, (record.value or b"").decode()))
    return found


@asynccontextmanager
async def reader_ahead(policy: str) -> AsyncIterator[tuple[odradek.Cluster, Consumer]]:
    """A reader of five records, of which the new leader has two, and another for the third."""
    async with odradek.Cluster(3, config=CONFIG) as cluster:
        await cluster.create_topic_async("a")
        servers = cluster.bootstrap_servers
        state = cluster.partition_state("a", 0)
        others = [each for each in state.replicas if each != state.leader]
        await write(servers, "one", "two")
        async with Consumer(servers, auto_offset_reset=policy) as consumer:
            consumer.assign([ONE])
            consumer.seek(ONE, 0)
            await read(consumer, 2)
            for each in others:
                cluster._links.cut(state.leader, each)
            # Acknowledged when the others, which are behind now, have left the ISR.
            assert await write(servers, "lost", "lost too", "and this") == [2, 3, 4]
            assert cluster.partition_state("a", 0).isr == (state.leader,)
            assert [offset for offset, _ in await read(consumer, 3)] == [2, 3, 4]
            await cluster.broker(state.leader).kill_async()
            cluster._links.heal()
            after = cluster.partition_state("a", 0)
            assert after.leader in others
            assert after.leader_epoch > state.leader_epoch
            assert await write(cluster.bootstrap_servers, "three") == [2]
            yield cluster, consumer


def test_a_reader_goes_on_where_the_log_was_cut_off() -> None:
    """Else it waits where the log has not come to, and skips what is written till then."""

    async def scenario() -> None:
        async with reader_ahead("earliest") as (cluster, consumer):
            assert await read(consumer, 1) == [(2, "three")]
            await write(cluster.bootstrap_servers, "four")
            assert await read(consumer, 1) == [(3, "four")]

    asyncio.run(scenario())


def test_a_reader_without_a_policy_is_told_where_it_was_cut_off() -> None:
    async def scenario() -> None:
        async with reader_ahead("none") as (_, consumer):
            with pytest.raises(LogTruncated) as told:
                await read(consumer, 1)
            assert told.value.offset == 2
            consumer.seek(ONE, told.value.offset)
            assert await read(consumer, 1) == [(2, "three")]

    asyncio.run(scenario())
