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

LIMIT: Final = "max.message.bytes"


def create_topic(
    brokers: Mapping[str, object],
    topic: str,
    partitions: int = 1,
    settings: Mapping[str, str] | None = None,
    *,
    may_be_there: bool = False,
) -> bool:
    """Creates a topic for records that keep their old times, with these settings; False when it was
    there, and may be.

    Raises:
        PipelineError: it cannot be created, or is there and may not be.
    """
    # Old times must not make records too old at once.
    config = {**(settings or {}), "retention.ms": "-1", "message.timestamp.type": "CreateTime"}
    return asyncio.run(_create(brokers, topic, partitions, config, may_be_there))


async def _create(
    brokers: Mapping[str, object],
    topic: str,
    partitions: int,
    config: Mapping[str, str],
    may_be_there: bool,
) -> bool:
    async with Admin(brokers) as admin:
        created = await admin.create_topics([NewTopic(topic, partitions, config=config)])
        outcome = created[topic]
        if not isinstance(outcome, KafkaError):
            return True
        if not may_be_there or outcome.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise PipelineError(f"{topic} could not be created: {outcome}")
        return False


def take_up_to(brokers: Mapping[str, object], topic: str, limit: int) -> int:
    """Raises a topic's limit to batches of a size, if it takes smaller ones only, and gives what it
    takes now: somebody may have forbidden to change it.

    Raises:
        PipelineError: its settings cannot be asked, or it loses records that it takes.
    """
    return asyncio.run(_take_up_to(brokers, topic, limit))


async def _take_up_to(brokers: Mapping[str, object], topic: str, limit: int) -> int:
    resource = ConfigResource.topic(topic)
    async with Admin(brokers) as admin:
        found = (await admin.describe_configs([resource]))[resource]
        if isinstance(found, KafkaError):
            raise PipelineError(f"the settings of {topic} could not be asked: {found}")
        if "compact" in str(found["cleanup.policy"].value):
            raise PipelineError(f"{topic} is compacted: it takes no record without a key")
        taken = int(found[LIMIT].value or 0)
        if taken < limit:
            change = ConfigChange(LIMIT, str(limit))
            refused = (await admin.alter_configs({resource: [change]}))[resource]
            return limit if refused is None else taken
        return taken
