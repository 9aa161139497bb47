"""The producer against brokers. If these fail, records are lost, doubled, or in the wrong place."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.streams import serving
from tests.system.cluster.polling import until
from tests.wire.replicas import REPLICAS, await_ended, await_forgotten, await_known

import odradek
from odradek.client import Admin, Producer
from odradek.client.core.admin_types import CommittedOffset, NewTopic
from odradek.client.core.groups.group_metadata import GroupMetadata
from odradek.client.core.producing.partitioner import partition_for_key
from odradek.client.core.producing.preparing import ProducerRecord
from odradek.client.errors import (
    BufferExhausted,
    ClientClosed,
    FencedError,
    KafkaError,
    NotDelivered,
    RecordTooLarge,
    RequestError,
    RequestTimedOut,
    TransactionAborted,
    UsageError,
)
from odradek.client.record_metadata import RecordMetadata
from odradek.client.sync import Cluster, PartitionReader
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.records.reader import iter_records
from odradek.records.record import Record

Run = Callable[[Any], Any]


def stored(servers: str, topic: str, partition: int = 0) -> list[Record]:
    """All batches of a partition, aborted records and markers among them."""
    with Cluster(servers, request_timeout_ms=20_000) as cluster:
        where = TopicPartition(topic, partition)
        end = cluster.list_offsets({where: -1})[where] or 0
        chunks = PartitionReader(cluster, where).read(0, end)
        return [
            record
            for chunk in chunks
            for record in iter_records(bytes(chunk.records), drop_partial_tail=True)
            if record.offset >= chunk.fetch_offset
        ]


async def make(servers: str, topic: str, partitions: int = 1, **config: str) -> None:
    dotted = {name.replace("_", "."): value for name, value in config.items()}
    async with Admin(servers) as admin:
        new = NewTopic(topic, partitions, REPLICAS, dotted)
        made = (await admin.create_topics([new]))[topic]
    if isinstance(made, KafkaError):
        raise made
    # A broker of the test's may serve in this very loop.
    await asyncio.to_thread(await_known, servers, topic, partitions)


async def make_anew(servers: str, topic: str, partitions: int = 1) -> None:
    """Deletes a topic and makes it again, once the brokers have forgotten it."""
    async with Admin(servers) as admin:
        assert await admin.delete_topics([topic]) == {topic: None}
        while topic in await admin.list_topics():
            await asyncio.sleep(0.05)
    await asyncio.to_thread(await_forgotten, servers, topic)
    while True:
        try:
            return await make(servers, topic, partitions)
        except KafkaError as error:
            # The controller may still be about to forget it.
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_stored_as_sent(servers: str, topic: str, codec: str, run: Run) -> None:
    async def scenario() -> list[RecordMetadata]:
        await make(servers, topic)
        async with Producer(servers, compression_type=codec) as producer:
            deliveries = [
                await producer.send(
                    topic,
                    None if number == 7 else b"v%d" % number,
                    key=b"k%d" % number,
                    timestamp_ms=1_700_000_000_000 + number,
                    headers=[("h", b"%d" % number), ("none", None)],
                )
                for number in range(500)
            ]
            return await asyncio.gather(*deliveries)

    metadata = run(scenario())
    assert [each.offset for each in metadata] == list(range(500))
    assert metadata[3] == RecordMetadata(topic, 0, 3, 1_700_000_000_003)
    records = stored(servers, topic)
    assert [record.key for record in records] == [b"k%d" % number for number in range(500)]
    assert records[7].value is None
    assert records[8].value == b"v8"
    assert records[8].headers == [("h", b"8"), ("none", None)]
    assert records[8].timestamp == 1_700_000_000_008
    assert records[0].batch.producer_id >= 0


def test_keys_decide_and_records_without_one_are_spread(servers: str, topic: str, run: Run) -> None:
    async def scenario() -> tuple[list[RecordMetadata], list[RecordMetadata]]:
        await make(servers, topic, 3)
        async with Producer(servers, batch_size=200) as producer:
            keyed = [await producer.send(topic, b"v", key=b"key-%d" % n) for n in range(30)]
            free = [await producer.send(topic, b"v" * 50) for _ in range(100)]
            await producer.flush()
            assert all(each.done() for each in keyed + free)
            chosen = await producer.send_and_wait(topic, b"v", key=b"x", partition=2)
            assert chosen.partition == 2
            return [each.result() for each in keyed], [each.result() for each in free]

    keyed, free = run(scenario())
    assert [each.partition for each in keyed] == [
        partition_for_key(b"key-%d" % number, 3) for number in range(30)
    ]
    assert len(Counter(each.partition for each in free)) == 3


def test_acks_0_and_1(servers: str, topic: str, run: Run) -> None:
    async def scenario() -> None:
        await make(servers, topic)
        async with Producer(servers, acks=0) as producer:
            assert (await producer.send_and_wait(topic, b"0")).offset == -1
        async with Producer(servers, acks=1) as producer:
            await producer.send_and_wait(topic, b"1")

    run(scenario())
    # Nobody has waited for the followers of a cluster to have them.
    until(lambda: len(stored(servers, topic)) == 2, "both are shown")
    assert [record.value for record in stored(servers, topic)] == [b"0", b"1"]


def test_what_cannot_be_sent_is_said_at_once(bootstrap: str, topic: str, run: Run) -> None:
    async def scenario() -> None:
        await make(bootstrap, topic)
        async with Producer(bootstrap, max_request_size=1000, max_block_ms=300) as producer:
            with pytest.raises(RecordTooLarge):
                await producer.send(topic, b"x" * 1000)
            with pytest.raises(RequestError, match="none of the 1"):
                await producer.send(topic, b"x", partition=1)
            with pytest.raises(TypeError, match="str"):
                await producer.send(topic, "text")
            with pytest.raises(RequestError):
                await producer.send("no/topic", b"x")
            with pytest.raises(UsageError):
                producer.begin_transaction()
            assert (await producer.send_and_wait(topic, b"x")).offset == 0
        with pytest.raises(ClientClosed):
            await producer.send(topic, b"x")

    run(scenario())


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_batches_that_the_broker_finds_too_large_are_split(
    servers: str, topic: str, run: Run, is_idempotent: bool
) -> None:
    """Every record is in the log once and in order; only what is too large alone fails."""

    async def scenario() -> None:
        await make(servers, topic, max_message_bytes="1500")
        settings = {"linger_ms": 20, "enable_idempotence": is_idempotent}
        async with Producer(servers, **settings) as producer:
            deliveries = [
                await producer.send(topic, b"%03d" % number + b"x" * (2000 * (number == 37)))
                for number in range(400)
            ]
            await producer.flush()
        assert all(each.done() for each in deliveries)
        assert isinstance(deliveries.pop(37).exception(), RecordTooLarge)
        if is_idempotent:
            assert [each.result().offset for each in deliveries] == list(range(399))

    run(scenario())
    values = [record.value for record in stored(servers, topic)]
    expected = [b"%03d" % number for number in range(400) if number != 37]
    assert values == expected if is_idempotent else sorted(set(values)) == expected


def test_memory_is_bounded_and_send_waits_for_it(bootstrap: str, topic: str, run: Run) -> None:
    async def scenario() -> None:
        await make(bootstrap, topic)
        settings = {"buffer_memory": 5_000, "linger_ms": 10_000, "delivery_timeout_ms": 60_000}
        async with Producer(bootstrap, **settings) as producer:
            deliveries = [await producer.send(topic, b"x" * 1000) for _ in range(50)]
            await producer.flush()
            assert [each.result().offset for each in deliveries] == list(range(50))

    run(scenario())


def test_without_a_broker_memory_runs_out_and_records_expire(topic: str, run: Run) -> None:
    async def scenario() -> None:
        async with odradek.Broker() as broker:
            await make(broker.bootstrap_servers, topic)
            producer = Producer(
                broker.bootstrap_servers,
                buffer_memory=5_000,
                max_block_ms=200,
                request_timeout_ms=100,
                delivery_timeout_ms=500,
                linger_ms=0,
            )
            await producer.send_and_wait(topic, b"x" * 1000)
        deliveries = [await producer.send(topic, b"x" * 1000) for _ in range(4)]
        with pytest.raises(BufferExhausted):
            await producer.send(topic, b"x" * 1000)
        results = await asyncio.gather(*deliveries, return_exceptions=True)
        assert all(isinstance(each, KafkaError) and each.retriable for each in results), results
        with pytest.raises(RequestTimedOut):
            await producer.send("another", b"x")
        await producer.close()

    run(scenario())


def test_interceptors_see_records_and_what_became_of_them(
    bootstrap: str, topic: str, run: Run
) -> None:
    seen: list[tuple[int, KafkaError | None]] = []

    class Interceptor:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(value=record.value + b"!")

        def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
            seen.append((metadata.offset, error))
            raise RuntimeError("does not matter")

    class Broken(Interceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise RuntimeError("does not matter either")

    async def scenario() -> None:
        await make(bootstrap, topic)
        interceptors = [Interceptor(), Broken()]
        async with Producer(bootstrap, interceptors=interceptors) as producer:
            await producer.send_and_wait(topic, b"x")
            with pytest.raises(RequestError) as no_partition:
                await producer.send(topic, b"y", partition=7)
            with pytest.raises(RequestError) as none_of_them:
                await producer.send_many(topic, [b"y", b"z"], partition=7)
            big = b"x" * 2_000_000
            with pytest.raises(NotDelivered) as too_large:
                await (await producer.send_many(topic, [b"a", big, b"b"]))
        expected = [None, no_partition.value, *[none_of_them.value] * 2]
        told = too_large.value.errors[1], None, None
        assert [error for _, error in seen] == [each for each in (*expected, *told) for _ in "12"]

    run(scenario())
    assert [offset for offset, _ in seen[::2]] == [0, -1, -1, -1, -1, 1, 2]
    assert [record.value for record in stored(bootstrap, topic)] == [b"x!", b"a!", b"b!"]


@contextlib.asynccontextmanager
async def leaky_proxy(port: int, target: Callable[[], tuple[str, int]]) -> AsyncIterator[list[int]]:
    """Forwards to a broker, and cuts the connection instead of every n-th answer from a size on.

    The broker has carried out such a request: its answer alone is lost. The list that it gives
    holds n, and how many were cut.
    """
    plan = [0, 0]
    count = 0

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, loses: bool) -> None:
        nonlocal count
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while data := await reader.read(65536):
                if loses and plan[0]:
                    count += 1
                    if count % plan[0] == 0:
                        plan[1] += 1
                        break
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*target())
        try:
            await asyncio.gather(pipe(reader, far_writer, False), pipe(far_reader, writer, True))
        finally:
            far_writer.close()

    async with serving(serve, port):
        yield plan


@pytest.mark.parametrize("idempotent", [True, False])
def test_lost_answers_neither_double_nor_reorder(topic: str, run: Run, idempotent: bool) -> None:
    """With idempotence each record is there once and in order; without, at least once."""
    from tools.free_port import free_port

    inside, outside = free_port(), free_port()

    async def scenario() -> list[int]:
        listener = f"PLAINTEXT://127.0.0.1:{inside}"
        config = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{outside}"}
        async with (
            odradek.Broker(listeners=[listener], config=config),
            leaky_proxy(outside, lambda: ("127.0.0.1", inside)) as plan,
        ):
            servers = f"127.0.0.1:{outside}"
            await make(servers, topic)
            settings = {"batch_size": 200, "linger_ms": 0, "enable_idempotence": idempotent}
            async with Producer(servers, retry_backoff_ms=5, **settings) as producer:
                await producer.send_and_wait(topic, b"-1")
                plan[0] = 7
                deliveries = []
                for number in range(400):
                    deliveries.append(await producer.send(topic, b"%d" % number))
                    if number % 10 == 0:
                        await asyncio.sleep(0)
                await producer.flush()
                plan[0] = 0
            assert plan[1] > 3, "answers were lost"
            metadata = [each.result() for each in deliveries]
            records = await asyncio.to_thread(stored, servers, topic)
            if idempotent:
                by_offset = {record.offset: record.value for record in records}
                known = [(at.offset, n) for n, at in enumerate(metadata) if at.offset >= 0]
                assert all(by_offset[offset] == b"%d" % number for offset, number in known)
            return [int(record.value or b"") for record in records]

    values = run(scenario())
    if idempotent:
        assert values == [-1, *range(400)]
    else:
        assert set(values) == {-1, *range(400)}


# --- transactions -------------------------------------------------------------------------------


def told(servers: str, topic: str) -> list[str]:
    """The values of a log, and its markers, once all of them are written."""
    await_ended(servers, topic)
    kinds = {b"\0\0\0\0": "ABORT", b"\0\0\0\1": "COMMIT"}
    return [
        kinds[record.key or b""] if record.is_control else (record.value or b"").decode()
        for record in stored(servers, topic)
    ]


def test_transactions_commit_and_abort(
    transactional_servers: str, topic: str, names: Callable[[str], str], run: Run
) -> None:
    group = names("group")
    committed = {TopicPartition(topic, 0): CommittedOffset(1, "done")}

    async def scenario() -> None:
        servers = transactional_servers
        await make(servers, topic)
        async with Producer(servers, transactional_id=names("id"), linger_ms=0) as producer:
            with pytest.raises(UsageError, match="uninitialized"):
                producer.begin_transaction()
            await producer.init_transactions()
            with pytest.raises(UsageError, match="ready"):
                await producer.send(topic, b"x")
            async with producer.transaction():
                for number in range(3):
                    await producer.send(topic, b"%d" % number)
                await producer.send_offsets_to_transaction(committed, GroupMetadata(group))
            with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is tested
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"aborted")
                    late = await producer.send(topic, b"aborted too")
                    await producer.send_offsets_to_transaction(
                        {TopicPartition(topic, 0): CommittedOffset(9)}, GroupMetadata(group)
                    )
                    raise ZeroDivisionError
            assert late.done()
            async with producer.transaction():
                pass
            async with producer.transaction():
                await producer.send(topic, b"last")
        async with Admin(servers) as admin:
            assert (await admin.list_group_offsets([group], require_stable=True))[
                group
            ] == committed

    run(scenario())
    found = told(transactional_servers, topic)
    assert [each for each in found if each != "aborted too"] == [
        *("0", "1", "2", "COMMIT"),
        *("aborted", "ABORT"),
        *("last", "COMMIT"),
    ]


def test_what_was_not_sent_when_a_transaction_is_aborted_fails(
    transactional_servers: str, topic: str, names: Callable[[str], str], run: Run
) -> None:
    async def scenario() -> None:
        servers = transactional_servers
        await make(servers, topic)
        async with Producer(servers, transactional_id=names("id"), linger_ms=60_000) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            waiting = await producer.send(topic, b"never")
            await producer.abort_transaction()
            with pytest.raises(TransactionAborted):
                await waiting

    run(scenario())
    assert told(transactional_servers, topic) == []


def test_a_transaction_that_lost_a_batch_is_aborted_and_the_next_goes_on(
    transactional_servers: str, topic: str, names: Callable[[str], str], run: Run
) -> None:
    """Its number is missing in the log: all that follows would be out of order, for ever."""

    async def scenario() -> None:
        servers = transactional_servers
        await make(servers, topic, max_message_bytes="1000")
        async with Producer(servers, transactional_id=names("id"), linger_ms=0) as producer:
            await producer.init_transactions()
            for number in range(3):
                async with producer.transaction():
                    await producer.send(topic, b"%d" % number)
                producer.begin_transaction()
                await producer.send(topic, b"aborted")
                await producer.flush()
                with pytest.raises(RecordTooLarge):
                    await producer.send_and_wait(topic, b"x" * 2000)
                with pytest.raises(RecordTooLarge):
                    await producer.commit_transaction()
                await producer.abort_transaction()

    run(scenario())
    assert told(transactional_servers, topic) == [
        *("0", "COMMIT", "aborted", "ABORT"),
        *("1", "COMMIT", "aborted", "ABORT"),
        *("2", "COMMIT", "aborted", "ABORT"),
    ]


def test_the_epoch_that_comes_after_an_abort_may_be_asked_for_again(
    names: Callable[[str], str], run: Run
) -> None:
    """The coordinator may have given it before: who asks again would be its own successor."""

    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            servers, name = broker.bootstrap_servers, names("id")
            async with Producer(servers, transactional_id=name, linger_ms=0) as producer:
                await producer.init_transactions()

                async def lose_a_batch() -> None:
                    producer.begin_transaction()
                    with (
                        broker.fail("Produce", "MESSAGE_TOO_LARGE", times=1),
                        pytest.raises(RecordTooLarge),
                    ):
                        await producer.send_and_wait("t", b"lost")

                await lose_a_batch()
                await producer.abort_transaction()
                with broker.drop("InitProducerId", after=True, times=2) as lost:
                    async with producer.transaction():
                        await producer.send("t", b"one")
                    assert lost.struck == 2
                await lose_a_batch()
                await producer.abort_transaction()
                with broker.delay(200, "InitProducerId") as late:
                    producer.begin_transaction()
                    waiting = await producer.send("t", b"never")
                    while not late.struck:
                        await asyncio.sleep(0.01)
                    await producer.abort_transaction()
                    with pytest.raises(TransactionAborted):
                        await waiting
                async with producer.transaction():
                    await producer.send("t", b"two")
            assert told(servers, "t") == [
                *("ABORT", "one", "COMMIT"),
                # The third has no partition: it ended before there was an epoch to add one with.
                *("ABORT", "two", "COMMIT"),
            ]

    run(scenario())


def test_an_abort_takes_back_what_is_to_be_sent_again(
    names: Callable[[str], str], run: Run
) -> None:
    """A batch that its broker refused for the moment is in the way of no abort."""

    async def scenario() -> None:
        settings = {"linger_ms": 0, "retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}
        with odradek.Broker() as broker:
            servers = broker.bootstrap_servers
            broker.create_topic("t")
            name = names("id")
            async with Producer(servers, transactional_id=name, **settings) as producer:
                await producer.init_transactions()
                with broker.fail("Produce", "NOT_ENOUGH_REPLICAS") as refused:
                    producer.begin_transaction()
                    waiting = await producer.send("t", b"aborted")
                    while not refused.struck:
                        await asyncio.sleep(0.01)
                    await producer.abort_transaction()
                    with pytest.raises(TransactionAborted):
                        await waiting
                async with producer.transaction():
                    await producer.send("t", b"next")
            assert told(servers, "t") == ["ABORT", "next", "COMMIT"]

    run(scenario())


def test_a_successor_fences_its_predecessor(
    transactional_servers: str, topic: str, names: Callable[[str], str], run: Run
) -> None:
    name = names("id")

    async def scenario() -> None:
        servers = transactional_servers
        await make(servers, topic)
        async with (
            Producer(servers, transactional_id=name, linger_ms=0) as old,
            Producer(servers, transactional_id=name, linger_ms=0) as new,
        ):
            await old.init_transactions()
            old.begin_transaction()
            await old.send_and_wait(topic, b"old")
            await new.init_transactions()
            async with new.transaction():
                await new.send(topic, b"new")
            delivery = await old.send(topic, b"too late")
            with pytest.raises(FencedError):
                await delivery
            with pytest.raises(FencedError):
                await old.commit_transaction()
            with pytest.raises(FencedError):
                old.begin_transaction()

    run(scenario())
    assert told(transactional_servers, topic) == ["old", "ABORT", "new", "COMMIT"]
