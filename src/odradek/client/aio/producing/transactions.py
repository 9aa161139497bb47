"""The producer's id, and the calls of a transaction: the requests to its coordinator.

An idempotent producer needs an id from any broker. A transactional one gets it from its
coordinator, which thereby ends what a predecessor of the same transactional id left open.
Partitions and groups are added before anything is written to them; EndTxn ends the transaction
everywhere.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from odradek.client.aio.cluster import ClusterClient
from odradek.client.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    ClientApi,
)
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.cluster import GROUP, TRANSACTION, Message, Values
from odradek.client.core.groups.commits import commit_errors, commits_by_topic
from odradek.client.core.groups.group_metadata import GroupMetadata
from odradek.client.core.metadata import by_topic
from odradek.client.core.producing.transaction_state import TransactionLife, TransactionState
from odradek.client.core.retries import TimeLimit
from odradek.client.errors import (
    ClientClosed,
    CoordinatorError,
    KafkaError,
    NetworkError,
    TransactionAborted,
    TransactionError,
    error_for,
    raise_for,
    unanswered,
)
from odradek.errors import ErrorCode
from odradek.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

T = TypeVar("T")


def _before_implicit_partitions(api: ClientApi) -> ClientApi:
    """The version before 5, which is for transactions whose partitions are added implicitly."""
    return ClientApi(api.key, api.name, api.min_version, 4, api.flexible_from)


END_EXPLICIT_TXN: Final = _before_implicit_partitions(END_TXN)
_TXN_OFFSET_COMMIT: Final = _before_implicit_partitions(TXN_OFFSET_COMMIT)


class TransactionManager:
    """The producer's id and epoch, and the state of its transaction."""

    def __init__(self, cluster: ClusterClient) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self._timeout_ms = settings.number("transaction.timeout.ms")
        self.transactional_id: Final = settings.text("transactional.id") or None
        self.is_transactional: Final = self.transactional_id is not None
        self.numbers_batches = settings.flag("enable.idempotence")
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.life = TransactionLife()
        # Sequences have a gap that only an epoch of the coordinator ends.
        self._needs_new_epoch = False
        # Offsets on their way are in the transaction before it can end.
        self._offsets_or_end = asyncio.Lock()
        # A request for an epoch with one that was replaced meanwhile would fence this producer
        # itself.
        self._identifying = asyncio.Lock()
        # What the coordinator has added to the transaction, and whether it was asked at all: a
        # response may be lost, or not be awaited any more.
        self._partitions: set[TopicPartition] = set()
        self._has_offsets = False
        self._may_be_open = False

    @property
    def has_id(self) -> bool:
        """Whether the producer has its id."""
        return self.producer_id != NO_PRODUCER_ID

    def lost_batch(self, error: KafkaError, *, was_sent: bool) -> None:
        """Handles a batch that was given up: its transaction can only be aborted. If the batch had
        been sent, the sequence has a gap, and starts again with the next epoch."""
        if not self.is_transactional:
            return
        self._needs_new_epoch |= was_sent
        if error.code == ErrorCode.INVALID_TXN_STATE:
            # To a batch it says no more than that it came too late.
            error = TransactionError(error.message, ErrorCode.TRANSACTION_ABORTABLE)
        self.failed(error)

    def failed(self, error: KafkaError) -> None:
        """Records a failure in the transaction; a transaction that is being aborted ignores it."""
        if self.life.state is not TransactionState.ABORTING:
            self.life.fail(error)

    def was_cancelled(self, what: str, number: int) -> None:
        """A call of the transaction of that number was given up, and may be in it in part."""
        if self.is_transactional and number == self.life.number:
            text = f"{what} was cancelled: the transaction can only be aborted"
            self.failed(TransactionError(text, ErrorCode.TRANSACTION_ABORTABLE))

    async def obtain_id(self) -> None:
        """Gets an id, or a new epoch for the existing one.

        Raises:
            KafkaError: there is none.
        """
        limit = self.time_limit()
        async with self._identifying:
            await self._obtain_id(limit)

    async def _obtain_id(self, limit: TimeLimit) -> None:
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

        await self._cluster.retrying(attempt, limit)
        self._needs_new_epoch = False

    async def init_transactions(self) -> None:
        """Ends what a predecessor left open, and makes this producer its successor.

        Raises:
            KafkaError: it cannot.
        """
        limit = self.time_limit()
        async with self._identifying:
            self.life.move(TransactionState.INITIALIZING)
            try:
                await self._obtain_id(limit)
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

    def lacks(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the transaction lacks some of these partitions."""
        return not self._partitions.issuperset(partitions)

    async def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds this transaction's partitions at the coordinator, except those that it knows.

        Raises:
            KafkaError: it refuses; the transaction can only be aborted then.
        """
        fresh = set(partitions) - self._partitions
        if not fresh:
            return
        limit, number = self.time_limit(), self.life.number
        await self._open(limit)

        def values() -> dict[str, object]:
            # Behind the end of the transaction it would open another.
            if not self.life.takes_records(number):
                raise TransactionAborted("the transaction had ended before it had the partitions")
            return {
                **self._identity("v3_and_below_"),
                "v3_and_below_topics": [
                    {"name": name, "partitions": sorted(indexes)}
                    for name, indexes in by_topic(sorted(fresh)).items()
                ],
            }

        async def attempt() -> None:
            answer = await self._ask_coordinator(ADD_PARTITIONS_TO_TXN, values)
            errors: dict[TopicPartition, KafkaError | None]
            errors = {each: unanswered(each) for each in fresh}
            for topic in answer.results_by_topic_v3_and_below:
                for each in topic.results_by_partition:
                    partition = TopicPartition(topic.name, each.partition_index)
                    code = int(each.partition_error_code)
                    errors[partition] = error_for(code, str(partition)) if code else None
            refused = [error for error in errors.values() if error is not None]
            # Told of those that were refused themselves, for good if one was.
            for error in sorted(
                refused,
                key=lambda each: (each.code == ErrorCode.OPERATION_NOT_ATTEMPTED, each.retriable),
            ):
                raise error

        try:
            await self._cluster.retrying(attempt, limit)
        except KafkaError as error:
            if self.life.is_over(number):
                return  # the next one does not fail for it
            raise self._failure(error) from error
        if self.life.takes_records(number):
            self._partitions |= fresh

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset], group: GroupMetadata
    ) -> None:
        """Commits offsets of a group with the transaction.

        Raises:
            KafkaError: the transaction can only be aborted then.
        """
        number = self.life.number
        self.life.check_sending(number)
        limit = self.time_limit()
        try:
            async with self._offsets_or_end:
                self.life.check_sending(number, was_begun=True)
                await self._send_offsets(offsets, group, limit)
        except asyncio.CancelledError:
            # Without them its records must not be committed, and nobody knows of them.
            self.was_cancelled("sending offsets to the transaction", number)
            raise

    async def _send_offsets(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        group: GroupMetadata,
        limit: TimeLimit,
    ) -> None:
        await self._open(limit)
        group_values = {**self._identity(), "group_id": group.group_id}

        async def add() -> None:
            answer = await self._ask_coordinator(ADD_OFFSETS_TO_TXN, group_values)
            raise_for(int(answer.error_code))

        values = {
            **group_values,
            "generation_id": group.generation_id,
            "member_id": group.member_id,
            "group_instance_id": group.instance_id,
            "topics": commits_by_topic(offsets),
        }

        async def commit() -> None:
            node_id = await self._cluster.coordinator_id(group.group_id, GROUP)
            answer = await self._cluster.call(node_id, _TXN_OFFSET_COMMIT, values)
            refused = [each for each in commit_errors(answer, offsets).values() if each is not None]
            for error in sorted(refused, key=lambda each: each.retriable):
                raise error

        await self._call(add, limit)
        self._has_offsets = True
        await self._call(commit, limit)

    async def _open(self, limit: TimeLimit) -> None:
        """Prepares for a request that opens the transaction at its coordinator."""
        async with self._identifying:
            if self.life.error is not None:
                raise self.life.error
            if self._needs_new_epoch:
                assert not self._may_be_open, "who lost a batch has aborted its transaction"
                try:
                    await self._obtain_id(limit)
                except KafkaError as error:
                    raise self._failure(error) from error
            self._may_be_open = True

    async def end(
        self, *, commit: bool, number: int | None = None, limit: TimeLimit | None = None
    ) -> None:
        """Ends the transaction, or the one of that number unless it has ended; nothing is asked
        when nothing was written. `limit` is the rest of `max.block.ms`.

        Raises:
            KafkaError: it could not be ended, or can not be committed any more.
        """
        number = self.life.number if number is None else number
        limit = self.time_limit() if limit is None else limit
        async with self._offsets_or_end:
            if self.life.number != number or self.life.state is TransactionState.READY:
                return  # somebody else was faster
            # Who was waited for may have failed it.
            self.life.move(TransactionState.COMMITTING if commit else TransactionState.ABORTING)
            try:
                if self._may_be_open:
                    await self._end_open(limit, commit=commit)
                    self._may_be_open = False
            except KafkaError as error:
                # Without an answer it may have ended all the same: the same call can tell, if any.
                if not (error.retriable or isinstance(error, ClientClosed)):
                    self.life.fail(error)
                raise
            self.life.move(TransactionState.READY)

    async def _end_open(self, limit: TimeLimit, *, commit: bool) -> None:
        is_open = bool(self._partitions or self._has_offsets)
        try:
            await self._cluster.retrying(lambda: self._end_once(commit=commit), limit)
        except KafkaError as error:
            if is_open or error.code != ErrorCode.INVALID_TXN_STATE:
                raise

    async def _end_once(self, *, commit: bool) -> None:
        values = {**self._identity(), "committed": commit}
        answer = await self._ask_coordinator(END_EXPLICIT_TXN, values)
        raise_for(int(answer.error_code))

    def time_limit(self) -> TimeLimit:
        """The limit of a call, which includes its wait for earlier calls."""
        return self._cluster.time_limit("max.block.ms")

    async def _call(self, attempt: Callable[[], Awaitable[T]], limit: TimeLimit) -> T:
        try:
            return await self._cluster.retrying(attempt, limit)
        except KafkaError as error:
            raise self._failure(error) from error

    def _failure(self, error: KafkaError) -> KafkaError:
        """An error of the transaction as its user is to see it: nothing is to be tried again."""
        self.failed(error)
        return self.life.error or error

    async def _ask_coordinator(self, api: ClientApi, values: Values) -> Message:
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
