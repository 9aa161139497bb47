"""Transactions: list, describe, end by force."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from odradek.client.aio.admin.base import AdminBase, each_of
from odradek.client.apis import DESCRIBE_TRANSACTIONS, INIT_PRODUCER_ID, LIST_TRANSACTIONS
from odradek.client.core.admin_types import TransactionDescription, TransactionListing
from odradek.client.core.cluster import TRANSACTION, Message
from odradek.client.core.listed import each_once
from odradek.client.errors import KafkaError, raise_for, unanswered
from odradek.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class TransactionCalls(AdminBase):
    """Calls about transactions."""

    async def list_transactions(
        self,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        *,
        running_longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """The transactions of every broker, by its id.

        Raises:
            KafkaError: a broker cannot be asked.
        """
        values = {
            "state_filters": each_once(states),
            "producer_id_filters": tuple(producer_ids),
            "duration_filter": running_longer_than_ms,
            "transactional_id_pattern": pattern,
        }

        async def ask(node_id: int) -> list[TransactionListing]:
            answer = await self._cluster.call(node_id, LIST_TRANSACTIONS, values)
            raise_for(int(answer.error_code))
            return [
                TransactionListing(each.transactional_id, each.producer_id, each.transaction_state)
                for each in answer.transaction_states
            ]

        async def ask_with_retries(node_id: int) -> list[TransactionListing]:
            return await self._cluster.retrying(lambda: ask(node_id))

        nodes = await self._each_node()
        found = await asyncio.gather(*map(ask_with_retries, nodes))
        return dict(zip(nodes, found, strict=True))

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription | KafkaError]:
        """Transactions with their partitions."""

        async def ask(transactional_id: str) -> TransactionDescription:
            node_id = await self._coordinator(transactional_id, TRANSACTION)
            values = {"transactional_ids": [transactional_id]}
            answer = await self._cluster.call(node_id, DESCRIBE_TRANSACTIONS, values)
            for state in answer.transaction_states:
                if state.transactional_id == transactional_id:
                    raise_for(int(state.error_code))
                    return _description(state, node_id)
            raise unanswered(transactional_id)

        async def attempt(
            pending: list[str],
        ) -> dict[str, TransactionDescription | KafkaError]:
            return await each_of(pending, ask)

        return await self._retrying(transactional_ids, attempt)

    async def force_terminate_transaction(self, transactional_id: str) -> None:
        """Aborts a producer's open transaction and fences the producer, as a successor would.

        Raises:
            KafkaError: the coordinator refuses, or does not answer.
        """
        values = {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": self._timeout_ms,
            "producer_id": NO_PRODUCER_ID,
            "producer_epoch": NO_PRODUCER_EPOCH,
        }

        async def attempt() -> None:
            node_id = await self._coordinator(transactional_id, TRANSACTION)
            answer = await self._cluster.call(node_id, INIT_PRODUCER_ID, values)
            raise_for(int(answer.error_code))

        await self._cluster.retrying(attempt)


def _description(state: Message, coordinator_id: int) -> TransactionDescription:
    started = state.transaction_start_time
    return TransactionDescription(
        state.transactional_id,
        coordinator_id,
        state.transaction_state,
        state.transaction_timeout // _MILLISECOND,
        -1 if started is None else (started - _EPOCH) // _MILLISECOND,
        state.producer_id,
        state.producer_epoch,
        frozenset(
            TopicPartition(topic.topic, index)
            for topic in state.topics
            for index in topic.partitions
        ),
    )
