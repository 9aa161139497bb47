"""A broker's answers to what a share consumer says of records.

If these fail, a record counts as accepted that its broker hands out once more.
"""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from odradek.client.aio.sharing.broker_shares import BrokerShares
from odradek.client.core.sharing.acknowledgements import Acknowledgements, SharePartition
from odradek.client.errors import KafkaError
from odradek.client.settings import SHARE_CONSUMER_SETTINGS, ClientSettings
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

ONE, TWO, THREE = (SharePartition(UUID(int=1), TopicPartition("t", index)) for index in range(3))


class ScriptedCluster:
    """A broker whose answers are about the partitions that it is told, with a code for each."""

    def __init__(self) -> None:
        self.settings = ClientSettings(SHARE_CONSUMER_SETTINGS, {}, {})
        self.request_timeout_ms = 1_000
        self.about: dict[int, int] = {}

    async def call(self, *_: object, **__: object) -> Any:
        parts = [
            SimpleNamespace(partition_index=index, error_code=code, error_message=None)
            for index, code in self.about.items()
        ]
        return SimpleNamespace(
            error_code=0,
            error_message=None,
            acquisition_lock_timeout=timedelta(seconds=30),
            responses=[SimpleNamespace(topic_id=UUID(int=1), partitions=parts)],
        )


def test_what_an_answer_says_nothing_of_is_not_accepted() -> None:
    told: dict[SharePartition, KafkaError | None] = {}

    def on_answered(
        partition: SharePartition, _: Acknowledgements, error: KafkaError | None
    ) -> None:
        told[partition] = error

    async def scenario() -> None:
        cluster = ScriptedCluster()
        shares = BrokerShares(cluster, 1, "g", "m", on_answered)  # type: ignore[arg-type]
        await shares.fetch({ONE, TWO, THREE}, {})
        cluster.about = {0: 0, 1: ErrorCode.INVALID_RECORD_STATE}
        await shares.acknowledge({ONE: {0: 1}, TWO: {0: 1}, THREE: {0: 1}})

    asyncio.run(scenario())
    assert told[ONE] is None
    assert told[TWO] is not None
    assert told[TWO].code == ErrorCode.INVALID_RECORD_STATE
    assert told[THREE] is not None
    assert "nothing of t-2" in told[THREE].message


class Silent(ScriptedCluster):
    """A broker that opens a session, and then says nothing."""

    is_silent = False

    async def call(self, *values: object, **named: object) -> Any:
        if self.is_silent:
            await asyncio.Event().wait()
        return await super().call(*values, **named)


def test_what_was_said_in_a_request_that_is_cancelled_has_an_outcome() -> None:
    """By a program that cancels all its tasks. A commit would wait for it for ever."""
    told: list[tuple[SharePartition, KafkaError | None]] = []

    async def scenario() -> None:
        cluster = Silent()
        shares = BrokerShares(
            cluster,  # type: ignore[arg-type]
            1,
            "g",
            "m",
            lambda partition, _, error: told.append((partition, error)),
        )
        await shares.fetch({ONE}, {})
        cluster.is_silent = True
        asking = asyncio.create_task(shares.acknowledge({ONE: {0: 1}}))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        await shares.close({TWO: {0: 1}})

    asyncio.run(scenario())
    assert [partition for partition, _ in told] == [ONE, TWO]
    assert all(error is not None for _, error in told)
