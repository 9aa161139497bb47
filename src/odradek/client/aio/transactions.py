"""The producer's id, and the calls of a transaction: what goes to the transaction's coordinator.

An idempotent producer needs an id from any broker. A transactional one gets it from its
coordinator, which thereby ends what a predecessor of the same transactional id left open.
Partitions and groups are added before anything is written to them; EndTxn ends the transaction
everywhere.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from odradek.client.aio.admin.base import by_topic
from odradek.client.aio.cluster import GROUP, TRANSACTION, ClusterClient, Message
from odradek.client.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    ClientApi,
)
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.groups.group_metadata import GroupMetadata
from odradek.client.core.producing.transaction_state import TransactionLife, TransactionState
from odradek.client.errors import CoordinatorError, KafkaError, NetworkError, raise_for
from odradek.errors import ErrorCode
from odradek.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

T = TypeVar("T")


def _before_implicit_partitions(api: ClientApi) -> ClientApi:
    """Version 5 of these belongs to transactions whose partitions add themselves."""
    return ClientApi(api.key, api.name, api.min_version, 4, api.flexible_from)


_END_TXN: Final = _before_implicit_partitions(END_TXN)
_TXN_OFFSET_COMMIT: Final = _before_implicit_partitions(TXN_OFFSET_COMMIT)


def _nothing() -> None:
    """For whoever numbers no batches."""


class TransactionManager:
    """Who a producer is: its id and epoch, and where it stands with its transaction. `renumber` is
    called when sequences begin anew, in a new epoch."""

    def __init__(self, cluster: ClusterClient, renumber: Callable[[], None] = _nothing) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self._timeout_ms = settings.number("transaction.timeout.ms")
        self._max_block_ms = settings.number("max.block.ms")
        self.transactional_id = settings.text("transactional.id") or None
        self.numbers_batches = settings.flag("enable.idempotence")
        self._renumber = renumber
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.needs_new_epoch = False
        self.life = TransactionLife()
        # What the coordinator has taken into the transaction, and whether it was asked to at all:
        # an answer may be lost, or nobody wait for it any more.
        self._partitions: set[TopicPartition] = set()
        self._has_offsets = False
        self._may_be_open = False

    @property
    def is_transactional(self) -> bool:
        """Whether there is a transactional id."""
        return self.transactional_id is not None

    @property
    def has_id(self) -> bool:
        """Whether the producer has its id."""
        return self.producer_id != NO_PRODUCER_ID

    def lost_batch(self, error: KafkaError) -> None:
        """A batch that had left is given up: the numbers have a gap, and begin anew with the next
        epoch. A transaction can only be aborted; the end of that brings the epoch."""
        self.needs_new_epoch = self.numbers_batches
        if self.is_transactional and self.life.state is not TransactionState.ABORTING:
            self.life.fail(error)

    async def obtain_id(self) -> None:
        """Gets an id, or for the one that there is a new epoch.

        Raises:
            KafkaError: it cannot be had.
        """
        values = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": self._timeout_ms,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }

        async def attempt() -> None:
            node_id = None
            if self.transactional_id is not None:
                node_id = await self._cluster.coordinator_id(self.transactional_id, TRANSACTION)
            answer = await self._cluster.call(node_id, INIT_PRODUCER_ID, values)
            raise_for(int(answer.error_code))
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch

        await self._cluster.retrying(attempt, self._max_block_ms)
        if self.needs_new_epoch:
            self.needs_new_epoch = False
            self._renumber()

    async def init_transactions(self) -> None:
        """Ends what a predecessor left open, and makes this producer its successor.

        Raises:
            KafkaError: it cannot.
        """
        self.life.move(TransactionState.INITIALIZING)
        try:
            await self.obtain_id()
        except KafkaError as error:
            self.life.fail(error)
            if self.life.state is TransactionState.INITIALIZING:
                self.life.move(TransactionState.UNINITIALIZED)
            raise
        self.life.move(TransactionState.READY)

    def begin(self) -> None:
        """Begins a transaction.

        Raises:
            KafkaError: there is one, or there can be none.
        """
        self.life.move(TransactionState.IN_TRANSACTION)
        self._partitions = set()
        self._has_offsets = self._may_be_open = False

    async def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Tells the coordinator what this transaction writes to; what it knows it is not told.

        Raises:
            KafkaError: it refuses; the transaction can only be aborted then.
        """
        fresh = set(partitions) - self._partitions
        if not fresh:
            return
        values = {
            **self._identity("v3_and_below_"),
            "v3_and_below_topics": [
                {"name": name, "partitions": sorted(indexes)}
                for name, indexes in by_topic(sorted(fresh)).items()
            ],
        }

        async def attempt() -> None:
            answer = await self._ask_coordinator(ADD_PARTITIONS_TO_TXN, values)
            for topic in answer.results_by_topic_v3_and_below:
                for each in topic.results_by_partition:
                    code = int(each.partition_error_code)
                    # Told of those that were refused themselves.
                    if code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                        raise_for(code, f"{topic.name}-{each.partition_index}")

        self._may_be_open = True
        await self._call(attempt)
        self._partitions |= fresh

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset], group: GroupMetadata
    ) -> None:
        """Commits offsets of a group with the transaction.

        Raises:
            KafkaError: the transaction can only be aborted then.
        """
        self.life.check_sending()
        group_values = {**self._identity(), "group_id": group.group_id}

        async def add() -> None:
            answer = await self._ask_coordinator(ADD_OFFSETS_TO_TXN, group_values)
            raise_for(int(answer.error_code))

        topics = [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": offsets[TopicPartition(name, index)].offset,
                        "committed_leader_epoch": offsets[TopicPartition(name, index)].leader_epoch,
                        "committed_metadata": offsets[TopicPartition(name, index)].metadata,
                    }
                    for index in indexes
                ],
            }
            for name, indexes in by_topic(offsets).items()
        ]
        values = {
            **group_values,
            "generation_id": group.generation_id,
            "member_id": group.member_id,
            "group_instance_id": group.instance_id,
            "topics": topics,
        }

        async def commit() -> None:
            node_id = await self._cluster.coordinator_id(group.group_id, GROUP)
            answer = await self._cluster.call(node_id, _TXN_OFFSET_COMMIT, values)
            for topic in answer.topics:
                for each in topic.partitions:
                    raise_for(int(each.error_code), f"{topic.name}-{each.partition_index}")

        self._may_be_open = True
        await self._call(add)
        self._has_offsets = True
        await self._call(commit)

    async def end(self, *, commit: bool) -> None:
        """Ends the transaction; nothing is asked when nothing was written.

        Raises:
            KafkaError: it could not be ended.
        """
        try:
            if self._may_be_open:
                await self._end_open(commit=commit)
                self._may_be_open = False
            if self.needs_new_epoch:
                await self.obtain_id()
        except KafkaError as error:
            # Without an answer it may have ended all the same: the same call can tell.
            if not error.retriable:
                self.life.fail(error)
            raise
        self.life.move(TransactionState.READY)

    async def _end_open(self, *, commit: bool) -> None:
        is_open = bool(self._partitions or self._has_offsets)
        try:
            await self._cluster.retrying(lambda: self._end_once(commit=commit), self._max_block_ms)
        except KafkaError as error:
            if is_open or error.code != ErrorCode.INVALID_TXN_STATE:
                raise

    async def _end_once(self, *, commit: bool) -> None:
        values = {**self._identity(), "committed": commit}
        answer = await self._ask_coordinator(_END_TXN, values)
        raise_for(int(answer.error_code))

    async def _call(self, attempt: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._cluster.retrying(attempt, self._max_block_ms)
        except KafkaError as error:
            self.life.fail(error)
            raise

    async def _ask_coordinator(self, api: ClientApi, values: Mapping[str, object]) -> Message:
        assert self.transactional_id is not None, "only transactions have a coordinator"
        node_id = await self._cluster.coordinator_id(self.transactional_id, TRANSACTION)
        try:
            return await self._cluster.call(node_id, api, values)
        except (CoordinatorError, NetworkError):
            self._cluster.forget_coordinator(self.transactional_id, TRANSACTION)
            raise

    def _identity(self, prefix: str = "") -> dict[str, object]:
        return {
            f"{prefix}transactional_id": self.transactional_id,
            f"{prefix}producer_id": self.producer_id,
            f"{prefix}producer_epoch": self.producer_epoch,
        }
