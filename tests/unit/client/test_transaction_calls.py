"""If these fail, a transaction is committed without something that belongs to it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.client.aio.producing.transactions import TransactionManager
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.groups.group_metadata import GroupMetadata
from odradek.client.core.producing.transaction_state import TransactionState
from odradek.client.core.retries import TimeLimit
from odradek.client.errors import KafkaError, TransactionError
from odradek.client.settings import PRODUCER_SETTINGS, ClientSettings
from odradek.clock import SystemClock
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

OFFSETS = {TopicPartition("t", 0): CommittedOffset(5)}


class SilentCluster:
    """Brokers that answer nothing."""

    def __init__(self) -> None:
        self.settings = ClientSettings(PRODUCER_SETTINGS, {}, {"transactional_id": "x"})

    def time_limit(self, setting: str) -> TimeLimit:
        return TimeLimit(SystemClock(), self.settings.number(setting), setting)

    async def retrying(self, *_: object) -> None:
        await asyncio.Event().wait()


def test_a_transaction_whose_offsets_nobody_waited_for_can_only_be_aborted() -> None:
    """Its records would be committed, and read and processed once more by the next member."""

    async def scenario() -> None:
        transactions = TransactionManager(SilentCluster())  # type: ignore[arg-type]
        life = transactions.life
        life.state = TransactionState.READY
        transactions.begin()
        sending = asyncio.create_task(transactions.send_offsets(OFFSETS, GroupMetadata("g")))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert life.state is TransactionState.ABORTABLE
        with pytest.raises(TransactionError, match="can only be aborted"):
            life.move(TransactionState.SETTLING)
        life.move(TransactionState.ABORTING)

    asyncio.run(scenario())


class ScriptedCluster(SilentCluster):
    """A coordinator that answers AddPartitionsToTxn as it is told to, one answer after another."""

    def __init__(self, *answers: dict[TopicPartition, int]) -> None:
        super().__init__()
        self._answers = list(answers)

    async def coordinator_id(self, *_: object) -> int:
        return 1

    async def call(self, *_: object, **__: object) -> object:
        topics = [
            SimpleNamespace(
                name=partition.topic,
                results_by_partition=[
                    SimpleNamespace(partition_index=partition.partition, partition_error_code=code)
                ],
            )
            for partition, code in self._answers.pop(0).items()
        ]
        return SimpleNamespace(results_by_topic_v3_and_below=topics)

    async def retrying(self, attempt: Any, *_: object) -> None:
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if not error.retriable:
                    raise


ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    "first",
    [
        {ONE: 0},
        {ONE: 0, TWO: ErrorCode.CONCURRENT_TRANSACTIONS},
        {ONE: ErrorCode.OPERATION_NOT_ATTEMPTED, TWO: ErrorCode.CONCURRENT_TRANSACTIONS},
    ],
)
def test_a_partition_is_in_the_transaction_when_the_coordinator_says_so(
    first: dict[TopicPartition, int],
) -> None:
    async def scenario() -> None:
        cluster = ScriptedCluster(first, {ONE: 0, TWO: 0})
        transactions = TransactionManager(cluster)  # type: ignore[arg-type]
        transactions.life.state = TransactionState.READY
        transactions.begin()
        await transactions.add_partitions([ONE, TWO])
        assert not transactions.lacks([ONE, TWO])
        assert not cluster._answers, "it was asked again"

    asyncio.run(scenario())


def test_a_partition_that_was_not_added_leaves_a_transaction_to_be_aborted() -> None:
    async def scenario() -> None:
        refused = dict.fromkeys((ONE, TWO), ErrorCode.OPERATION_NOT_ATTEMPTED)
        transactions = TransactionManager(ScriptedCluster(refused))  # type: ignore[arg-type]
        transactions.life.state = TransactionState.READY
        transactions.begin()
        with pytest.raises(KafkaError):
            await transactions.add_partitions([ONE, TWO])
        assert transactions.lacks([ONE])

    asyncio.run(scenario())


def test_who_ends_a_transaction_late_leaves_the_next_one_alone() -> None:
    """Two tasks abort it; the first has begun another when the second goes on."""

    async def scenario() -> None:
        transactions = TransactionManager(ScriptedCluster({ONE: 0}))  # type: ignore[arg-type]
        life = transactions.life
        life.state = TransactionState.READY
        transactions.begin()
        number = life.number
        life.move(TransactionState.ABORTING)
        await transactions.end(commit=False, number=number)
        transactions.begin()
        await transactions.add_partitions([ONE])
        await transactions.end(commit=False, number=number)
        assert life.state is TransactionState.IN_TRANSACTION
        assert not transactions.lacks([ONE])

    asyncio.run(scenario())
