"""Brokers of a cluster die under our clients, the coordinator of their group among them.

Every acknowledged record is read, those of a partition in order, and the group goes on where it
was. If these fail, a client gives up, loses records, or reads them in another order.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import odradek
from odradek.client import Admin, Consumer, CreatedTopic, NewTopic, Producer
from odradek.client.core.admin_types import GroupDescription
from odradek.client.errors import KafkaError

pytestmark = pytest.mark.slow
Run = Callable[[Coroutine[Any, Any, None]], None]
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "min.insync.replicas": "2",
    "group.min.session.timeout.ms": "100",
}


def firsts(values: list[int]) -> list[int]:
    """The values where they came first: a member that was lost reads again from its commit on."""
    return list(dict.fromkeys(values))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_brokers_die_and_clients_go_on(run: Run, protocol: str) -> None:
    async def scenario(cluster: odradek.Cluster) -> None:
        servers = cluster.bootstrap_servers
        acknowledged: dict[int, list[int]] = {0: [], 1: []}
        seen: dict[int, list[int]] = {0: [], 1: []}
        is_writing = True

        async def write() -> None:
            number = 0
            async with Producer(servers, linger_ms=0, retry_backoff_ms=20) as producer:
                while is_writing:
                    sent = await producer.send_and_wait("t", b"%d" % number, partition=number % 2)
                    acknowledged[sent.partition].append(number)
                    number += 1

        async def read() -> None:
            settings = {
                "group_id": "g",
                "group_protocol": protocol,
                "auto_offset_reset": "earliest",
                "heartbeat_interval_ms": 100,
                "retry_backoff_ms": 20,
            }
            async with Consumer(servers, **settings) as consumer:
                consumer.subscribe(["t"])
                while is_writing or any(firsts(seen[each]) != acknowledged[each] for each in seen):
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        for record in records:
                            seen[record.partition].append(int(record.value))
                await consumer.commit()

        async def coordinator() -> int:
            async with Admin(servers) as admin:
                found = (await admin.describe_groups(["g"]))["g"]
                assert isinstance(found, GroupDescription), found
                return found.coordinator.id

        async def more(count: int) -> None:
            wanted = sum(map(len, seen.values())) + count
            while sum(map(len, seen.values())) < wanted:
                await asyncio.sleep(0.02)

        writer, reader = asyncio.create_task(write()), asyncio.create_task(read())
        try:
            await more(20)
            for _ in range(2):
                victim = await coordinator()
                await asyncio.to_thread(cluster.kill, victim)
                await more(20)
                await asyncio.to_thread(cluster.broker(victim).start)
                await more(20)
            leader = cluster.leader("t", 0)
            assert leader is not None
            await asyncio.to_thread(cluster.kill, leader.id)
            await more(20)
            is_writing = False
            await writer
            await reader
        finally:
            for task in (writer, reader):
                task.cancel()
            await asyncio.gather(writer, reader, return_exceptions=True)
        assert {each: firsts(found) for each, found in seen.items()} == acknowledged

    with odradek.Cluster(3, config=SETTINGS) as cluster:
        cluster.create_topic("t", partitions=2)
        run(scenario(cluster))


def test_a_cluster_that_is_gone_is_an_error_in_time(run: Run) -> None:
    async def scenario(cluster: odradek.Cluster) -> None:
        settings: dict[str, object] = {"default_api_timeout_ms": 500}
        async with Admin(cluster.bootstrap_servers, **settings) as admin:
            await admin.list_topics()
            for broker_id in (1, 2, 3):
                await asyncio.to_thread(cluster.kill, broker_id)
            with pytest.raises(KafkaError):
                await admin.list_topics()

    with odradek.Cluster(3) as cluster:
        run(scenario(cluster))


def test_an_admin_goes_on_with_the_controller_that_is_elected(run: Run) -> None:
    """It was asked for by its id, and would be asked for ever."""

    async def scenario(cluster: odradek.Cluster) -> None:
        async with Admin(cluster.bootstrap_servers) as admin:
            for number in range(2):
                found = await admin.create_topics([NewTopic(f"t{number}", 1, 1)])
                assert isinstance(found[f"t{number}"], CreatedTopic), found
                victim = (await admin.describe_cluster()).controller_id
                await asyncio.to_thread(cluster.kill, victim)
                found = await admin.create_topics([NewTopic(f"u{number}", 1, 1)])
                assert isinstance(found[f"u{number}"], CreatedTopic), found
                await asyncio.to_thread(cluster.broker(victim).start)

    with odradek.Cluster(3, config=SETTINGS) as cluster:
        run(scenario(cluster))
