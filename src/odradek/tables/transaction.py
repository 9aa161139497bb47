"""Writes a share of a batch exactly once, however often it is tried: records and marker together.

A writer of exactly-once batches has a name, which is a transactional id, and numbers its
batches. With the records of batch n it commits n + 1 as the offset of a group of its own, in the
same transaction. So the log itself says which batch was written last:

    InitProducerId     ends what an earlier attempt left open, and shuts out one that still runs
    OffsetFetch        the marker: at n + 1 or above, batch n is there, and nothing is written
    records, TxnOffsetCommit of n + 1, EndTxn

Whether a commit whose answer was lost has happened is never guessed: the next attempt reads
the marker. Only requests that any Kafka has since 0.11. The marker is an offset of partition
0 of the target topic; brokers forget offsets of groups without members after
`offsets.retention.minutes`, and with it what was written last.

Records go by `TopicWriter`, over its own connections; what a transaction has to say goes by
the asyncio client, on a loop that runs for as long as each question takes.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType

from odradek.client.aio.admin import Admin
from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.transactions import TransactionManager
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.group_metadata import GroupMetadata
from odradek.client.core.transaction_state import TransactionState
from odradek.client.errors import KafkaError
from odradek.client.settings import PRODUCER_SETTINGS, ClientSettings
from odradek.model import TopicPartition


@dataclass(frozen=True)
class WriterName:
    """A writer that there is one of at a time; the same name again takes over from it."""

    query: str
    task: int

    @property
    def transactional_id(self) -> str:
        """What shuts out the one before."""
        return f"spark.{self.query}.{self.task}"

    @property
    def group_id(self) -> str:
        """The group whose offset is the marker."""
        return f"spark.{self.query}.sink.{self.task}"


class BatchTransaction:
    """One attempt at one batch: `begin`, and unless it is there already write and `commit`.

    A context manager; what was not committed is taken back by the next attempt, or by the
    coordinator after `timeout_ms`.
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

    def __enter__(self) -> "BatchTransaction":
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._cluster is not None:
                self._runner.run(self._cluster.close())
        finally:
            self._runner.close()

    @property
    def transactional_id(self) -> str:
        """For the requests with its records."""
        return self._name.transactional_id

    def begin(self, batch_id: int) -> bool:
        """Takes the name over; False when the batch was written by an earlier attempt.

        Raises:
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

    def commit(self, batch_id: int) -> None:
        """Makes the records visible and the batch written, both or neither.

        Raises:
            KafkaError: it was not, or it is not known.
        """
        self._runner.run(self._commit(batch_id))

    async def _begin(self, batch_id: int) -> bool:
        settings = ClientSettings(
            PRODUCER_SETTINGS,
            {
                "bootstrap.servers": self._bootstrap_servers,
                "transactional.id": self._name.transactional_id,
                "transaction.timeout.ms": self._timeout_ms,
            },
            {},
        )
        self._cluster = ClusterClient(settings)
        self._manager = TransactionManager(self._cluster)
        await self._manager.init_transactions()
        if await self._written_batches() > batch_id:
            return False
        self._manager.begin()
        return True

    async def _written_batches(self) -> int:
        """The number behind the last batch that was written under this name."""
        group_id = self._name.group_id
        async with Admin(self._bootstrap_servers) as admin:
            found = await admin.list_group_offsets([group_id], [self._marker], require_stable=True)
        committed = found[group_id]
        if isinstance(committed, KafkaError):
            raise committed
        marker = committed.get(self._marker)
        if isinstance(marker, KafkaError):
            raise marker
        return marker.offset if marker is not None else 0

    async def _commit(self, batch_id: int) -> None:
        assert self._manager is not None, "the transaction has begun"
        offsets = {self._marker: CommittedOffset(batch_id + 1)}
        await self._manager.send_offsets(offsets, GroupMetadata(self._name.group_id))
        self._manager.life.move(TransactionState.COMMITTING)
        await self._manager.end(commit=True)
