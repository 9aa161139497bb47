"""What groups have committed for a topic, in a broker and in an archive.

An archive has them as they were when its newest batch was written, because a broker whose topic
has to be restored may not be there to be asked:

    orders/_groups.json   {"groups": {"billing": {"0": 120, "1": 98}}, "sha256": "..."}
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from odradek.client import Admin
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.errors import KafkaError
from odradek.model import TopicPartition
from pyspark_odradek.pipelines.bookkeeping.sealed import read_sealed, seal
from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.running.settings import PipelineError

# Offsets by group and partition.
Groups = dict[str, dict[int, int]]
# How far queries are is in their checkpoints; their groups only tell of it.
_OF_QUERIES: Final = "spark."


def committed(bootstrap_servers: str, topic: str) -> Groups:
    """What all groups have committed for a topic.

    Raises:
        PipelineError: a group cannot be asked.
    """
    return asyncio.run(_committed(bootstrap_servers, topic))


def commit(bootstrap_servers: str, topic: str, groups: Groups) -> None:
    """Commits offsets for groups without members.

    Raises:
        PipelineError: a group has members, or its coordinator refuses.
    """
    asyncio.run(_commit(bootstrap_servers, topic, groups))


def keep(spark: SparkSession, archive: str, groups: Groups) -> None:
    """Writes groups down in an archive; not those that are queries'."""
    kept = {name: found for name, found in groups.items() if not name.startswith(_OF_QUERIES)}
    FileSystem(spark).replace(f"{archive}/_groups.json", seal({"groups": kept}))


def kept_in(spark: SparkSession, archive: str) -> Groups:
    """The groups of an archive; none of one that was written before they were.

    Raises:
        PipelineError: what is written of them is damaged.
    """
    files, path = FileSystem(spark), f"{archive}/_groups.json"
    if not files.exists(path):
        return {}
    document: Mapping[str, Mapping[str, int]] = read_sealed(files, path)["groups"]
    return {
        name: {int(partition): offset for partition, offset in offsets.items()}
        for name, offsets in document.items()
    }


async def _committed(servers: str, topic: str) -> Groups:
    async with Admin(servers) as admin:
        names = [group.group_id for group in await admin.list_groups()]
        answers = await admin.list_group_offsets(names)
    found: Groups = {}
    for name, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise PipelineError(f"group {name} could not be asked: {answer}")
        offsets = {part.partition: at.offset for part, at in answer.items() if part.topic == topic}
        if offsets:
            found[name] = offsets
    return found


async def _commit(servers: str, topic: str, groups: Groups) -> None:
    async with Admin(servers) as admin:
        for name, offsets in groups.items():
            commits = {
                TopicPartition(topic, partition): CommittedOffset(offset)
                for partition, offset in offsets.items()
            }
            for part, error in (await admin.alter_group_offsets(name, commits)).items():
                if error is not None:
                    raise PipelineError(f"group {name} has no offset of {part} yet: {error}")
