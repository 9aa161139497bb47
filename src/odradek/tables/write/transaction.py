"""Writes a share of a batch exactly once, however often it is tried: records and marker together.

A query's batches have numbers, and its tasks too. A task is a transactional id; with the records
of batch n it commits n + 1 as the offset of a group of its own, in the same transaction. So the
log itself says which batch was written last:

    OffsetFetch        the claims: whether a newer run of the query has taken its name over; if
                       there is no such run, the marker, before the run is claimed
    InitProducerId     ends what an earlier attempt left open, and shuts out one that still runs
    OffsetFetch        the claims again, and the marker: at n + 1, batch n is there already
    records, TxnOffsetCommit of n + 1, EndTxn

Whether a commit whose answer was lost has happened is never guessed: the next attempt reads
the marker. Only requests that any Kafka has since 2.5. Markers and claims are offsets of
partition 0 of the target topic; brokers forget offsets of groups without members after
`offsets.retention.minutes`, and with it what was written last.

InitProducerId alone would shut out whoever came before, be it the older or the newer of two
queries, and they would take turns. So the runs of a name are written down, each when its first
task comes, and only the last of them may go on. Two that begin at the same moment may both
think so until the next batch; then one of them finds itself before the other.

Markers belong to a checkpoint, whose numbers they are: a query that begins anew, with a name
that was there before, writes its batch 0. Beside its number a marker has the number of records,
which a repeated batch has again, unless it was cut into other tasks.

Records go by `TopicWriter`, over its own connections; what a transaction has to say goes by
the asyncio client, on a loop that runs for as long as each question takes.
"""

import asyncio
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from odradek.client.aio.admin import Admin
from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.transactions import TransactionManager
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.groups.group_metadata import GroupMetadata
from odradek.client.core.producing.transaction_state import TransactionState
from odradek.client.errors import FencedError, KafkaError, error_for
from odradek.client.settings import PRODUCER_SETTINGS, ClientSettings
from odradek.model import TopicPartition
from odradek.tables.errors import OutdatedQuery

# A transaction may be open. After a commit whose answer was lost too: the coordinator does what
# it is told first, and refuses the other.
_UNDECIDED: Final = (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE)
# What a broker keeps beside an offset is 4 096 bytes at most, and a run has 36.
_REMEMBERED_RUNS: Final = 64
_BOOKKEEPING: Final = re.compile(r"spark\..+\.sink(\.\d+)?")
# A task that failed is not kept any longer than that to take back what it wrote.
_ABORT_TIMEOUT_S: Final = 5


def is_bookkeeping(group_id: str) -> bool:
    """Whether the offsets of a group are markers or claims, and nobody's place in a topic."""
    return _BOOKKEEPING.fullmatch(group_id) is not None


@dataclass(frozen=True)
class WriterName:
    """A task of a query. `query` is its name, which one may have at a time for a topic.

    `run` is a new one whenever the query is started, `checkpoint` stays over all its runs.
    """

    query: str
    checkpoint: str
    run: str
    task: int

    @property
    def marker_group(self) -> str:
        """The group whose offset is the number behind the last batch that was written."""
        return f"spark.{self.checkpoint}.sink.{self.task}"

    @property
    def claim_group(self) -> str:
        """The group that says, beside its offset, which runs there were."""
        return f"spark.{self.query}.sink"


class BatchTransaction:
    """One attempt at one batch: `begin`, and unless it is there already write and `commit`.

    A context manager. What was not committed is taken back when it is left, or if nobody gets to
    that by the next attempt, or by the coordinator after `timeout_ms`. Markers and claims are
    offsets of `marker`, a partition that has to exist. An attempt that was shut out, and is left
    for it, says so as `OutdatedQuery`.
    """

    def __init__(
        self, bootstrap_servers: str, name: WriterName, marker: TopicPartition, *, timeout_ms: int
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._name = name
        self._marker = marker
        self._timeout_ms = timeout_ms
        self._runner = asyncio.Runner()
        self._cluster: ClusterClient | None = None
        self._manager: TransactionManager | None = None
        self._written: CommittedOffset | None = None

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
                f"query {self._name.query}: another attempt at task {self._name.task} has taken "
                "over, or this one took longer than kafka.transaction.timeout.ms "
                f"({self._timeout_ms})"
            ) from error

    @property
    def transactional_id(self) -> str:
        """What shuts out an attempt at the same task that still runs."""
        return f"spark.{self._name.query}.{self._marker.topic}.{self._name.task}"

    def check_repeated(self, records: int) -> None:
        """Checks, after `begin` was False, that this attempt has as many records as what is there.

        Raises:
            OutdatedQuery: the batch is cut otherwise than it was, among more or fewer tasks.
        """
        assert self._written is not None, "the batch is written"
        if self._written.metadata != str(records):
            raise OutdatedQuery(
                f"query {self._name.query}: task {self._name.task} of the last batch was written "
                f"with {self._written.metadata} records and is repeated with {records}: options "
                "that cut a batch into tasks must not change before it is done"
            )

    def begin(self, batch_id: int) -> bool:
        """Takes the task over; False when the batch was written by an earlier attempt.

        Raises:
            OutdatedQuery: a newer run has the query's name, or later batches were written.
            KafkaError: the coordinators do not let us, or do not answer.
        """
        return self._runner.run(self._begin(batch_id))

    def producer(self) -> tuple[int, int]:
        """The id and epoch that records are written with."""
        assert self._manager is not None, "the transaction has begun"
        return self._manager.producer_id, self._manager.producer_epoch

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Has to come before the first records of a partition.

        Raises:
            KafkaError: a newer attempt has the name, or the coordinator does not answer.
        """
        assert self._manager is not None, "the transaction has begun"
        self._runner.run(self._manager.add_partitions(partitions))

    def commit(self, batch_id: int, records: int) -> None:
        """Makes the records visible and the batch written, both or neither; so many there are.

        Raises:
            KafkaError: it was not, or it is not known.
        """
        self._runner.run(self._commit(batch_id, records))

    async def _begin(self, batch_id: int) -> bool:
        settings = ClientSettings(
            PRODUCER_SETTINGS,
            {
                "bootstrap.servers": self._bootstrap_servers,
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": self._timeout_ms,
            },
            {},
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

        False when the batch is written: then a run that nobody knows may be an old one, whose first
        task was held up until now, and must not take over.
        """
        group_id, run = self._name.claim_group, self._name.run
        claims = await self._committed(admin, group_id)
        runs = claims.metadata.split() if claims is not None else []
        if run in runs[:-1]:
            raise OutdatedQuery(
                f"query {self._name.query} was started again: this run of it may not write any more"
            )
        if run in runs:
            return True
        # Whoever has left a transaction open is ended later: it must not be waited for here.
        if await self._is_written(admin, batch_id, require_stable=False):
            return False
        known = " ".join([*runs, run][-_REMEMBERED_RUNS:])
        claim = CommittedOffset(claims.offset + 1 if claims is not None else 1, known)
        outcomes = await admin.alter_group_offsets(group_id, {self._marker: claim})
        for error in outcomes.values():
            if error is not None:
                raise error_for(error.code, f"{self._marker}: {error.message}")
        return True

    async def _is_written(
        self, admin: Admin, batch_id: int, *, require_stable: bool = True
    ) -> bool:
        self._written = await self._committed(
            admin, self._name.marker_group, require_stable=require_stable
        )
        if self._written is None or self._written.offset <= batch_id:
            return False
        self._check_follows(batch_id, self._written.offset)
        return True

    async def _committed(
        self, admin: Admin, group_id: str, *, require_stable: bool = True
    ) -> CommittedOffset | None:
        found = await admin.list_group_offsets(
            [group_id], [self._marker], require_stable=require_stable
        )
        committed = found[group_id]
        if isinstance(committed, KafkaError):
            raise committed
        offset = committed.get(self._marker)
        if isinstance(offset, KafkaError):
            raise offset
        return offset

    def _check_follows(self, batch_id: int, written: int) -> None:
        """What Spark repeats is its last batch: who tries an older one has an older checkpoint."""
        if written > batch_id + 1:
            raise OutdatedQuery(
                f"query {self._name.query} comes with batch {batch_id}, and has written batch "
                f"{written - 1}: its checkpoint is older than what it wrote"
            )

    async def _close(self) -> None:
        if self._manager is not None and self._manager.life.state in _UNDECIDED:
            # Whoever reads what is committed would have to wait for the next attempt.
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(_ABORT_TIMEOUT_S):
                    self._manager.life.move(TransactionState.ABORTING)
                    await self._manager.end(commit=False)
        if self._cluster is not None:
            await self._cluster.close()

    async def _commit(self, batch_id: int, records: int) -> None:
        assert self._manager is not None, "the transaction has begun"
        offsets = {self._marker: CommittedOffset(batch_id + 1, str(records))}
        await self._manager.send_offsets(offsets, GroupMetadata(self._name.marker_group))
        self._manager.life.move(TransactionState.COMMITTING)
        await self._manager.end(commit=True)
