"""An idempotent producer, and the fate of batches whose answers are lost or refusals.

A batch that has left keeps its id, epoch and sequence until it is decided. If these fail, a record
is in the log twice, or behind one that was sent after it. `test_client_producers` has the same at
random.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from tests.simulation.client.producing.client_producers import SETTINGS, Brokers
from tests.simulation.virtual import Connection, LoopClock, Network, VirtualLoop

from odradek.client import Producer
from odradek.client.errors import KafkaError, RequestTimedOut
from odradek.errors import ErrorCode
from odradek.protocol.direct.produce import ProducePartition, ProducePartitionResponse
from odradek.records.reader import iter_records

S = TypeVar("S", bound="Stage")
LOST = -100
# Of a batch behind which another is taken, by a broker that has nothing of the producer.
REFUSALS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
"""The batch is in the log, and nobody hears of it."""
AFTER_APPEND = (
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
)


class Stage(Brokers):
    """Brokers that do with the batch that begins with a record what is written down for it."""

    def __init__(self) -> None:
        super().__init__(random.Random(7))
        self.fates: dict[bytes, list[int]] = {}
        self.is_answer_lost = False

    def serve(self, connection: Connection, frame: bytes, answer: Callable[[bytes], None]) -> None:
        self.is_answer_lost = False
        found: list[bytes] = []
        super().serve(connection, frame, found.append)
        if self.is_answer_lost:
            # What was answered before has come by then.
            asyncio.get_running_loop().call_later(0.1, connection.break_off)
        elif found:
            answer(found[0])

    def _append(self, port: int, topic: str, sent: ProducePartition) -> ProducePartitionResponse:
        first = next(iter(iter_records(bytes(sent.records or b""), check_crc=True)))
        fates = self.fates.get(bytes(first.value or b""))
        fate = fates.pop(0) if fates else 0
        answer = ProducePartitionResponse(sent.index, fate)
        if fate > 0 and fate not in AFTER_APPEND:
            return answer
        appended = super()._append(port, topic, sent)
        self.is_answer_lost |= fate == LOST
        return answer if fate in AFTER_APPEND else appended

    def values(self, index: int = 0) -> list[bytes]:
        return [entry.value for entry in self.logs["t", index].entries]

    def make_anew(self) -> None:
        """The topic is another one now, to which nothing was ever written."""
        for log in self.logs.values():
            log.entries, log.producers = [], {}

    def producer(self, **settings: object) -> Producer:
        config = {**SETTINGS, "linger.ms": 0, "batch.size": 1, "retry.backoff.max.ms": 20}
        clock = LoopClock(asyncio.get_running_loop())
        return Producer("client:1", config, clock=clock, rng=random.Random(7), **settings)


def play(
    scenario: Callable[[S], Coroutine[Any, Any, None]],
    stage_of: Callable[[], S] = Stage,  # type: ignore[assignment]
) -> None:
    async def on_stage() -> None:
        stage = stage_of()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.network = Network(random.Random(7), stage.serve)
        async with asyncio.timeout(600):
            await scenario(stage)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(on_stage())


async def ends(*deliveries: "asyncio.Future[Any]") -> list[Any]:
    """Where the records are, or the codes of their errors."""
    found = await asyncio.gather(*deliveries, return_exceptions=True)
    return [each.code if isinstance(each, KafkaError) else each.offset for each in found]


def test_a_batch_that_expires_leaves_other_partitions_their_numbers() -> None:
    """Fails when an unacknowledged batch in another partition's log gets a new sequence: it would
    be there twice. Java's producer rewrites the sequences only of partitions that had an error
    which raises the epoch (`partitionsToRewriteSequences` of its `TransactionManager`).
    """

    async def scenario(stage: Stage) -> None:
        async with stage.producer() as producer:
            for index in (0, 1):
                await producer.send_and_wait("t", b"warm", partition=index)
            stage.fates = {b"A": [LOST] * 1_000, b"B": [LOST] * 8}
            expiring = await producer.send("t", b"A", partition=0)
            await asyncio.sleep(5.9)
            again = [await producer.send("t", value, partition=1) for value in (b"B", b"C")]
            with pytest.raises(RequestTimedOut):
                await expiring
            assert stage.fates[b"B"], "it is still to be sent again"
            next_one = await producer.send("t", b"D", partition=0)
            assert await ends(*again, next_one) == [1, 2, 2]
        assert stage.values(0) == [b"warm", b"A", b"D"]
        assert stage.values(1) == [b"warm", b"B", b"C"]

    play(scenario)


def test_a_refused_place_leaves_other_partitions_their_numbers() -> None:
    """The other one has a broker of its own: with its answer lost, the refusal would be too."""

    async def scenario(stage: Stage) -> None:
        stage.logs["t", 1].leader = 2
        async with stage.producer() as producer:
            for index in (0, 1):
                await producer.send_and_wait("t", b"warm", partition=index)
            stage.fates = {b"A": [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER], b"B": [LOST] * 4}
            lost = await producer.send("t", b"B", partition=1)
            while len(stage.fates[b"B"]) > 2:
                await asyncio.sleep(0.001)
            refused = await producer.send("t", b"A", partition=0)
            assert await ends(refused, lost) == [1, 1]
        logs = (stage.logs["t", index] for index in (0, 1))
        epochs = [[each.epoch for each in log.producers.values()] for log in logs]
        assert epochs == [[1], [0]], "only the refused one is numbered anew"
        assert stage.values(0) == [b"warm", b"A"]
        assert stage.values(1) == [b"warm", b"B"]

    play(scenario)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_what_was_overtaken_does_not_come_behind_what_overtook_it(refusal: ErrorCode) -> None:
    """A broker that has nothing of a producer takes any number: the first of two batches was
    refused for the moment, or for what the log had lost before it, and the second was taken."""

    async def scenario(stage: Stage) -> None:
        async with stage.producer() as producer:
            await producer.send_and_wait("t", b"warm", partition=0)
            stage.logs["t", 0].producers = {}
            stage.fates = {b"A": [refusal]}
            sent = [await producer.send("t", value, partition=0) for value in (b"A", b"B", b"C")]
            assert await ends(*sent) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, 2]
        assert stage.values() == [b"warm", b"B", b"C"]

    play(scenario)


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("fate", [LOST, *AFTER_APPEND])
def test_what_may_be_in_the_log_is_not_numbered_anew(fate: int, refusal: ErrorCode) -> None:
    """Fails when the second batch, unacknowledged, gets a new sequence: it would be in the log
    twice; or when the first one comes behind it.
    """

    async def scenario(stage: Stage) -> None:
        async with stage.producer() as producer:
            await producer.send_and_wait("t", b"warm", partition=0)
            stage.logs["t", 0].producers = {}
            stage.fates = {b"A": [refusal], b"B": [fate]}
            sent = [await producer.send("t", value, partition=0) for value in (b"A", b"B")]
            assert await ends(*sent) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1]
        assert stage.values() == [b"warm", b"B"]

    play(scenario)


@pytest.mark.parametrize("reason", ["too large", "expired", "timed out"])
def test_a_transaction_that_cannot_be_committed_leaves_the_next_ones_alone(reason: str) -> None:
    """Its block aborts it, whatever keeps the commit's flush from its end."""

    async def lose(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send("t", b"lost", partition=0)

    async def scenario(stage: Stage) -> None:
        async with stage.producer(transactional_id="x") as producer:
            await producer.init_transactions()
            for number in (0, 1):
                fates = {"too large": [ErrorCode.MESSAGE_TOO_LARGE]}.get(reason, [LOST] * 1_000)
                stage.fates = {b"lost": fates}
                with pytest.raises(TimeoutError if reason == "timed out" else KafkaError):
                    await asyncio.wait_for(lose(producer), 2 if reason == "timed out" else 60)
                assert not stage.transactions["x"].is_open, (
                    "readers of committed records would wait"
                )
                async with producer.transaction():
                    await producer.send("t", b"%d" % number, partition=0)
        outcomes = stage.transactions["x"].outcomes
        committed = [
            entry.value
            for entry in stage.logs["t", 0].entries
            if entry.transaction and outcomes[entry.transaction[1]]
        ]
        assert committed == [b"0", b"1"]

    play(scenario)


def test_what_a_log_has_lost_with_all_before_it_is_numbered_anew() -> None:
    """An answer had left open whether it is there; the next leader's says that it is not."""

    async def scenario(stage: Stage) -> None:
        async with stage.producer() as producer:
            for value in (b"kept", b"lost"):
                await producer.send_and_wait("t", value, partition=0)
            stage.fates = {b"A": [ErrorCode.NOT_LEADER_OR_FOLLOWER]}
            sent = await producer.send("t", b"A", partition=0)
            while stage.fates[b"A"]:
                await asyncio.sleep(0.001)
            stage.logs["t", 0].cut_to(1)
            assert await ends(sent) == [1]
        assert stage.values() == [b"kept", b"A"]

    play(scenario)
