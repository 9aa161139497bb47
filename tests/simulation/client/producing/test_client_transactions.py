"""A transactional producer, and two of its tasks that meet in one transaction.

What was begun before a commit comes into it, or the transaction is not committed. If these fail,
records are committed without their offsets or in part, or a producer is in its own way.
`test_client_producers` has the same at random.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.client.producing.client_producers import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    DELIVERY_TIMEOUT_MS,
    END_TXN,
    FIND_COORDINATOR,
    FLEXIBLE_FROM,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    SLACK_MS,
    TXN_OFFSET_COMMIT,
    _refusal,
)
from tests.simulation.client.producing.test_client_sequences import Stage, play
from tests.simulation.virtual import Connection

from odradek.client import CommittedOffset, GroupMetadata, Producer
from odradek.client.core.cluster import TRANSACTION
from odradek.client.errors import (
    ClientClosed,
    FencedError,
    KafkaError,
    NotDelivered,
    RecordTooLarge,
    RequestTimedOut,
    TransactionError,
    UsageError,
)
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.header import decode_request_header

GROUP = GroupMetadata("g")


class Coordinator(Stage):
    """Answers questions of an API late, or with the codes that are written down for it."""

    def __init__(self) -> None:
        super().__init__()
        self.late_s: dict[int, float] = {}
        self.codes: dict[int, deque[ErrorCode]] = {}
        self.asked: list[int] = []
        self.metadata_code = ErrorCode.NONE

    def serve(self, connection: Connection, frame: bytes, answer: Callable[[bytes], None]) -> None:
        key = decode_request_header(memoryview(frame), FLEXIBLE_FROM).api_key
        self.asked.append(key)
        late_s = self.late_s.get(key, 0)
        asyncio.get_running_loop().call_later(
            late_s, lambda: super(Coordinator, self).serve(connection, frame, answer)
        )

    def _metadata(self, body: Any, host: str) -> dict[str, object]:
        return super()._metadata(body, host) | {"error_code": self.metadata_code}

    def _ask_coordinator(self, key: int, body: Any, port: int) -> dict[str, object]:
        codes = self.codes.get(key)
        if codes:
            return _refusal(key, body, codes.popleft())
        return super()._ask_coordinator(key, body, port)

    async def is_asked(self, key: int) -> None:
        while key not in self.asked:
            await asyncio.sleep(0.001)

    def committed(self) -> list[bytes]:
        outcomes = self.transactions["x"].outcomes
        entries = [entry for log in self.logs.values() for entry in log.entries]
        return [
            each.value for each in entries if each.transaction and outcomes[each.transaction[1]]
        ]

    def committed_offsets(self) -> list[int]:
        outcomes = self.transactions["x"].outcomes
        return [offset for offset, (_, number) in self.commits if outcomes[number]]

    async def ready(self, **settings: object) -> Producer:
        producer = self.producer(transactional_id="x", **settings)
        await producer.init_transactions()
        self.asked.clear()
        return producer


async def send_offsets(producer: Producer, offset: int) -> None:
    offsets = {TopicPartition("in", 0): CommittedOffset(offset)}
    await producer.send_offsets_to_transaction(offsets, GROUP)


def on_stage(scenario: Any) -> None:
    play(scenario, Coordinator)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_offsets_that_fail_under_a_commit_fail_it(is_cancelled: bool) -> None:
    """The records would be committed without their offsets, and be read again."""

    async def scenario(stage: Coordinator) -> None:
        async with await stage.ready() as producer:
            producer.begin_transaction()
            await producer.send_and_wait("t", b"a")
            stage.late_s[TXN_OFFSET_COMMIT] = 0.3
            stage.codes[TXN_OFFSET_COMMIT] = deque([ErrorCode.ILLEGAL_GENERATION])
            offsets = asyncio.create_task(send_offsets(producer, 7))
            await stage.is_asked(TXN_OFFSET_COMMIT)
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0.1)
            if is_cancelled:
                offsets.cancel()
            with pytest.raises(KafkaError):
                await commit
            await asyncio.wait([offsets])
            await producer.abort_transaction()
        assert stage.committed() == stage.committed_offsets() == []

    on_stage(scenario)


@pytest.mark.parametrize("are_both_queued", [True, False])
def test_offsets_that_were_begun_come_into_the_commit(are_both_queued: bool) -> None:
    """Fails when offsets queued behind others are left out of a transaction that is committed."""

    async def scenario(stage: Coordinator) -> None:
        async with await stage.ready() as producer:
            producer.begin_transaction()
            await producer.send_and_wait("t", b"a")
            stage.late_s[ADD_OFFSETS] = 0.3
            sent = [asyncio.create_task(send_offsets(producer, 7))]
            if are_both_queued:
                sent.append(asyncio.create_task(send_offsets(producer, 8)))
            await stage.is_asked(ADD_OFFSETS)
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0)
            with pytest.raises(UsageError):
                await send_offsets(producer, 9)
            await asyncio.gather(commit, *sent)
        assert stage.committed() == [b"a"]
        assert stage.committed_offsets() == [7, 8][: len(sent)]

    on_stage(scenario)


def test_offsets_that_wait_for_others_and_are_cancelled_fail_the_transaction() -> None:
    """Fails when the commit succeeds without them: its records would be read and written again."""

    async def scenario(stage: Coordinator) -> None:
        async with await stage.ready() as producer:
            producer.begin_transaction()
            await producer.send_and_wait("t", b"a")
            stage.late_s[ADD_OFFSETS] = 0.3
            sent = [asyncio.create_task(send_offsets(producer, offset)) for offset in (7, 8)]
            await stage.is_asked(ADD_OFFSETS)
            sent[1].cancel()
            await sent[0]
            with pytest.raises(TransactionError):
                await producer.commit_transaction()
        assert stage.committed() == []

    on_stage(scenario)


def test_a_commit_that_waits_for_another_ends_as_that_does() -> None:
    """It would commit what the first was told can only be aborted."""

    async def scenario(stage: Coordinator) -> None:
        async with await stage.ready() as producer:
            producer.begin_transaction()
            await producer.send_and_wait("t", b"a")
            stage.late_s[END_TXN] = 0.3
            stage.codes[END_TXN] = deque([ErrorCode.TRANSACTION_ABORTABLE])
            commits = [asyncio.create_task(producer.commit_transaction()) for _ in range(2)]
            for each in commits:
                with pytest.raises(TransactionError):
                    await each
            await producer.abort_transaction()
        assert stage.committed() == []

    on_stage(scenario)


async def lose_a_batch(stage: Coordinator, producer: Producer) -> None:
    """The numbers of the producer have a gap: its next transaction needs another epoch."""
    producer.begin_transaction()
    stage.fates = {b"lost": [ErrorCode.INVALID_RECORD]}
    with pytest.raises(KafkaError):
        await producer.send_and_wait("t", b"lost")
    await producer.abort_transaction()
    stage.asked.clear()


def test_two_that_open_a_transaction_get_one_epoch() -> None:
    """The second would end the transaction of the first, and fence its own producer."""

    async def scenario(stage: Coordinator) -> None:
        async with await stage.ready() as producer:
            for _ in range(5):
                await lose_a_batch(stage, producer)
                stage.codes[INIT_PRODUCER_ID] = deque([ErrorCode.CONCURRENT_TRANSACTIONS] * 3)
                async with producer.transaction():
                    await asyncio.gather(
                        producer.send_and_wait("t", b"a"), send_offsets(producer, 7)
                    )
                assert stage.asked.count(INIT_PRODUCER_ID) == 4
        assert stage.committed() == [b"a"] * 5
        assert stage.committed_offsets() == [7] * 5

    on_stage(scenario)


def test_what_opens_a_transaction_behind_one_that_failed_asks_nothing() -> None:
    """The epoch that it got would be of a transaction that is over."""

    async def scenario(stage: Coordinator) -> None:
        async with await stage.ready() as producer:
            await lose_a_batch(stage, producer)
            stage.codes[INIT_PRODUCER_ID] = deque([ErrorCode.PRODUCER_FENCED])
            producer.begin_transaction()
            ends = await asyncio.gather(
                producer.send_and_wait("t", b"a"), send_offsets(producer, 7), return_exceptions=True
            )
            assert all(isinstance(each, FencedError) for each in ends), ends
            assert stage.asked.count(INIT_PRODUCER_ID) == 1

    on_stage(scenario)


def test_two_that_make_a_producer_ready_are_told_apart() -> None:
    """The epoch of the first, if it comes last, is one that the second has fenced."""

    async def scenario(stage: Coordinator) -> None:
        async with stage.producer(transactional_id="x") as producer:
            ends = await asyncio.gather(
                producer.init_transactions(), producer.init_transactions(), return_exceptions=True
            )
            assert [type(each) for each in ends] == [type(None), UsageError]
            async with producer.transaction():
                await producer.send("t", b"a")
            assert stage.asked.count(INIT_PRODUCER_ID) == 1
        assert stage.committed() == [b"a"]

    on_stage(scenario)


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_records_of_a_call_that_was_cancelled_are_committed_together_or_not_at_all(
    ends: str,
) -> None:
    """A part of them would be committed."""

    async def scenario(stage: Coordinator) -> None:
        async with await stage.ready(buffer_memory=400) as producer:
            producer.begin_transaction()
            stage.late_s[PRODUCE] = 0.3
            sending = asyncio.create_task(producer.send_many("t", [b"%d" % n for n in range(50)]))
            await stage.is_asked(PRODUCE)
            if ends == "commit":
                committing = asyncio.create_task(producer.commit_transaction())
                await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(TransactionError, match="cancelled"):
                await (committing if ends == "commit" else producer.commit_transaction())
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("t", b"next")
        assert stage.committed() == [b"next"]

    on_stage(scenario)


def test_a_call_that_is_cancelled_before_its_first_record_leaves_the_transaction_alone() -> None:
    async def scenario(stage: Coordinator) -> None:
        async with await stage.ready() as producer, producer.transaction():
            sending = asyncio.create_task(producer.send_many("t", [b"a", b"b"]))
            await asyncio.sleep(0)
            sending.cancel()
            await asyncio.wait([sending])
            assert sending.cancelled(), "it waited for metadata"
            await producer.send("t", b"next")
        assert stage.committed() == [b"next"]

    on_stage(scenario)


def test_a_record_that_waits_for_metadata_comes_into_the_commit() -> None:
    """The commit waits for it alone: no batch is under way."""

    async def scenario(stage: Coordinator) -> None:
        async with await stage.ready() as producer:
            producer.begin_transaction()
            stage.late_s[METADATA] = 0.3
            sending = asyncio.create_task(producer.send("t", b"a"))
            await stage.is_asked(METADATA)
            await producer.commit_transaction()
            await (await sending)
        assert stage.committed() == [b"a"]

    on_stage(scenario)


def test_an_abort_waits_for_what_has_expired_on_its_way() -> None:
    """A leader that does not ask the coordinator would take it behind the end: a transaction that
    nobody ends."""
    limits = {"request_timeout_ms": 5_000, "delivery_timeout_ms": 6_000}

    async def scenario(stage: Coordinator) -> None:
        async with await stage.ready(**limits) as producer:
            producer.begin_transaction()
            stage.logs["t", 0].leader = 2  # else the coordinator's broker has both in their order
            stage.fates = {b"a": [ErrorCode.NOT_ENOUGH_REPLICAS] * 1_000}
            delivery = await producer.send("t", b"a", partition=0)
            await asyncio.sleep(4)
            stage.fates, stage.late_s[PRODUCE] = {}, 3
            with pytest.raises(RequestTimedOut):
                await delivery
            await producer.abort_transaction()
        assert stage.values() == [b"a"]
        assert stage.committed() == []

    on_stage(scenario)


@pytest.mark.parametrize("has_failed", [True, False])
def test_the_block_of_another_task_is_left_alone(has_failed: bool) -> None:
    """It would be aborted by who comes second, and its records be committed with the others."""

    async def scenario(stage: Coordinator) -> None:
        async with await stage.ready() as producer:

            async def first() -> None:
                async with producer.transaction():
                    await producer.send("t", b"a")
                    if has_failed:
                        stage.fates = {b"lost": [ErrorCode.INVALID_RECORD]}
                        with pytest.raises(KafkaError):
                            await producer.send_and_wait("t", b"lost")
                    await second()
                    stage.late_s[PRODUCE] = 0.3

            async def second() -> None:
                with pytest.raises(UsageError, match="another task"):
                    async with producer.transaction():
                        await producer.send("t", b"never")

            writing = asyncio.create_task(first())
            while not stage.late_s:
                await asyncio.sleep(0.001)
            await second()
            if has_failed:
                with pytest.raises(KafkaError):
                    await writing
            else:
                await writing
            async with producer.transaction():
                await producer.send("t", b"next")
        assert sorted(stage.committed()) == ([b"next"] if has_failed else [b"a", b"next"])

    on_stage(scenario)


def test_a_block_does_not_commit_the_transaction_of_another_task() -> None:
    """Half of what that has sent would be committed."""

    async def scenario(stage: Coordinator) -> None:
        async def write(producer: Producer) -> None:
            async with producer.transaction():
                await producer.send("t", b"a")
                await producer.abort_transaction()
                producer.begin_transaction()
                await producer.send("t", b"half")

        async with await stage.ready() as producer:
            with pytest.raises(UsageError, match="another begun"):
                await write(producer)
            await producer.abort_transaction()
        assert stage.committed() == []

    on_stage(scenario)


def test_a_block_ends_a_commit_first_that_was_not_answered() -> None:
    """It would be refused, as would all later ones: nobody else repeats the commit."""

    async def scenario(stage: Coordinator) -> None:
        async def commit(producer: Producer, value: bytes) -> None:
            async with producer.transaction():
                await producer.send("t", value)

        async with await stage.ready() as producer:
            stage.late_s[END_TXN] = 0.3
            committing = asyncio.create_task(commit(producer, b"a"))
            await stage.is_asked(END_TXN)
            committing.cancel()
            await asyncio.wait([committing])
            assert committing.cancelled()
            await commit(producer, b"next")
        assert sorted(stage.committed()) == [b"a", b"next"]

    on_stage(scenario)


def test_a_block_that_cannot_abort_raises_what_ended_it(caplog: pytest.LogCaptureFixture) -> None:
    """Fails when the author of the block is told of its transaction instead of their own error."""

    async def fail(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send_and_wait("t", b"a")
            raise ZeroDivisionError

    async def scenario(stage: Coordinator) -> None:
        async with await stage.ready() as producer:
            stage.codes[END_TXN] = deque([ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED])
            with pytest.raises(ZeroDivisionError):
                await fail(producer)

    on_stage(scenario)
    assert "a transaction could not be aborted: TRANSACTIONAL_ID_AUTHORIZATION" in caplog.text


def test_records_that_wait_for_room_behind_those_of_an_ended_transaction_keep_their_order() -> None:
    """Records that came before fail one after the other, and none leaves its turn to a later
    one."""

    async def scenario(stage: Coordinator) -> None:
        limits = {"buffer_memory": 10_000, "batch_size": 10_000, "max_block_ms": 60_000}
        async with await stage.ready(**limits) as producer:
            await producer.partitions_for("t")
            producer.begin_transaction()

            def send(value: bytes) -> asyncio.Task[Any]:
                return asyncio.create_task(producer.send("t", value, partition=0))

            waiting = [send(b"x" * 8_000) for _ in range(50)]
            await asyncio.sleep(0)
            await producer.abort_transaction()
            producer.begin_transaction()
            entering = []
            for number in range(0, 20, 2):
                entering += [send(b"%d" % number), send(b"%d" % (number + 1))]
                await asyncio.sleep(0)
            assert not all(each.done() for each in waiting), "some are before them"
            await asyncio.gather(*entering)
            await producer.commit_transaction()
            await asyncio.gather(*waiting, return_exceptions=True)
        assert stage.committed() == [b"%d" % number for number in range(20)]

    on_stage(scenario)


def test_a_record_that_closing_refuses_is_not_missing_in_a_commit() -> None:
    """A commit that waits for it would go on without it."""

    async def scenario(stage: Coordinator) -> None:
        producer = await stage.ready(buffer_memory=200, linger_ms=0)
        producer.begin_transaction()
        stage.late_s[PRODUCE] = 0.3
        await producer.send("t", b"1" * 50)
        sending = asyncio.create_task(producer.send("t", b"2" * 100))
        await stage.is_asked(PRODUCE)
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0)
        await asyncio.gather(producer.close(), sending, committing, return_exceptions=True)
        assert isinstance(sending.exception(), ClientClosed)
        assert isinstance(committing.exception(), KafkaError)
        assert stage.committed() == []

    on_stage(scenario)


def test_a_record_that_expires_before_it_leaves_fails_its_transaction() -> None:
    """It would be missing in what is committed. It expires in its time, though what comes before it
    may take longer: its transaction's next partition, of a coordinator that is silent."""

    async def scenario(stage: Coordinator) -> None:
        loop = asyncio.get_running_loop()
        async with await stage.ready(max_block_ms=60_000) as producer:
            producer.begin_transaction()
            await producer.send_and_wait("t", b"a", partition=0)
            stage.late_s[ADD_PARTITIONS] = 30
            begun_s = loop.time()
            with pytest.raises(RequestTimedOut, match="were not delivered within"):
                await producer.send_and_wait("t", b"expired", partition=1)
            assert (loop.time() - begun_s) * 1_000 <= DELIVERY_TIMEOUT_MS + SLACK_MS
            stage.late_s.clear()
            with pytest.raises(TransactionError, match="can only be aborted"):
                await producer.commit_transaction()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("t", b"next", partition=1)
        assert stage.committed() == [b"next"]

    on_stage(scenario)


@pytest.mark.parametrize("is_together", [True, False])
def test_a_record_that_is_too_large_fails_its_transaction(is_together: bool) -> None:
    """Fails when an application that overlooks the error commits the rest."""

    async def scenario(stage: Coordinator) -> None:
        async with await stage.ready(max_request_size=1_000) as producer:
            producer.begin_transaction()
            await producer.send_and_wait("t", b"a")
            if is_together:
                delivery = await producer.send_many("t", [b"b", b"x" * 1_000, b"c"])
                with pytest.raises(NotDelivered):
                    await delivery
            else:
                with pytest.raises(RecordTooLarge):
                    await producer.send("t", b"x" * 1_000)
            with pytest.raises(RecordTooLarge):
                await producer.commit_transaction()
            await producer.abort_transaction()
        assert stage.committed() == []

    on_stage(scenario)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_records_for_which_there_is_no_room_fail_their_transaction(is_cancelled: bool) -> None:
    """Of those that were sent together some are in it, and the rest is refused in time, or by who
    sends them."""

    async def scenario(stage: Coordinator) -> None:
        settings: dict[str, object] = {"buffer_memory": 400, "max_block_ms": 500}
        async with await stage.ready(**settings) as producer:
            producer.begin_transaction()
            await producer.send_and_wait("t", b"a")
            stage.late_s[PRODUCE] = 0.6
            sending = asyncio.create_task(producer.send_many("t", [b"1" * 100] * 9))
            await stage.is_asked(PRODUCE)
            await asyncio.sleep(0.2 if is_cancelled else 0.7)
            if is_cancelled:
                sending.cancel()
                await asyncio.wait([sending])
            else:
                with pytest.raises(NotDelivered, match=r"500 ms \(max\.block\.ms\)"):
                    await (await sending)
            await producer.flush()  # what is in a batch is delivered
            with pytest.raises(TransactionError, match="can only be aborted"):
                await producer.commit_transaction()
            await producer.abort_transaction()
        assert stage.committed() == []

    on_stage(scenario)


def test_a_partition_is_not_added_behind_the_end_of_its_transaction() -> None:
    """The coordinator would have a transaction open of which the producer knows nothing, and fence
    it when that has lasted too long."""

    async def scenario(stage: Coordinator) -> None:
        settings = {"retry_backoff_ms": 500, "retry_backoff_max_ms": 500}
        async with await stage.ready(**settings) as producer:
            await producer.partitions_for("t")
            producer.begin_transaction()
            await send_offsets(producer, 7)
            stage.codes[ADD_PARTITIONS] = deque([ErrorCode.CONCURRENT_TRANSACTIONS])
            stage.metadata_code = ErrorCode.INVALID_REQUEST
            producer._cluster.doubt(["t"])
            delivery = await producer.send("t", b"a", partition=0)
            with pytest.raises(KafkaError):
                await delivery
            stage.metadata_code = ErrorCode.NONE
            await producer.abort_transaction()
            assert stage.asked.count(ADD_PARTITIONS) == 1
            await asyncio.sleep(2)
            assert not stage.transactions["x"].is_open
            producer.begin_transaction()
            await producer.send_and_wait("t", b"b", partition=0)
            await producer.commit_transaction()
        assert stage.committed() == [b"b"]

    on_stage(scenario)


async def ends_while_a_partition_is_added(
    stage: Coordinator, producer: Producer, late_s: float
) -> None:
    """Aborts a transaction while the sender asks for its coordinator, to add a partition; so much
    later it has the answer."""
    await producer.partitions_for("t")
    for broker in (2, 3):
        await producer._cluster.connection(broker)
    producer.begin_transaction()
    await send_offsets(producer, 7)
    stage.asked.clear()
    stage.late_s[FIND_COORDINATOR] = late_s
    stage.metadata_code = ErrorCode.INVALID_REQUEST
    producer._cluster.forget_coordinator("x", TRANSACTION)
    producer._cluster.doubt(["t"])
    delivery = await producer.send("t", b"a", partition=0)
    with pytest.raises(KafkaError):
        await delivery
    stage.metadata_code = ErrorCode.NONE
    await stage.is_asked(FIND_COORDINATOR)
    stage.late_s[FIND_COORDINATOR] = 0
    await producer.abort_transaction()


async def of_three_brokers(stage: Coordinator, **settings: object) -> Producer:
    """A producer to which the first broker is neither leader nor coordinator, and may be late."""
    stage.coordinator, stage.logs["t", 0].leader = 3, 2
    patient = {"request_timeout_ms": 60_000, "delivery_timeout_ms": 120_000}
    return await stage.ready(**patient, **settings)


def test_a_partition_is_not_added_behind_an_end_that_found_the_coordinator_first() -> None:
    async def scenario(stage: Coordinator) -> None:
        async with await of_three_brokers(stage) as producer:
            await ends_while_a_partition_is_added(stage, producer, 2)
            await asyncio.sleep(4)
            assert not stage.transactions["x"].is_open
            producer.begin_transaction()
            await producer.send_and_wait("t", b"b", partition=0)
            await producer.commit_transaction()
        assert stage.committed() == [b"b"]

    on_stage(scenario)


def test_a_partition_that_is_not_added_in_time_does_not_fail_the_next_transaction() -> None:
    async def scenario(stage: Coordinator) -> None:
        async with await of_three_brokers(stage, max_block_ms=3_000) as producer:
            await ends_while_a_partition_is_added(stage, producer, 10)
            producer.begin_transaction()
            await send_offsets(producer, 8)
            await asyncio.sleep(5)
            await producer.send_and_wait("t", b"b", partition=0)
            await producer.commit_transaction()
        assert stage.committed() == [b"b"]

    on_stage(scenario)
