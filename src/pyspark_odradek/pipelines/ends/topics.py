"""Topics that pipelines write to.

Created before they are written to: a topic that a producer's first record creates can lose
that record's place to the next.
"""

import asyncio

from odradek.client import Admin
from odradek.client.core.admin_types import NewTopic
from odradek.client.errors import KafkaError
from odradek.errors import ErrorCode
from pyspark_odradek.pipelines.running.settings import PipelineError


def create_topic(
    bootstrap_servers: str, topic: str, partitions: int = 1, *, may_be_there: bool = False
) -> None:
    """Creates a topic for records that keep their old times.

    Raises:
        PipelineError: it cannot be created, or is there and may not be.
    """
    asyncio.run(_create(bootstrap_servers, topic, partitions, may_be_there))


async def _create(servers: str, topic: str, partitions: int, may_be_there: bool) -> None:
    # Old times must not make records too old at once.
    config = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}
    async with Admin(servers) as admin:
        created = await admin.create_topics([NewTopic(topic, partitions, config=config)])
    outcome = created[topic]
    is_there = isinstance(outcome, KafkaError) and outcome.code == ErrorCode.TOPIC_ALREADY_EXISTS
    if isinstance(outcome, KafkaError) and not (may_be_there and is_there):
        raise PipelineError(f"{topic} could not be created: {outcome}")
