"""The topic of an archive: partitions, settings and committed offsets of groups, in a broker and in
an archive.

An archive has them as of its newest batch, because the broker may be gone when its topic has to be
restored:

    orders/_topic.json   {"partitions": 3, "settings": {"cleanup.policy": "compact"},
                          "isolation level": "read_committed",
                          "groups": {"billing": {"0": 120, "1": 98}}, "sha256": "..."}
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from uuid import UUID

from pyspark.sql import SparkSession

from odradek.client import Admin
from odradek.client.core.admin_types import CommittedOffset, ConfigResource
from odradek.client.errors import KafkaError
from odradek.config.definition import ConfigSource
from odradek.model import TopicPartition
from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.ends.sealed import read_sealed, seal
from pyspark_odradek.pipelines.running.settings import (
    PipelineError,
    PipelineSettings,
)

# Offsets by group and partition.
Groups = dict[str, dict[int, int]]
# The position of a query is in its checkpoint; its group only reports it.
_OF_QUERIES: Final = "spark."
_DOCUMENT: Final = "_topic.json"


@dataclass(frozen=True)
class Description:
    """The facts about a topic besides its records.

    `settings` are its own, without defaults; `isolation_level` is that of the archive.
    """

    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)
    isolation_level: str = "read_committed"
    groups: Groups = field(default_factory=dict)


def describe(brokers: Mapping[str, object], topic: str) -> Description:
    """Describes a topic as it is now, without its groups.

    Raises:
        PipelineError: no broker tells.
    """
    return asyncio.run(_described(brokers, topic))


def topic_id(brokers: Mapping[str, object], topic: str) -> str | None:
    """Returns the id of the topic; None where brokers do not have topic ids.

    Raises:
        KafkaError: there is no such topic, or no broker answers.
    """
    found = asyncio.run(_topic_id(brokers, topic))
    return None if found is None else str(found)


def committed(
    brokers: Mapping[str, object], topic: str, groups: Collection[str] | None = None
) -> Groups:
    """Returns the committed offsets of groups for a topic; of all groups by default.

    Raises:
        PipelineError: a coordinator does not answer.
    """
    return asyncio.run(_committed(brokers, topic, groups))


def commit(brokers: Mapping[str, object], topic: str, groups: Groups) -> None:
    """Commits offsets for groups without members.

    Raises:
        PipelineError: a group has members, or its coordinator refuses.
    """
    asyncio.run(_commit(brokers, topic, groups))


def keep(spark: SparkSession, archive: str, settings: PipelineSettings) -> None:
    """Writes the current description of its topic to an archive, without the groups of queries.

    Raises:
        PipelineError: no broker tells.
    """
    now = describe(settings.brokers, settings.topic)
    found = committed(settings.brokers, settings.topic)
    kept = {name: each for name, each in found.items() if not name.startswith(_OF_QUERIES)}
    told: dict[str, Any] = {
        **asdict(now),
        "isolation_level": settings.isolation_level,
        "groups": kept,
    }
    FileSystem(spark).replace(f"{archive}/{_DOCUMENT}", seal(told))


def kept_in(spark: SparkSession, archive: str) -> Description:
    """Reads the description of its topic from an archive.

    Raises:
        PipelineError: it is missing, or damaged.
    """
    path = f"{archive.rstrip('/')}/{_DOCUMENT}"
    try:
        document = read_sealed(FileSystem(spark), path)
    except FileNotFoundError:
        raise PipelineError(f"{path} is gone") from None
    groups = {
        name: {int(partition): offset for partition, offset in offsets.items()}
        for name, offsets in document.pop("groups").items()
    }
    return Description(**document, groups=groups)


async def _topic_id(brokers: Mapping[str, object], topic: str) -> UUID | None:
    async with Admin(brokers) as admin:
        return (await admin.describe_topic(topic)).topic_id


async def _described(brokers: Mapping[str, object], topic: str) -> Description:
    resource = ConfigResource.topic(topic)
    async with Admin(brokers) as admin:
        metadata = await admin.describe_topic(topic)
        found = (await admin.describe_configs([resource]))[resource]
    if isinstance(found, KafkaError):
        raise PipelineError(f"the settings of {topic} could not be asked: {found}")
    settings = {
        entry.name: entry.value
        for entry in found.values()
        if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None
    }
    return Description(len(metadata.partitions), settings)


async def _committed(
    brokers: Mapping[str, object], topic: str, groups: Collection[str] | None
) -> Groups:
    async with Admin(brokers) as admin:
        if groups is None:
            groups = [group.group_id for group in await admin.list_groups()]
        answers = await admin.list_group_offsets(groups)
    found: Groups = {}
    for name, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise PipelineError(f"group {name} could not be asked: {answer}")
        offsets = {part.partition: at.offset for part, at in answer.items() if part.topic == topic}
        if offsets:
            found[name] = offsets
    return found


async def _commit(brokers: Mapping[str, object], topic: str, groups: Groups) -> None:
    async with Admin(brokers) as admin:
        for name, offsets in groups.items():
            commits = {
                TopicPartition(topic, partition): CommittedOffset(offset)
                for partition, offset in offsets.items()
            }
            for part, error in (await admin.alter_group_offsets(name, commits)).items():
                if error is not None:
                    raise PipelineError(f"group {name} has no offset of {part} yet: {error}")
