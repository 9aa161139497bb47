"""Shows streaming queries as consumer groups, to every tool that shows groups.

Spark keeps a query's offsets in its checkpoint, where no tool for Kafka looks. A listener commits
them as group `spark.<query name>` when a batch is done, so that its lag is seen where that of all
other readers is. They are never read back: only the checkpoint counts. Spark has one thread for all
listeners, so other threads commit: one per cluster, while there is something to commit.

Works for our source, which says where it reads, and for the connector's with the address of its
brokers; `session()` has one for the former. In your own session:

    spark.streams.addListener(ProgressGroups())
    spark.streams.addListener(ProgressGroups("127.0.0.1:9092"))     # for the connector's queries
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from threading import Condition, Thread
from typing import Any, Final
from uuid import UUID

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from odradek.client import Admin
from odradek.client.core.admin_types import CommittedOffset
from odradek.errors import BrokerError
from odradek.tables.plan.offsets import (
    PartitionOffsets,
    offsets_from_json,
    reader_from_json,
    topic_ids_from_json,
)

_log = logging.getLogger(__name__)
# How long the end of a session waits for a broker that is not there.
_CLOSE_S: Final = 5.0

# The addresses of brokers, or the settings of a client, these among them.
Brokers = str | Mapping[str, object]
Commit = Callable[[Brokers, str, PartitionOffsets], None]


def group_of(query: str) -> str:
    """Returns the consumer group of a query."""
    return f"spark.{query}"


def commit(brokers: Brokers, group_id: str, offsets: PartitionOffsets) -> None:
    """Commits offsets of a group without members.

    Raises:
        BrokerError: a broker does not answer, or refuses some.
    """
    asyncio.run(_alter(brokers, group_id, offsets))


class _Teller:
    """Commits offsets to one cluster: the newest of each partition of a group."""

    def __init__(self, commit: Callable[[str, PartitionOffsets], None]) -> None:
        self._commit: Final = commit
        self._changed: Final = Condition()
        self._pending: dict[str, PartitionOffsets] = {}
        self._is_telling = False
        self._is_closed = False

    def tell(self, group_id: str, offsets: PartitionOffsets) -> None:
        """Takes offsets to commit; returns at once."""
        with self._changed:
            if self._is_closed:
                return
            self._pending.setdefault(group_id, {}).update(offsets)
            if not self._is_telling:
                self._is_telling = True
                Thread(target=self._run, name="progress of queries", daemon=True).start()

    def close(self, timeout_s: float) -> None:
        """Waits until everything is committed, at most for a time; then nothing is committed any
        more."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_telling, timeout_s)
            self._is_closed = True
            self._pending.clear()

    def _run(self) -> None:
        try:
            while told := self._next():
                try:
                    self._commit(*told)
                except BrokerError as error:
                    _log.warning("the progress of group %s is not told: %s", told[0], error)
        except BaseException:
            self._end()
            raise

    def _next(self) -> tuple[str, PartitionOffsets] | None:
        with self._changed:
            if self._pending:
                # The oldest group, so that each has its turn.
                group_id = next(iter(self._pending))
                return group_id, self._pending.pop(group_id)
            self._end()
            return None

    def _end(self) -> None:
        with self._changed:
            self._is_telling = False
            self._changed.notify_all()


class ProgressGroups(StreamingQueryListener):
    """Commits what queries have read. A failed commit is only a warning, and nothing waits for it:
    only the newest uncommitted offsets count.

    With `bootstrap_servers` every query that reads topics is told there, one without a name by its
    id; without, those that have a name and read through our source, where they read, unless that
    is by TLS or SASL: a query's progress, which anybody may see, does not have the settings. In the
    place of brokers there may be settings of a client, theirs among them.
    """

    def __init__(
        self, bootstrap_servers: Brokers | None = None, *, commit: Commit = commit
    ) -> None:
        """Opens no connection yet.

        Raises:
            ValueError: there are settings without brokers.
        """
        self._brokers = bootstrap_servers
        if isinstance(bootstrap_servers, Mapping) and "bootstrap.servers" not in bootstrap_servers:
            raise ValueError("name the brokers to commit to: bootstrap.servers")
        self._commit = commit
        self._tellers: dict[str, _Teller] = {}

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Waits until the offsets are committed, at most for a time; then nothing is committed any
        more."""
        for teller in [*self._tellers.values()]:
            teller.close(timeout_s)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Does nothing: nothing is read yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Commits the offsets of a batch, which is done and in the checkpoint."""
        progress = event.progress
        readers: dict[tuple[str, str], PartitionOffsets] = {}
        for source in progress.sources:
            reader = self._reader(progress, source)
            if reader is not None:
                readers.setdefault(reader, {}).update(read_offsets(source.endOffset))
        for (servers, group_id), offsets in readers.items():
            if offsets:
                if servers not in self._tellers:
                    brokers = servers if self._brokers is None else self._brokers
                    self._tellers[servers] = _Teller(partial(self._commit, brokers))
                self._tellers[servers].tell(group_id, offsets)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Does nothing: nothing new was read."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Does nothing: committed offsets stay."""

    def _reader(
        self, progress: StreamingQueryProgress, source: SourceProgress
    ) -> tuple[str, str] | None:
        """Returns the brokers and the group to commit a source's offsets to."""
        brokers = self._brokers
        if brokers is not None:
            servers = brokers if isinstance(brokers, str) else str(brokers["bootstrap.servers"])
            return servers, group_of(progress.name or str(progress.id))
        told = reader_from_json(_document(source.latestOffset))
        if told is None or (progress.name is None and "{}" in told[1]):
            return None
        return told[0], told[1].replace("{}", progress.name or "")


async def _alter(brokers: Brokers, group_id: str, offsets: PartitionOffsets) -> None:
    commits = {part: CommittedOffset(offset) for part, offset in offsets.items()}
    async with Admin(brokers) as admin:
        outcomes = await admin.alter_group_offsets(group_id, commits)
    for error in outcomes.values():
        if error is not None:
            raise error


def source_metrics(source: SourceProgress) -> dict[str, float]:
    """Returns the connector's `metrics` of a source, by the same names: offsets behind.

    A Python source cannot report them to Spark, so they are computed from the offsets that Spark
    reports. Empty for a source that is not a topic, and before the first read.
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
    """Returns the number of offsets of every partition that a source has still to read, as of its
    last batch.
    """
    end, latest = read_offsets(source["endOffset"]), read_offsets(source["latestOffset"])
    return {part: max(0, offset - end.get(part, 0)) for part, offset in latest.items()}


def read_offsets(text: str | None) -> PartitionOffsets:
    """Returns the offsets of a source; none if it is not a source of topics."""
    try:
        return offsets_from_json(_document(text))
    except (ValueError, AttributeError, TypeError):
        return {}


def read_topic_ids(text: str) -> dict[str, UUID]:
    """Returns the topic ids in the offsets of a source, where it knows them."""
    try:
        return topic_ids_from_json(_document(text))
    except (ValueError, AttributeError, TypeError):
        return {}


def _document(text: str | None) -> dict[str, Any]:
    try:
        document = json.loads(text or "")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
