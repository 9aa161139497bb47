"""Topics that pipelines write to.

Created before they are written to: a topic that a producer's first record creates can lose
that record's place to the next.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from odradek.client import Admin
from odradek.client.core.admin_types import ConfigChange, ConfigResource, NewTopic
from odradek.client.errors import KafkaError
from odradek.errors import ErrorCode
from pyspark_odradek.pipelines.running.settings import PipelineError

_LIMIT: Final = "max.message.bytes"


def create_topic(
    brokers: Mapping[str, object],
    topic: str,
    partitions: int = 1,
    settings: Mapping[str, str] | None = None,
    *,
    may_be_there: bool = False,
) -> None:
    """Creates a topic for records that keep their old times, with these settings.

    Raises:
        PipelineError: it cannot be created, or is there and may not be.
    """
    # Old times must not make records too old at once.
    config = {**(settings or {}), "retention.ms": "-1", "message.timestamp.type": "CreateTime"}
    asyncio.run(_create(brokers, topic, partitions, config, may_be_there))


async def _create(
    brokers: Mapping[str, object],
    topic: str,
    partitions: int,
    config: Mapping[str, str],
    may_be_there: bool,
) -> None:
    async with Admin(brokers) as admin:
        created = await admin.create_topics([NewTopic(topic, partitions, config=config)])
        outcome = created[topic]
        if not isinstance(outcome, KafkaError):
            return
        if not may_be_there or outcome.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise PipelineError(f"{topic} could not be created: {outcome}")
        if _LIMIT in config:
            await _raise_limit(admin, topic, int(config[_LIMIT]))


def raise_limit(brokers: Mapping[str, object], topic: str, limit: int) -> None:
    """Raises a topic's limit to records of a size, if it takes smaller ones only.

    Raises:
        PipelineError: it cannot be asked for its limit, or be given another one.
    """
    asyncio.run(_limit_raised(brokers, topic, limit))


async def _limit_raised(brokers: Mapping[str, object], topic: str, limit: int) -> None:
    async with Admin(brokers) as admin:
        await _raise_limit(admin, topic, limit)


async def _raise_limit(admin: Admin, topic: str, limit: int) -> None:
    resource = ConfigResource.topic(topic)
    found = (await admin.describe_configs([resource]))[resource]
    if isinstance(found, KafkaError):
        raise PipelineError(f"the settings of {topic} could not be asked: {found}")
    if int(found[_LIMIT].value or 0) < limit:
        change = ConfigChange(_LIMIT, str(limit))
        refused = (await admin.alter_configs({resource: [change]}))[resource]
        if refused is not None:
            raise PipelineError(f"{topic} could not be given {_LIMIT}: {refused}")
