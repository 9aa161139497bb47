"""Commits a batch whose tasks have all written their shares, on the driver of a query.

Only now is it known how the batch is cut: among how many tasks, with how many records each. A
batch that is repeated may be cut otherwise (another number of cores, another setting, adaptive
execution), and a row then come to a task that has not written it yet. So the cut is written
down before the first share is committed:

    OffsetFetch        the claims: an older run that comes late finds the newer one here
    InitProducerId     of the cut: from now on no older driver can write one
    OffsetFetch        the claims again, and the cut of the last batch
    OffsetFetch        with the first batch of a run: the cuts of batches for other topics
    ListTransactions   then too: what earlier runs have left open
    InitProducerId     for tasks that an earlier run had and this one has not: takes their
                       shares back, and shuts them out
    OffsetFetch        if the batch was to be committed before, cut otherwise: the markers of its
                       tasks; one that is there refuses this cut
    TxnOffsetCommit    of the cut, and EndTxn: refused if a newer driver has come since
    EndTxn             for every share

So cuts are written one after the other. A driver that is considered dead, and continues later,
either has written its cut before the newer one looks, which then fences its tasks, or cannot any
more. Nothing is committed before everything is written, so until then a batch can be cut
differently.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from odradek.client.aio.admin import Admin
from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.producing.transactions import END_EXPLICIT_TXN, TransactionManager
from odradek.client.apis import INIT_PRODUCER_ID, ClientApi
from odradek.client.core.admin_types import CommittedOffset, TransactionListing
from odradek.client.core.cluster import TRANSACTION
from odradek.client.core.groups.group_metadata import GroupMetadata
from odradek.client.core.producing.transaction_state import TransactionState
from odradek.client.errors import FencedError, KafkaError, raise_for
from odradek.client.settings import PRODUCER_SETTINGS, ClientSettings
from odradek.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.tables.errors import OutdatedQuery
from odradek.tables.write.query_run import QueryRun
from odradek.tables.write.transaction import Share

_ABORT_TIMEOUT_S: Final = 5
# A broker stores at most 4 096 bytes of metadata with an offset.
_MOST_SUMS: Final = 128


@dataclass(frozen=True)
class Cut:
    """How a run has cut a batch.

    `digest` is of the content of every task, `sums` are the numbers of their records, or where
    there are very many tasks the sums of neighbours.
    """

    run: str
    tasks: int
    digest: str
    sums: tuple[int, ...]

    @classmethod
    def of(cls, run: str, shares: Sequence[Share]) -> "Cut":
        """The cut into these shares."""
        contents = [share.content for share in sorted(shares, key=lambda share: share.task)]
        digest = hashlib.sha256(_joined(contents).encode()).hexdigest()
        records = [content.records for content in contents]
        together = -(-len(records) // _MOST_SUMS) or 1
        sums = (sum(records[at : at + together]) for at in range(0, len(records), together))
        return cls(run, len(records), digest, tuple(sums))

    @classmethod
    def read(cls, note: CommittedOffset) -> "Cut":
        """Reads a stored cut."""
        tasks, digest, sums, run = note.metadata.split(maxsplit=3)
        return cls(run, int(tasks), digest, tuple(map(int, sums.split(","))))

    def __str__(self) -> str:
        return f"{self.tasks} {self.digest} {_joined(self.sums)} {self.run}"

    def holds(self, other: "Cut", *, may_lack_records: bool) -> bool:
        """Whether a repeated batch is cut like this one, or only lacks deleted records: then some
        task has fewer than it had, and none has more."""
        if self.tasks != other.tasks:
            return False
        lacks = self.sums != other.sums and all(
            now <= then for then, now in zip(self.sums, other.sums, strict=True)
        )
        return self.digest == other.digest or (may_lack_records and lacks)


class BatchCommit:
    """The batches of one run: all shares of one are committed, or taken back."""

    def __init__(
        self,
        bootstrap_servers: str | Mapping[str, object],
        run: QueryRun,
        *,
        timeout_ms: int,
        may_lack_records: bool,
    ) -> None:
        """Instead of brokers there may be settings of a client, which include them."""
        self._bootstrap_servers = bootstrap_servers
        self._run = run
        self._timeout_ms = timeout_ms
        self._may_lack_records = may_lack_records

    def commit(self, batch_id: int, shares: Sequence[Share]) -> None:
        """Makes the records of all shares visible. If it fails, a repeated batch completes it.

        Raises:
            OutdatedQuery: a newer run has the query's name, or the batch was committed in part
                and is cut otherwise now.
            KafkaError: a coordinator refuses, or does not answer.
        """
        asyncio.run(self._commit(batch_id, shares))

    def abort(self, shares: Sequence[Share]) -> None:
        """Aborts uncommitted shares, as far as a coordinator can be reached at once."""
        with suppress(KafkaError, OutdatedQuery, TimeoutError):
            asyncio.run(self._abort(shares))

    async def _commit(self, batch_id: int, shares: Sequence[Share]) -> None:
        run = self._run
        async with Admin(self._bootstrap_servers) as admin, _closing(self._cluster()) as cluster:
            run.is_claimed(*await run.read(admin, run.claim_group))
            manager = TransactionManager(cluster)
            await manager.init_transactions()
            claims, note = await run.read(admin, run.claim_group, run.cut_group)
            run.is_claimed(claims)
            cut = Cut.of(run.run, shares)
            await self._check_cut(admin, cluster, batch_id, shares, cut, note)
            try:
                await self._write_cut(manager, CommittedOffset(batch_id + 1, str(cut)))
                await asyncio.gather(*self._endings(cluster, shares, commit=True))
            except FencedError as error:
                raise OutdatedQuery(
                    f"query {run.query}: another attempt has taken a task over, or a batch took "
                    f"longer than kafka.transaction.timeout.ms ({self._timeout_ms})"
                ) from error

    async def _check_cut(
        self,
        admin: Admin,
        cluster: ClusterClient,
        batch_id: int,
        shares: Sequence[Share],
        cut: Cut,
        note: CommittedOffset | None,
    ) -> None:
        """Checks that the batch may be cut like this; fences earlier runs."""
        last = None
        if note is not None:
            self._run.check_follows(batch_id, note)
            last = Cut.read(note)
        if last is None or last.run != self._run.run:
            await self._run.check_elsewhere(admin, batch_id)
            before = set(range(last.tasks)) if last is not None else set()
            await self._take_back(cluster, before | await self._left_open(admin), shares)
        if last is None or note is None or note.offset <= batch_id:
            self._check_none_written(batch_id, any(share.is_written for share in shares))
        elif not last.holds(cut, may_lack_records=self._may_lack_records):
            written = await self._is_written(admin, batch_id, last.tasks)
            self._check_none_written(batch_id, written)

    async def _write_cut(self, manager: TransactionManager, note: CommittedOffset) -> None:
        manager.begin()
        group = GroupMetadata(self._run.cut_group)
        await manager.send_offsets({self._run.marker: note}, group)
        for state in (TransactionState.SETTLING, TransactionState.COMMITTING):
            manager.life.move(state)
        await manager.end(commit=True)

    async def _abort(self, shares: Sequence[Share]) -> None:
        async with _closing(self._cluster()) as cluster, asyncio.timeout(_ABORT_TIMEOUT_S):
            # A refused one does not keep the others open.
            endings = self._endings(cluster, shares, commit=False)
            await asyncio.gather(*endings, return_exceptions=True)

    def _cluster(self) -> ClusterClient:
        settings = {
            "transactional.id": self._run.transactional_id("cut"),
            "transaction.timeout.ms": self._timeout_ms,
        }
        return ClusterClient(
            ClientSettings(PRODUCER_SETTINGS, settings, {}, self._bootstrap_servers)
        )

    async def _left_open(self, admin: Admin) -> set[int]:
        """Tasks with an open transaction, also of a run that died before it wrote its cut.

        Errors are ignored: readers of committed data then only wait for the transaction's time-out.
        """
        found: dict[int, list[TransactionListing]] = {}
        with suppress(KafkaError):
            found = await admin.list_transactions(states=["Ongoing"])
        names = (each.transactional_id for listed in found.values() for each in listed)
        return {task for name in names if (task := self._run.task_of(name)) is not None}

    async def _take_back(
        self, cluster: ClusterClient, tasks: Iterable[int], shares: Sequence[Share]
    ) -> None:
        """Fences tasks of earlier runs that this run does not have."""
        taken = {share.task for share in shares if share.producer or share.is_written}
        await asyncio.gather(
            *(self._shut_out(cluster, task) for task in tasks if task not in taken)
        )

    async def _shut_out(self, cluster: ClusterClient, task: int) -> None:
        values = {
            "transaction_timeout_ms": self._timeout_ms,
            "producer_id": NO_PRODUCER_ID,
            "producer_epoch": NO_PRODUCER_EPOCH,
        }
        await self._ask_coordinator(cluster, task, INIT_PRODUCER_ID, values)

    async def _is_written(self, admin: Admin, batch_id: int, tasks: int) -> bool:
        """Whether a task of the last cut has its share in the log.

        Transactions that other runs left open have ended by now; the markers of this one are
        pending.
        """
        groups = [self._run.marker_group(task) for task in range(tasks)]
        markers = await self._run.read(admin, *groups, require_stable=False)
        return any(marker is not None and marker.offset > batch_id for marker in markers)

    def _check_none_written(self, batch_id: int, is_written: bool) -> None:
        if is_written:
            raise OutdatedQuery(
                f"query {self._run.query}: batch {batch_id} was committed in part, and is cut into "
                "other tasks now that it is repeated: some rows would be there twice. Start the "
                "query once as it was before (number of cores, spark.sql.adaptive.*, "
                "spark.sql.shuffle.partitions, options of its source, what it computes)"
            )

    def _endings(
        self, cluster: ClusterClient, shares: Sequence[Share], *, commit: bool
    ) -> list[Coroutine[None, None, None]]:
        return [
            self._end_one(cluster, share.task, *share.producer, commit=commit)
            for share in shares
            if share.producer is not None
        ]

    async def _end_one(
        self, cluster: ClusterClient, task: int, producer_id: int, epoch: int, *, commit: bool
    ) -> None:
        values = {"producer_id": producer_id, "producer_epoch": epoch, "committed": commit}
        await self._ask_coordinator(cluster, task, END_EXPLICIT_TXN, values)

    async def _ask_coordinator(
        self, cluster: ClusterClient, task: int, api: ClientApi, values: Mapping[str, object]
    ) -> None:
        transactional_id = self._run.transactional_id(task)

        async def attempt() -> None:
            node_id = await cluster.coordinator_id(transactional_id, TRANSACTION)
            named = {"transactional_id": transactional_id, **values}
            answer = await cluster.call(node_id, api, named)
            raise_for(int(answer.error_code))

        await cluster.retrying(attempt, cluster.time_limit("max.block.ms"))


@asynccontextmanager
async def _closing(cluster: ClusterClient) -> AsyncIterator[ClusterClient]:
    try:
        yield cluster
    finally:
        await cluster.close()


def _joined(items: Iterable[object]) -> str:
    return ",".join(map(str, items))
