"""The promises of a producer when something fails beside what it does: another task, another
partition, a batch that never left. If these fail, a transaction is committed without a record of
its own or with one of another, a record is there twice, or a producer is stuck for good.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.deadlines import deadline_ms
from tests.wire.client.test_producer import told

import odradek
from odradek.client import Producer
from odradek.client.errors import (
    BufferExhausted,
    KafkaError,
    NotDelivered,
    RecordTooLarge,
    RequestTimedOut,
    TransactionError,
    UsageError,
)
from odradek.event_loop import new_event_loop

Run = Callable[[Coroutine[Any, Any, None]], None]


async def transactional(broker: odradek.Broker, **settings: object) -> Producer:
    """A producer that can begin."""
    producer = Producer(broker.bootstrap_servers, transactional_id="id", linger_ms=0, **settings)
    await producer.init_transactions()
    return producer


async def struck(fault: Any, times: int = 1) -> None:
    while fault.struck < times:
        await asyncio.sleep(0.01)


def values(broker: odradek.Broker, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    return [each.value for each in broker.records(topic, partition)]


# --- transactions -------------------------------------------------------------------------------


def test_a_record_that_never_left_fails_its_transaction(run: Run) -> None:
    """It would be committed without it."""

    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            broker.create_topic("u")
            limits = {"request_timeout_ms": 300, "delivery_timeout_ms": 300}
            async with await transactional(broker, **limits) as producer:
                producer.begin_transaction()
                await producer.send_and_wait("t", b"aborted")
                with (
                    broker.fail("AddPartitionsToTxn", "CONCURRENT_TRANSACTIONS"),
                    pytest.raises(RequestTimedOut),
                ):
                    await producer.send_and_wait("u", b"expired")
                with pytest.raises(TransactionError, match="can only be aborted") as refused:
                    await producer.commit_transaction()
                assert not refused.value.retriable, "to commit again is of no use"
                await producer.abort_transaction()
                async with producer.transaction():
                    await producer.send("u", b"next")
            assert told(broker.bootstrap_servers, "t") == ["aborted", "ABORT"]
            assert told(broker.bootstrap_servers, "u") == ["next", "COMMIT"]

    run(scenario())


def test_a_record_that_send_refuses_fails_its_transaction(run: Run) -> None:
    """As with Kafka's producer: whoever overlooks the error does not commit the rest."""

    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            async with await transactional(broker, max_request_size=1_000) as producer:
                producer.begin_transaction()
                delivery = await producer.send_many("t", [b"a", b"x" * 1_000, b"b"])
                with pytest.raises(NotDelivered):
                    await delivery
                with pytest.raises(RecordTooLarge):
                    await producer.commit_transaction()
                await producer.abort_transaction()
                producer.begin_transaction()
                with pytest.raises(RecordTooLarge):
                    await producer.send("t", b"x" * 1_000)
                with pytest.raises(RecordTooLarge):
                    await producer.send("t", b"c")
                await producer.abort_transaction()
                async with producer.transaction():
                    await producer.send("t", b"next")
            found = told(broker.bootstrap_servers, "t")
            assert found[-2:] == ["next", "COMMIT"]
            assert found.count("COMMIT") == 1

    run(scenario())


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_nothing_enters_a_transaction_that_is_ending(run: Run, ends: str) -> None:
    """It would be neither committed nor taken back, and be in the way of all that follows."""

    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            async with await transactional(broker) as producer:
                producer.begin_transaction()
                with broker.delay(200, "Produce", times=1, after=True) as late:
                    await producer.send("t", b"first")
                    await struck(late)
                    end = getattr(producer, f"{ends}_transaction")
                    ending = asyncio.create_task(end())
                    await asyncio.sleep(0)
                    with pytest.raises(UsageError):
                        await producer.send("t", b"second")
                    await ending
                async with producer.transaction():
                    await producer.send("t", b"next")
            expected = ["first", ends.upper(), "next", "COMMIT"]
            assert told(broker.bootstrap_servers, "t") == expected

    run(scenario())


@pytest.mark.parametrize("many", [True, False])
def test_who_waits_for_room_does_not_come_into_the_next_transaction(run: Run, many: bool) -> None:
    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            async with await transactional(broker, buffer_memory=3_000) as producer:
                producer.begin_transaction()
                with broker.delay(200, "Produce", after=True) as late:
                    held = await producer.send("t", b"x" * 2_000)
                    await struck(late)
                    late.end()
                    entering = producer.send_many if many else producer.send
                    value = [b"y" * 2_000] if many else b"y" * 2_000
                    waiting = asyncio.create_task(entering("t", value))
                    while not producer._hurried:
                        await asyncio.sleep(0)
                    aborting = asyncio.create_task(producer.abort_transaction())
                    await aborting
                    assert held.done()
                    producer.begin_transaction()
                    with pytest.raises(KafkaError):
                        await waiting
                await producer.send("t", b"next")
                await producer.commit_transaction()
            found = [each[:4] for each in told(broker.bootstrap_servers, "t")]
            assert found == ["xxxx", "ABOR", "next", "COMM"]

    run(scenario())


@pytest.mark.parametrize("many", [True, False])
def test_what_was_about_to_enter_is_committed(run: Run, many: bool) -> None:
    """Of records that were sent together a half would be committed, and the rest refused."""

    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            async with await transactional(broker, buffer_memory=3_000) as producer:
                producer.begin_transaction()
                with broker.delay(200, "Produce", after=True, times=1):
                    await producer.send("t", b"x" * 2_000)
                    entering = producer.send_many if many else producer.send
                    value = [b"x" * 1_000] * 9 if many else b"x" * 2_000
                    sending = asyncio.create_task(entering("t", value))
                    while not producer._hurried:
                        await asyncio.sleep(0)
                    await producer.commit_transaction()
                    assert (await sending).done()
                async with producer.transaction():
                    await producer.send("t", b"next")
            found = [each[:4] for each in told(broker.bootstrap_servers, "t")]
            assert found == ["xxxx"] * (10 if many else 2) + ["COMM", "next", "COMM"]

    run(scenario())


def test_a_transaction_whose_commit_fails_is_aborted_by_its_block(run: Run) -> None:
    """Every later block would fail. Java's `KafkaProducer` asks its user for the same: an abort
    after an error, and the commit once more after a time-out."""

    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            async with await transactional(broker, max_block_ms=1_500) as producer:
                with (
                    broker.fail("Produce", "MESSAGE_TOO_LARGE", times=1),
                    pytest.raises(RecordTooLarge),
                ):
                    async with producer.transaction():
                        await producer.send("t", b"lost")
                async with producer.transaction():
                    await producer.send("t", b"one")
                with (
                    broker.fail("EndTxn", "COORDINATOR_NOT_AVAILABLE"),
                    pytest.raises(KafkaError),
                ):
                    async with producer.transaction():
                        await producer.send("t", b"committed late")
                async with producer.transaction():
                    await producer.send("t", b"two")
                with (  # noqa: PT012 - the block is what is tested
                    broker.fail("EndTxn", "COORDINATOR_NOT_AVAILABLE"),
                    pytest.raises(ZeroDivisionError),
                ):
                    async with producer.transaction():
                        await producer.send_and_wait("t", b"aborted late")
                        raise ZeroDivisionError
                async with producer.transaction():
                    await producer.send("t", b"three")
            assert told(broker.bootstrap_servers, "t") == [
                "ABORT",
                *("one", "COMMIT"),
                *("committed late", "COMMIT"),
                *("two", "COMMIT"),
                *("aborted late", "ABORT"),
                *("three", "COMMIT"),
            ]

    run(scenario())


def test_a_batch_that_came_too_late_costs_one_transaction(run: Run) -> None:
    """As with Kafka's producer: the coordinator says whether the producer is of any more use."""

    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            async with await transactional(broker) as producer:
                with (
                    broker.fail("Produce", "INVALID_TXN_STATE", times=1),
                    pytest.raises(TransactionError),
                ):
                    async with producer.transaction():
                        await producer.send("t", b"late")
                async with producer.transaction():
                    await producer.send("t", b"next")
            assert told(broker.bootstrap_servers, "t")[-2:] == ["next", "COMMIT"]

    run(scenario())


def test_closing_ends_a_commit_that_was_asked_for(run: Run) -> None:
    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            producer = await transactional(broker)
            producer.begin_transaction()
            await producer.send("t", b"committed")
            with broker.delay(300, "EndTxn", times=1) as late:
                committing = asyncio.create_task(producer.commit_transaction())
                await struck(late)
                committing.cancel()
                await producer.close()
            assert told(broker.bootstrap_servers, "t") == ["committed", "COMMIT"]

    run(scenario())


def test_no_end_of_a_transaction_waits_for_ever(run: Run) -> None:
    """A broker that stands still costs what the settings say, and nothing is lost for later."""

    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            # The coordinator's own topic is made without haste.
            await (await transactional(broker)).close()
            answered_ms = deadline_ms(400)
            limits = {"request_timeout_ms": answered_ms, "delivery_timeout_ms": answered_ms}
            producer = await transactional(broker, max_block_ms=deadline_ms(1_500), **limits)
            producer.begin_transaction()
            await producer.send_and_wait("t", b"aborted")
            with broker.pause():
                await producer.send("t", b"never")
                await producer.flush()
                with pytest.raises(TransactionError):
                    await producer.commit_transaction()
                with pytest.raises(KafkaError) as given_up:
                    await producer.abort_transaction()
                assert given_up.value.retriable
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("t", b"next")
            with broker.pause():
                producer.begin_transaction()
                await producer.send("t", b"never")
                await producer.close()

    run(scenario())


# --- idempotence --------------------------------------------------------------------------------


def test_a_record_that_is_refused_leaves_other_partitions_their_numbers(run: Run) -> None:
    """Records in the log there that were not acknowledged would be in it twice."""

    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t", partitions=2)
            settings = {"linger_ms": 0, "retry_backoff_ms": 500, "retry_backoff_max_ms": 500}
            async with Producer(broker.bootstrap_servers, **settings) as producer:
                await producer.send_and_wait("t", b"0", partition=1)
                with broker.drop("Produce", after=True, times=1, topic="t", partition=1) as lost:
                    again = await producer.send("t", b"1", partition=1)
                    await struck(lost)
                with (
                    broker.fail("Produce", "MESSAGE_TOO_LARGE", times=1, topic="t", partition=0),
                    pytest.raises(RecordTooLarge),
                ):
                    await producer.send_and_wait("t", b"refused", partition=0)
                assert (await again).offset == 1
                await producer.send_and_wait("t", b"next", partition=0)
            assert values(broker, partition=1) == [b"0", b"1"]
            assert values(broker, partition=0) == [b"next"]

    run(scenario())


def test_refused_records_cost_no_question_for_an_id(run: Run) -> None:
    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            with broker.delay(0, "InitProducerId") as asked:
                async with Producer(broker.bootstrap_servers, linger_ms=0) as producer:
                    for number in range(20):
                        await producer.send_and_wait("t", b"%d" % number)
                        with (
                            broker.fail("Produce", "MESSAGE_TOO_LARGE", times=1),
                            pytest.raises(RecordTooLarge),
                        ):
                            await producer.send_and_wait("t", b"refused")
                assert asked.struck == 1
            assert values(broker) == [b"%d" % number for number in range(20)]

    run(scenario())


# --- time and memory ----------------------------------------------------------------------------


def test_a_batch_that_is_under_way_does_not_outlive_its_time(run: Run) -> None:
    """`delivery.timeout.ms` is from `send` to the end, whatever it waits for at last."""

    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            limits = {"request_timeout_ms": 1_000, "delivery_timeout_ms": 1_000}
            waits = {"retry_backoff_ms": 700, "retry_backoff_max_ms": 700, "linger_ms": 0}
            async with Producer(broker.bootstrap_servers, **limits, **waits) as producer:
                await producer.send_and_wait("t", b"0")
                with broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=1) as refused:
                    delivery = await producer.send("t", b"1")
                    await struck(refused)
                with broker.pause(), pytest.raises(RequestTimedOut, match=r"delivery\.timeout\.ms"):
                    await delivery
                assert (await producer.send_and_wait("t", b"2")).offset >= 1
            assert values(broker)[-1] == b"2"

    run(scenario())


def test_without_acknowledgements_all_that_was_taken_arrives_and_memory_is_bounded(
    run: Run,
) -> None:
    """The bytes in a transport are in memory, too, and lost when it is thrown away."""

    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            limits = {"buffer_memory": 1_000_000, "max_block_ms": 200}
            async with Producer(broker.bootstrap_servers, acks=0, **limits) as producer:
                taken = 0
                await producer.send("t", b"%06d" % taken)
                await producer.flush()
                with broker.pause(), pytest.raises(BufferExhausted):  # noqa: PT012 - one of them
                    for _ in range(30_000):
                        taken += 1
                        await producer.send("t", b"%06d" % taken + b"x" * 1_000)
                # The last one was not taken.
            broker.wait_for("t", taken)
            assert [int((value or b"")[:6]) for value in values(broker)] == list(range(taken))

    run(scenario())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, new_event_loop])
@pytest.mark.parametrize("security", [None, "tls"])
def test_what_is_told_without_acknowledgement_arrives_after_the_end(
    security: str | None, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """TLS takes a request of any size from its user, and closing throws away what the socket has
    not got."""
    told: list[bytes | None] = []

    async def tell(broker: odradek.Broker, settings: dict[str, object]) -> None:
        async with Producer(config=settings) as producer:
            await producer.send_and_wait("t", b"first")
            with broker.pause():
                with pytest.raises(RequestTimedOut):  # noqa: PT012 - the first that does not fit
                    while True:
                        value = b"%06d" % len(told) + b"x" * 900_000
                        await producer.send_and_wait("t", value)
                        told.append(value)
                await producer.close(timeout_ms=0)

    users = None
    if security is not None:
        pytest.importorskip("cryptography", reason="the extra `security`")
        users = {"alice": "secret"}
    with odradek.Broker(security=security, users=users) as broker:
        broker.create_topic("t")
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        if users is not None:
            settings = broker.login("alice").client()
        limits = {"acks": 0, "linger.ms": 0, "delivery.timeout.ms": 500, "request.timeout.ms": 500}
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(tell(broker, {**settings, **limits}))
        broker.wait_for("t", 1 + len(told))
        assert values(broker)[1 : 1 + len(told)] == told


@pytest.mark.parametrize("code", ["KAFKA_STORAGE_ERROR", "LISTENER_NOT_FOUND"])
def test_who_cannot_write_is_not_asked_again_before_the_leader_is_looked_up(
    run: Run, code: str
) -> None:
    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            async with Producer(broker.bootstrap_servers, linger_ms=0) as producer:
                await producer.send_and_wait("t", b"0")
                with broker.delay(0, "Metadata") as asked:
                    with broker.fail("Produce", code, times=1):
                        await producer.send_and_wait("t", b"1")
                    assert asked.struck

    run(scenario())


# --- what is refused at once --------------------------------------------------------------------


def test_what_is_no_record_is_refused_before_it_is_in_a_batch(run: Run) -> None:
    """A batch that was half written would take all of its records with it."""

    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            async with Producer(broker.bootstrap_servers) as producer:
                first = await producer.send("t", b"first")
                odd: Any
                for odd in ([("n", 5)], [(5, b"v")], [("n",)], "name", [b"nv"], {"n": 1.5}, 7):
                    with pytest.raises(TypeError, match="header"):
                        await producer.send("t", b"v", headers=odd)
                    with pytest.raises(TypeError, match="header"):
                        await producer.send_many("t", [b"a", b"v"], headers=[(), odd])
                for time in ("now", 1.5, None, -1):
                    # Compiled code says of what is no number that it is no int.
                    with pytest.raises((TypeError, ValueError), match=r"timestamp|int"):
                        await producer.send_many("t", [b"a", b"v"], timestamps_ms=[1, time or -2])
                    with pytest.raises((TypeError, ValueError)):
                        await producer.send("t", b"v", timestamp_ms=time or -2)
                assert (await first).offset == 0
                assert (await producer.send_and_wait("t", b"last")).offset == 1

    run(scenario())
