"""A reader at a position that cannot be read is told once a read, and loses nothing around it.

If these fail, a consumer hammers its broker while nobody reads, loses records beside a bad one, or
tells of an error that the reader has dealt with.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.streams import serving
from tests.wire.client.consuming import fill, read
from tests.wire.client.faults.lies import LyingProxy, behind

import odradek
from odradek.client import Consumer, Producer
from odradek.client.apis import FETCH
from odradek.client.errors import BadRecord, NetworkError, OffsetOutOfRange, RequestError
from odradek.model import TopicPartition

Run = Callable[[Coroutine[Any, Any, None]], None]
ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
LOOKS = 50


async def forever(consumer: Consumer) -> None:
    """Reads until something is raised."""
    while True:
        await consumer.getmany(timeout_ms=200)


def test_a_broker_is_not_asked_again_before_the_reader_was_told(run: Run) -> None:
    async def scenario() -> None:
        with odradek.Broker() as broker:
            servers = broker.bootstrap_servers
            await fill(servers, "t", [3])
            async with Consumer(servers, auto_offset_reset="none", client_id="me") as consumer:
                consumer.assign([ONE])
                consumer.seek(ONE, 50)
                with pytest.raises(OffsetOutOfRange):
                    await forever(consumer)
                # A fault that does nothing, to count by.
                with broker.delay(0, "Fetch", client_id="me") as asked:
                    for _ in range(LOOKS):
                        await consumer.end_offsets([ONE])
                    assert asked.struck <= 1
                consumer.seek(ONE, 0)
                assert len(await read(consumer, 3)) == 3, "the error was told already"

    run(scenario())


def test_columns_beside_a_bad_batch_are_given_out(run: Run) -> None:
    def flip_a_bit(frame: bytes) -> bytes:
        return frame[:-12] + bytes([frame[-12] ^ 1]) + frame[-11:]

    async def scenario() -> None:
        async with behind(LyingProxy(FETCH, flip_a_bit, 1), partitions=2) as servers:
            async with Producer(servers) as producer:
                for partition in (ONE, OTHER):
                    value = b"a value that is long enough"
                    await producer.send_and_wait("t", value, partition=partition.partition)
            async with Consumer(servers, auto_offset_reset="earliest") as consumer:
                consumer.assign([ONE, OTHER])
                found: list[TopicPartition] = []

                async def read_on() -> None:
                    while len(found) < 2:
                        found.extend(await consumer.getmany(timeout_ms=5000, columns=True))

                with pytest.raises(BadRecord) as told:
                    await read_on()
                bad = told.value.partition
                [good] = {ONE, OTHER} - {bad}
                assert await consumer.position(good) == (1 if good in found else 0), "it is lost"
                consumer.seek(bad, told.value.offset)
                await read_on()
                assert sorted(found) == [ONE, OTHER]

    run(scenario())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_name_that_no_topic_can_have_is_told_to_who_subscribes(
    modern_servers: str, topic: str, names: Callable[[str], str], run: Run, protocol: str
) -> None:
    settings = {"group_protocol": protocol, "auto_offset_reset": "earliest"}

    async def scenario() -> None:
        await fill(modern_servers, topic, [1])
        async with Consumer(modern_servers, group_id=names("group"), **settings) as consumer:
            consumer.subscribe(["no/name"])
            with pytest.raises(RequestError, match="no/name"):
                await forever(consumer)
            consumer.subscribe([topic])
            assert len(await read(consumer, 1)) == 1

    run(scenario())


def test_what_speaks_another_protocol_costs_no_memory(run: Run) -> None:
    """A TLS server's alert, taken for an answer, is one of 352 million bytes."""

    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\x15\x03\x03\x00\x02\x02\x46")
        await reader.read()

    async def scenario() -> None:
        async with serving(alert) as port:
            settings = {"default_api_timeout_ms": 300}
            async with Consumer(f"127.0.0.1:{port}", **settings) as consumer:
                with pytest.raises(NetworkError, match="352518912 bytes"):
                    await consumer.end_offsets([ONE])

    run(scenario())
