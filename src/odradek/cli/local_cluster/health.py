"""Waits until brokers form a cluster, and until every replica is in sync."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from odradek.client import Admin
from odradek.client.errors import KafkaError

_LOOK_EVERY_S: Final = 0.1


class NotHealthy(Exception):
    """The cluster did not reach the expected state; the message says what was missing."""


async def await_brokers(
    addresses: Iterable[str], broker_ids: Iterable[int], limit_s: float
) -> None:
    """Returns when each of the brokers at `addresses` knows all of `broker_ids`.

    Raises:
        NotHealthy: that took longer than `limit_s` seconds.
    """
    wanted = set(broker_ids)

    def missing_from(address: str) -> Callable[[], Awaitable[str]]:
        async def look() -> str:
            async with Admin(address) as admin:
                known = {node.id for node in (await admin.describe_cluster()).nodes}
            missing = sorted(wanted - known)
            return f"{address} does not know of broker {missing[0]}" if missing else ""

        return look

    looks = [_until_nothing_is_missing(missing_from(each), limit_s) for each in addresses]
    await asyncio.gather(*looks)


async def await_in_sync(bootstrap_servers: str, limit_s: float) -> None:
    """Returns when every replica of every partition is in sync.

    Raises:
        NotHealthy: that took longer than `limit_s` seconds.
    """

    async def look() -> str:
        async with Admin(bootstrap_servers) as admin:
            behind = await under_replicated(admin)
        more = f" and {len(behind) - 1} more" if len(behind) > 1 else ""
        return f"under-replicated: {behind[0]}{more}" if behind else ""

    await _until_nothing_is_missing(look, limit_s)


async def under_replicated(admin: Admin) -> list[str]:
    """Returns the partitions with fewer in-sync replicas than replicas.

    Raises:
        KafkaError: no broker answers.
    """
    return [
        f"{topic.name}-{index}"
        for topic in (await admin.list_topics()).values()
        for index, partition in topic.partition_metadata.items()
        if len(partition.in_sync_replicas) < len(partition.replicas)
    ]


async def _until_nothing_is_missing(look: Callable[[], Awaitable[str]], limit_s: float) -> None:
    missing = "no broker answers"
    try:
        async with asyncio.timeout(limit_s):
            while True:
                try:
                    missing = await look()
                except KafkaError as error:
                    missing = str(error)
                if not missing:
                    return
                await asyncio.sleep(_LOOK_EVERY_S)
    except TimeoutError:
        raise NotHealthy(missing) from None
