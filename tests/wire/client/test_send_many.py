"""Many records in one call. If these fail, some are lost, misplaced, or answered wrongly."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.deadlines import deadline_s
from tests.wire.client.test_producer import make, stored

import odradek
from odradek.client import Producer
from odradek.client.core.producing.partitioner import partition_for_key
from odradek.client.core.producing.preparing import ProducerRecord
from odradek.client.errors import (
    BufferExhausted,
    ClientClosed,
    KafkaError,
    NotDelivered,
    RecordTooLarge,
    RequestError,
    TransactionAborted,
)
from odradek.client.record_metadata import RecordMetadata

Run = Callable[[Any], Any]


def test_they_are_stored_as_sent_where_their_keys_say(servers: str, topic: str, run: Run) -> None:
    """In small batches and little memory, so that the call has to wait for both."""
    numbers = range(600)

    async def scenario() -> list[RecordMetadata]:
        await make(servers, topic, 3)
        async with Producer(servers, batch_size=500, buffer_memory=4_000) as producer:
            delivery = await producer.send_many(
                topic,
                [None if number == 7 else b"v%d" % number for number in numbers],
                keys=[b"k%d" % number for number in numbers],
                headers=[[("h", b"%d" % number)] for number in numbers],
                timestamps_ms=[1_700_000_000_000 + number for number in numbers],
            )
            # A record on its own behind them stays behind them.
            last = await producer.send_and_wait(topic, b"last", key=b"k599")
            places = await delivery
            assert last.offset > places[599].offset
            return places

    places = run(scenario())
    assert [each.partition for each in places] == [
        partition_for_key(b"k%d" % number, 3) for number in numbers
    ]
    logs = [{each.offset: each for each in stored(servers, topic, index)} for index in range(3)]
    for number, place in enumerate(places):
        record = logs[place.partition][place.offset]
        assert record.value == (None if number == 7 else b"v%d" % number)
        assert (record.key, record.headers) == (b"k%d" % number, [("h", b"%d" % number)])
        assert record.timestamp == place.timestamp == 1_700_000_000_000 + number
    for log in logs:
        numbered = [int((each.key or b"")[1:]) for each in log.values() if each.value != b"last"]
        assert numbered == sorted(numbered), "each partition has them in their order"


def test_what_cannot_be_sent(bootstrap: str, topic: str, run: Run) -> None:
    async def scenario() -> None:
        await make(bootstrap, topic)
        async with Producer(bootstrap, max_request_size=1000, max_block_ms=300) as producer:
            assert await (await producer.send_many(topic, [])) == []
            with pytest.raises(TypeError, match="str"):
                await producer.send_many(topic, [b"x", "text"])
            with pytest.raises(ValueError, match="there are 1 keys for 2 values"):
                await producer.send_many(topic, [b"x", b"y"], keys=[b"k"])
            with pytest.raises(RequestError, match="none of the 1"):
                await producer.send_many(topic, [b"x", b"y"], partition=1)
            with pytest.raises(RequestError):
                await producer.send_many("no/topic", [b"x"])
            values = [b"a", b"x" * 1000, b"b", b"c"]
            delivery = await producer.send_many(topic, values)
            with pytest.raises(NotDelivered, match=r"1 of 4 records .* number 1: a") as it:
                await delivery
            assert [type(each) for each in it.value.errors.values()] == [RecordTooLarge]
            found = [None if each is None else each.offset for each in it.value.metadata]
            assert found == [0, None, 1, 2]
        with pytest.raises(ClientClosed):
            await producer.send_many(topic, [b"x"])

    run(scenario())
    assert [record.value for record in stored(bootstrap, topic)] == [b"a", b"b", b"c"]


def test_when_memory_stays_full_the_rest_fails_and_all_are_told(topic: str, run: Run) -> None:
    async def scenario() -> None:
        async with odradek.Broker() as broker:
            await make(broker.bootstrap_servers, topic)
            producer = Producer(
                broker.bootstrap_servers,
                buffer_memory=5_000,
                max_block_ms=200,
                request_timeout_ms=100,
                delivery_timeout_ms=2_500,  # far behind max.block.ms, on a slow machine too
            )
            await producer.send_and_wait(topic, b"x")
        delivery = await producer.send_many(topic, [b"x" * 1000] * 6)
        with pytest.raises(NotDelivered) as raised:
            await delivery
        errors = raised.value.errors
        assert sorted(errors) == list(range(6))
        assert [isinstance(errors[each], BufferExhausted) for each in range(6)] == [
            *[False] * 4,
            *[True] * 2,
        ]
        await producer.close()

    run(scenario())


def test_interceptors_and_serializers_see_each(bootstrap: str, topic: str, run: Run) -> None:
    """Interceptors first; they may send a record elsewhere."""
    seen: list[tuple[str, int]] = []

    class Interceptor:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            where = f"{topic}-odd" if record.value % 2 else topic
            return record._replace(topic=where, value=record.value * 10)

        def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
            seen.append((metadata.topic, metadata.offset))

    async def scenario() -> list[RecordMetadata]:
        await make(bootstrap, topic)
        await make(bootstrap, f"{topic}-odd")
        async with Producer(
            bootstrap, interceptors=[Interceptor()], value_serializer=lambda value: b"%d" % value
        ) as producer:
            return await (await producer.send_many(topic, range(5), keys=[b"k"] * 5))

    places = run(scenario())
    assert [(each.topic == topic, each.offset) for each in places] == [
        (True, 0),
        (False, 0),
        (True, 1),
        (False, 1),
        (True, 2),
    ]
    assert sorted(seen) == sorted((each.topic, each.offset) for each in places)
    assert [each.value for each in stored(bootstrap, f"{topic}-odd")] == [b"10", b"30"]


def test_an_aborted_transaction_takes_back_what_was_not_sent(
    bootstrap: str, topic: str, names: Callable[[str], str], run: Run
) -> None:
    async def scenario() -> None:
        await make(bootstrap, topic)
        async with Producer(bootstrap, transactional_id=names("id"), linger_ms=60_000) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            delivery = await producer.send_many(topic, [b"never", b"ever"])
            await producer.abort_transaction()
            with pytest.raises(NotDelivered) as raised:
                await delivery
            assert [type(each) for each in raised.value.errors.values()] == [TransactionAborted] * 2
            async with producer.transaction():
                committed = await producer.send_many(topic, [b"a", b"b"])
            assert len(await asyncio.wait_for(committed, deadline_s(30))) == 2

    run(scenario())
