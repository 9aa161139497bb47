"""Streaming queries as consumer groups: how far each is, for every tool that shows groups.

Spark keeps a query's offsets in its checkpoint, where no tool for Kafka looks. A listener
commits them as group `spark.<query name>` when a batch is done, so that message and time lag
are seen where those of all other readers are. Only told, never read back: the checkpoint stays
the truth. Works for our source and for the connector, on any Kafka:

    spark.streams.addListener(ProgressGroups("127.0.0.1:9092"))
"""

import asyncio
import json
import logging
from collections.abc import Mapping

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
)

from odradek.client import Admin
from odradek.client.core.admin_types import CommittedOffset
from odradek.errors import BrokerError
from odradek.model import TopicPartition
from odradek.tables.plan.offsets import PartitionOffsets, offsets_from_json

_log = logging.getLogger(__name__)


def group_of(query: str) -> str:
    """The group that a query is seen as."""
    return f"spark.{query}"


class ProgressGroups(StreamingQueryListener):
    """Commits what queries have read. A broker that cannot be told is a warning, no more."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing is read yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch is done, and written down in the checkpoint."""
        progress = event.progress
        offsets: PartitionOffsets = {}
        for source in progress.sources:
            offsets.update(read_offsets(source.endOffset))
        if offsets:
            self._commit(group_of(progress.name or str(progress.id)), offsets)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing new was read."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """What was read stays read."""

    def _commit(self, group_id: str, offsets: PartitionOffsets) -> None:
        commits = {part: CommittedOffset(offset) for part, offset in offsets.items()}
        try:
            asyncio.run(self._alter(group_id, commits))
        except BrokerError as error:
            _log.warning("the progress of group %s is not told: %s", group_id, error)

    async def _alter(
        self, group_id: str, commits: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        async with Admin(self._bootstrap_servers) as admin:
            outcomes = await admin.alter_group_offsets(group_id, commits)
        for error in outcomes.values():
            if error is not None:
                raise error


def source_metrics(source: SourceProgress) -> dict[str, float]:
    """What the connector tells as `metrics` of a source, by the same names: offsets behind.

    Spark has no place where a source in Python could tell it, so it is made of the offsets that
    Spark does tell. Empty for a source that is no topic, and before anything was read.
    """
    behind = offsets_behind(source).values()
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


def offsets_behind(source: SourceProgress) -> PartitionOffsets:
    """How many offsets of every partition a source has still to read, as of its last batch."""
    end, latest = read_offsets(source["endOffset"]), read_offsets(source["latestOffset"])
    return {part: max(0, offset - end.get(part, 0)) for part, offset in latest.items()}


def read_offsets(text: str | None) -> PartitionOffsets:
    """The offsets of a source that speaks of topics; none of one that does not."""
    try:
        document = json.loads(text or "")
        if not isinstance(document, dict):
            return {}
        return offsets_from_json(document)
    except (ValueError, AttributeError, TypeError):
        return {}
