"""The coordinator of a group, asked by its members."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from odradek.client.aio.cluster import ClusterClient
from odradek.client.apis import ClientApi
from odradek.client.core.cluster import GROUP, Message, Values
from odradek.client.core.network.connections import MAIN_CHANNEL
from odradek.client.errors import CoordinatorError, KafkaError, NetworkError, RequestTimedOut
from odradek.errors import ErrorCode

_LOGGER: Final = logging.getLogger(__name__)


async def ask_coordinator(
    cluster: ClusterClient,
    group_id: str,
    api: ClientApi,
    values: Values,
    *,
    channel: str = MAIN_CHANNEL,
    timeout_ms: int | None = None,
) -> Message:
    """Asks a group's coordinator; an outdated one is forgotten. The arguments are `call_gen`'s.

    Raises:
        KafkaError: no answer came, or the function of the values raised it.
    """
    node_id = await cluster.coordinator_id(group_id, GROUP)
    try:
        answer = await cluster.call(node_id, api, values, channel=channel, timeout_ms=timeout_ms)
    except (NetworkError, RequestTimedOut):
        cluster.forget_coordinator(group_id, GROUP)
        raise
    code = int(getattr(answer, "error_code", 0))
    if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        cluster.forget_coordinator(group_id, GROUP)
        raise CoordinatorError(None, ErrorCode(code))
    return answer


async def say_goodbye(cluster: ClusterClient, group_id: str, question: Awaitable[object]) -> None:
    """Asks to leave a group. Without an answer within `request.timeout.ms`, which includes finding
    and connecting to the coordinator, it notices by the missing heartbeats."""
    try:
        async with asyncio.timeout(cluster.request_timeout_ms / 1000):
            await question
    except (KafkaError, TimeoutError) as error:
        _LOGGER.debug("leaving group %s failed: %r", group_id, error)
