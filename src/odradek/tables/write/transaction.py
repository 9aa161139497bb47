"""A task's share of a batch that is written exactly once: a transaction that the driver commits.

A query's batches have numbers, and its tasks too. A task is a transactional id; with the records of
batch n it commits n + 1 as the offset of its own group, in the same transaction. So the log itself
says which batch was written last:

    OffsetFetch        the claims: whether a newer run of the query has taken its name over; if
                       there is no such run, the marker, before the run is claimed
    InitProducerId     ends what an earlier attempt left open, and shuts out one that still runs
    OffsetFetch        the claims again, and the marker: at n + 1, the share is there already
    records, TxnOffsetCommit of n + 1

The transaction stays open: only when all tasks of the batch have come so far does the driver
know how the batch is cut, and commit (`batch_commit`). Whether a commit whose answer was lost has
happened is never guessed: the next attempt reads the marker. Only requests that any Kafka has
since 2.5.

InitProducerId alone would shut out whoever came before, be it the older or the newer of two
queries, and they would take turns. So the runs of a name are stored, each with its first task, and
only the last of them may continue. Two that begin at the same moment may both think so until the
next batch; then one of them finds itself before the other.

Markers belong to a checkpoint, whose batch numbers they have: a query with a new checkpoint and an
old name writes its batch 0. Beside its number a marker has the number of records and a checksum of
them, which a repeated batch has again, unless it was cut into other tasks.

Records go by `TopicWriter`, over its own connections; requests about the transaction use the
asyncio client, on a loop that runs for each request.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from odradek.client.aio.admin import Admin
from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.producing.transactions import TransactionManager
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.groups.group_metadata import GroupMetadata
from odradek.client.core.producing.transaction_state import TransactionState
from odradek.client.errors import FencedError, KafkaError
from odradek.client.settings import PRODUCER_SETTINGS, ClientSettings
from odradek.model import TopicPartition
from odradek.tables.errors import OutdatedQuery
from odradek.tables.write.query_run import QueryRun, runs_of

_UNDECIDED: Final = (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE)
# A broker stores at most 4 096 bytes of metadata with an offset, and a run has 36.
_REMEMBERED_RUNS: Final = 64
# A task that failed is not kept any longer than that to take back what it wrote.
_ABORT_TIMEOUT_S: Final = 5


@dataclass(frozen=True)
class Content:
    """So many records, and a checksum of them that does not depend on their order."""

    records: int = 0
    checksum: int = 0

    @classmethod
    def read(cls, text: str) -> "Content":
        """Reads what was written down."""
        records, checksum = text.split()
        return cls(int(records), int(checksum, 16))

    def __str__(self) -> str:
        return f"{self.records} {self.checksum:x}"


@dataclass(frozen=True)
class Share:
    """A task's part of a batch, in an open transaction of `producer`.

    `producer` is an id and an epoch; None when there is nothing to commit: no records, or the
    share `is_written` by an earlier attempt.
    """

    task: int
    content: Content
    producer: tuple[int, int] | None = None
    is_written: bool = False


class BatchTransaction:
    """One attempt at a task's share of a batch: `begin`, and unless it is written write and
    `prepare`.

    A context manager. An unprepared transaction is aborted when the block ends, else by the next
    attempt, or by the coordinator after `timeout_ms`. An attempt that was shut out, and is left for
    it, says so as `OutdatedQuery`.
    """

    def __init__(
        self,
        bootstrap_servers: str | Mapping[str, object],
        run: QueryRun,
        task: int,
        *,
        timeout_ms: int,
    ) -> None:
        """In the place of brokers there may be settings of a client, theirs among them."""
        self._bootstrap_servers = bootstrap_servers
        self._run = run
        self._task = task
        self._timeout_ms = timeout_ms
        self._runner = asyncio.Runner()
        self._cluster: ClusterClient | None = None
        self._manager: TransactionManager | None = None
        self._written: CommittedOffset | None = None
        self._is_prepared = False

    def __enter__(self) -> "BatchTransaction":
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._runner.run(self._close())
        finally:
            self._runner.close()
        if isinstance(error, FencedError):
            raise OutdatedQuery(
                f"query {self._run.query}: another attempt at task {self._task} has taken "
                "over, or this one took longer than kafka.transaction.timeout.ms "
                f"({self._timeout_ms})"
            ) from error

    @property
    def transactional_id(self) -> str:
        """The id that shuts out an attempt at the same task that still runs."""
        return self._run.transactional_id(self._task)

    @property
    def written(self) -> Content:
        """The content of the share that an earlier attempt has written, after `begin` was False."""
        assert self._written is not None, "the batch is written"
        return Content.read(self._written.metadata)

    def repeated(
        self, content: Content, *, may_lack_records: bool = False, advice: str = ""
    ) -> Share:
        """The share, after `begin` was False: it has to have the records that were written.

        With `may_lack_records` some may have been deleted since, before they were read again: then
        there are fewer. As many have to be the same.

        Raises:
            OutdatedQuery: it has others; the message ends with the advice.
        """
        written = self.written
        lacks = may_lack_records and content.records < written.records
        if content != written and not lacks:
            raise OutdatedQuery(
                f"query {self._run.query}: task {self._task} of the last batch was written "
                f"with {written.records} records and is repeated with {content.records}, or with "
                f"others. {advice}"
            )
        return Share(self._task, content, is_written=True)

    def begin(self, batch_id: int) -> bool:
        """Fences earlier attempts at the task; False when one of them has written its share.

        Raises:
            OutdatedQuery: a newer run has the query's name, or later batches were written.
            KafkaError: the coordinators do not let us, or do not answer.
        """
        return self._runner.run(self._begin(batch_id))

    def check_elsewhere(self, batch_id: int) -> None:
        """Checks that no commit of this batch to another topic was begun; a commit checks it, too.

        Raises:
            OutdatedQuery: one was, or one of a later batch.
            KafkaError: a coordinator refuses, or does not answer.
        """
        self._runner.run(self._check_elsewhere(batch_id))

    def producer(self) -> tuple[int, int]:
        """The id and epoch that records are written with."""
        assert self._manager is not None, "the transaction has begun"
        return self._manager.producer_id, self._manager.producer_epoch

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds partitions; comes before the first records of a partition.

        Raises:
            KafkaError: a newer attempt has the transactional id, or the coordinator does not
                answer.
        """
        assert self._manager is not None, "the transaction has begun"
        self._runner.run(self._manager.add_partitions(partitions))

    def prepare(self, batch_id: int, content: Content) -> Share:
        """Puts the marker beside the records; the share is left to be committed.

        Raises:
            KafkaError: the transaction can only be aborted.
        """
        self._runner.run(self._prepare(batch_id, content))
        return Share(self._task, content, self.producer())

    async def _check_elsewhere(self, batch_id: int) -> None:
        async with Admin(self._bootstrap_servers) as admin:
            await self._run.check_elsewhere(admin, batch_id)

    async def _begin(self, batch_id: int) -> bool:
        settings = ClientSettings(
            PRODUCER_SETTINGS,
            {
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": self._timeout_ms,
            },
            {},
            self._bootstrap_servers,
        )
        async with Admin(self._bootstrap_servers) as admin:
            if not await self._claim(admin, batch_id):
                return False
            self._cluster = ClusterClient(settings)
            self._manager = TransactionManager(self._cluster)
            await self._manager.init_transactions()
            if not await self._claim(admin, batch_id) or await self._is_written(admin, batch_id):
                return False
        self._manager.begin()
        return True

    async def _claim(self, admin: Admin, batch_id: int) -> bool:
        """Writes down that this run is there, unless it is; another one may have come since.

        False when the share is written: then a run that nobody knows may be an old one, whose first
        task was held up until now, and must not take over.
        """
        (claims,) = await self._run.read(admin, self._run.claim_group)
        if self._run.is_claimed(claims):
            return True
        # A run that left a transaction open is fenced later: it must not be waited for here.
        if await self._is_written(admin, batch_id, require_stable=False):
            return False
        known = " ".join([*runs_of(claims), self._run.run][-_REMEMBERED_RUNS:])
        number = claims.offset + 1 if claims is not None else 1
        await self._run.write(admin, self._run.claim_group, CommittedOffset(number, known))
        return True

    async def _is_written(
        self, admin: Admin, batch_id: int, *, require_stable: bool = True
    ) -> bool:
        (self._written,) = await self._run.read(
            admin, self._run.marker_group(self._task), require_stable=require_stable
        )
        if self._written is None or self._written.offset <= batch_id:
            return False
        self._run.check_follows(batch_id, self._written)
        return True

    async def _close(self) -> None:
        is_open = self._manager is not None and self._manager.life.state in _UNDECIDED
        if self._manager is not None and is_open and not self._is_prepared:
            # Readers of committed records would have to wait for the next attempt.
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(_ABORT_TIMEOUT_S):
                    self._manager.life.move(TransactionState.ABORTING)
                    await self._manager.end(commit=False)
        if self._cluster is not None:
            await self._cluster.close()

    async def _prepare(self, batch_id: int, content: Content) -> None:
        assert self._manager is not None, "the transaction has begun"
        offsets = {self._run.marker: CommittedOffset(batch_id + 1, str(content))}
        group = GroupMetadata(self._run.marker_group(self._task))
        await self._manager.send_offsets(offsets, group)
        self._is_prepared = True
