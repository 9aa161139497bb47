"""The background of a producer, and what its user's program, or a broker that hangs, does to it.

If these fail, records are neither delivered nor failed, `close` waits for ever, or a record is in
the log behind one that was sent after it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.simulation.client.producing.client_producers import (
    API_VERSIONS,
    DELIVERY_TIMEOUT_MS,
    FLEXIBLE_FROM,
    PRODUCE,
    SETTINGS,
    SLACK_MS,
)
from tests.simulation.client.producing.test_client_sequences import LOST, Stage, ends, play
from tests.simulation.virtual import Connection, VirtualLoop

from odradek.client import Producer
from odradek.client.core.producing.accumulator import RECORD_OVERHEAD_BYTES
from odradek.client.errors import RequestTimedOut
from odradek.errors import ErrorCode
from odradek.protocol.direct.produce import ProducePartition, ProducePartitionResponse
from odradek.protocol.header import decode_request_header

REQUEST_TIMEOUT_S = int(str(SETTINGS["request.timeout.ms"])) / 1000


class Acknowledged:
    """An interceptor that has a callback for the end of records."""

    def __init__(self, tell: Callable[[Any, Any], object]) -> None:
        self.tell = tell

    def on_send(self, record: Any) -> Any:
        return record

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        self.tell(error, metadata)


def look_at_what_was_cancelled(*_: object) -> None:
    """Raises CancelledError, which no `except Exception` catches."""
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    gone.cancel()
    gone.result()


@pytest.mark.parametrize("told", ["on_delivery", "interceptor"])
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_callback_that_looks_at_a_cancelled_future_costs_nothing(
    told: str, is_lost: bool
) -> None:
    """It would end the sender, or leave the other batches of its answer under way for ever."""

    async def scenario(stage: Stage) -> None:
        given: dict[str, Any] = {"on_delivery": look_at_what_was_cancelled}
        if told == "interceptor":
            given = {"interceptors": [Acknowledged(look_at_what_was_cancelled)]}
        async with stage.producer(**given, linger_ms=5) as producer:
            stage.fates = {b"lost": [LOST] * 1_000 if is_lost else []}
            sent = [await producer.send("t", b"lost", partition=index) for index in (0, 1)]
            if is_lost:
                for each in sent:
                    with suppress(RequestTimedOut):
                        await each
                stage.fates = {}
            async with asyncio.timeout(1):
                await asyncio.gather(*sent, return_exceptions=True)
            for index in (0, 1):
                async with asyncio.timeout(3):
                    await producer.send_and_wait("t", b"next", partition=index)
            assert not producer._accumulator.unfinished()

    play(scenario)


@pytest.mark.parametrize("when", ["at first", "connecting", "on its way", "later"])
def test_a_program_that_cancels_all_tasks_can_close_its_producer(when: str) -> None:
    """As many do on a signal. What was sent is delivered, or failed in its time."""

    async def scenario(stage: Stage) -> None:
        producer = stage.producer()
        delivery = None
        if when == "connecting":
            stage.logs["t", 0].leader = 3
            await producer.partitions_for("t")
            delivery = await producer.send("t", b"1", partition=0)
            while producer._sender is None or not producer._sender._connecting:
                await asyncio.sleep(0.001)
        elif when != "at first":
            await producer.send_and_wait("t", b"0", partition=0)
            delivery = await producer.send("t", b"1", partition=0)
        sending = asyncio.create_task(producer.send("t", b"2", partition=1))
        await asyncio.sleep(0.01 if when == "later" else 0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait([sending])
        if not sending.cancelled():
            delivery = sending.result()
        async with asyncio.timeout((DELIVERY_TIMEOUT_MS + SLACK_MS) / 1000):
            last = await producer.send("t", b"3", partition=0)
            await producer.close()
        assert delivery is None or delivery.done()
        assert await ends(last) == [stage.values().index(b"3")]

    play(scenario)


def test_who_waits_for_a_task_that_was_cancelled_is_not_cancelled() -> None:
    """The client shares it among its callers."""

    async def scenario(stage: Stage) -> None:
        async with stage.producer() as producer:
            sending = asyncio.create_task(producer.send("t", b"1", partition=0))
            await asyncio.sleep(0.001)
            for task in asyncio.all_tasks() - {asyncio.current_task(), sending}:
                task.cancel()
            assert await ends(await sending) == [0]

    play(scenario)


def test_a_delivery_that_is_awaited_ends_though_all_tasks_were_cancelled() -> None:
    """No request is under way that would wake the sender, and nobody calls the producer."""

    async def scenario(stage: Stage) -> None:
        producer = stage.producer(retry_backoff_ms=1_000, retry_backoff_max_ms=1_000)
        stage.fates = {b"1": [ErrorCode.NOT_ENOUGH_REPLICAS]}
        delivery = await producer.send("t", b"1", partition=0)
        while stage.fates[b"1"]:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.1)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        async with asyncio.timeout(2):
            assert (await delivery).offset == 0
        await producer.close()

    play(scenario)


def connections_to(port: int) -> list[Connection]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    assert loop.network is not None
    return [each for each in loop.network.connections if each.port == port]


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("acks", ["0", "1"])
def test_records_that_wait_for_a_connection_are_not_overtaken(acks: str, turns: int) -> None:
    """Without numbers nothing else keeps their order. The next is sent so many turns of the loop
    after the connection is ready, before those that wait for it go on."""

    async def scenario(stage: Stage) -> None:
        settings = {"acks": acks, "enable_idempotence": False, "batch_size": 100}
        async with stage.producer(**settings) as producer:
            stage.logs["t", 0].leader = 3
            await producer.partitions_for("t")
            assert not connections_to(3)
            await producer.send("t", b"1", partition=0)
            while not (opening := connections_to(3)):
                await asyncio.sleep(0.001)
            ready = opening[0]._protocol._ready  # type: ignore[attr-defined]
            ready.add_done_callback(lambda _: send_after(producer, turns))
            await asyncio.wait([ready])
            await asyncio.sleep(1)
        assert stage.values() == [b"1", b"2"]

    play(scenario)


def send_after(producer: Producer, turns: int) -> None:
    if turns:
        asyncio.get_running_loop().call_soon(send_after, producer, turns - 1)
        return
    with suppress(StopIteration):  # it waits for nothing
        producer.send("t", b"2", partition=0).send(None)


class Greeting(Stage):
    """Brokers that are slow to say what they speak."""

    late_s = 0.0

    def serve(self, connection: Connection, frame: bytes, answer: Callable[[bytes], None]) -> None:
        key = decode_request_header(memoryview(frame), FLEXIBLE_FROM).api_key
        asyncio.get_running_loop().call_later(
            self.late_s if key == API_VERSIONS else 0,
            lambda: super(Greeting, self).serve(connection, frame, answer),
        )


@pytest.mark.parametrize("acks", ["0", "all"])
def test_what_expires_while_it_waits_for_a_connection_is_not_sent(acks: str) -> None:
    """Its sender was told that it is not in the log, and may have sent it again."""

    async def scenario(stage: Greeting) -> None:
        settings = {"request_timeout_ms": 200, "delivery_timeout_ms": 300, "acks": acks}
        async with stage.producer(**settings) as producer:
            stage.logs["t", 0].leader = 3
            await producer.partitions_for("t")
            stage.late_s = 0.6
            lost = await producer.send("t", b"1", partition=0)
            assert await ends(lost) == [ErrorCode.REQUEST_TIMED_OUT]
            await asyncio.sleep(0.5)
            await producer.send_and_wait("t", b"2", partition=0)
            await asyncio.sleep(0.5)
        assert stage.values() == [b"2"]

    play(scenario, Greeting)


class Hanging(Stage):
    """Brokers one of which takes records, and answers nothing of them."""

    hung: int | None = None

    def serve(self, connection: Connection, frame: bytes, answer: Callable[[bytes], None]) -> None:
        key = decode_request_header(memoryview(frame), FLEXIBLE_FROM).api_key
        if not (key == PRODUCE and connection.port == self.hung):
            super().serve(connection, frame, answer)


def test_a_request_that_was_not_answered_has_the_leader_looked_up() -> None:
    """A broker that hangs has no answer to name the next leader in."""

    async def scenario(stage: Hanging) -> None:
        loop = asyncio.get_running_loop()
        async with stage.producer(metadata_max_age_ms=300_000) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            log = stage.logs["t", 0]
            stage.hung = log.leader
            delivery = await producer.send("t", b"1", partition=0)
            log.leader, log.leader_epoch = 3, 1
            begun_s = loop.time()
            await delivery
            assert loop.time() - begun_s < REQUEST_TIMEOUT_S + 0.5

    play(scenario, Hanging)


def test_requests_that_wait_for_a_connection_are_not_more_than_may_be_under_way() -> None:
    """All would be sent at once as soon as it is there."""

    async def scenario(stage: Hanging) -> None:
        stage.hung = 3
        for log in stage.logs.values():
            log.leader = 3
        limits = {"max_in_flight_requests_per_connection": 2, "enable_idempotence": False}
        producer = stage.producer(acks="1", **limits)
        await producer.partitions_for("t")
        assert not connections_to(3)
        for number in range(4):
            await producer.send("t", b"%d" % number, partition=number % 2)
            for _ in range(5):
                await asyncio.sleep(0)  # each goes alone
        assert not producer.metrics()["producer-metrics"]["requests-in-flight"]
        await asyncio.sleep(0.5)
        assert producer.metrics()["producer-metrics"]["requests-in-flight"] == 2
        await producer.close(timeout_ms=0)

    play(scenario, Hanging)


class Refusing(Stage):
    """Brokers that refuse records of partitions of others with some code, and name no leader."""

    code = ErrorCode.NONE

    def _append(self, port: int, topic: str, sent: ProducePartition) -> ProducePartitionResponse:
        if self.logs[topic, sent.index].leader != port:
            return ProducePartitionResponse(sent.index, self.code)
        return super()._append(port, topic, sent)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.NETWORK_EXCEPTION,
    ],
)
def test_a_refusal_that_names_no_leader_has_it_looked_up(code: ErrorCode) -> None:
    """Its client would ask the former leader until the record has expired."""

    async def scenario(stage: Refusing) -> None:
        stage.code = code
        async with stage.producer(metadata_max_age_ms=300_000) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            log = stage.logs["t", 0]
            log.leader, log.leader_epoch = 3, 1
            assert await ends(await producer.send("t", b"1", partition=0)) == [1]

    play(scenario, Refusing)


class Measuring(Stage):
    """Brokers that note how large the requests with records are."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def serve(self, connection: Connection, frame: bytes, answer: Callable[[bytes], None]) -> None:
        if decode_request_header(memoryview(frame), FLEXIBLE_FROM).api_key == PRODUCE:
            self.sizes.append(len(frame))
        super().serve(connection, frame, answer)


def test_batches_go_together_as_far_as_the_largest_request_allows() -> None:
    """A broker that takes no larger ones would break the connection, again and again."""

    async def scenario(stage: Measuring) -> None:
        limits = {"max_request_size": 1_000, "batch_size": 800, "linger_ms": 5}
        async with stage.producer(**limits) as producer:
            for size in (600, 300):
                stage.sizes.clear()
                sent = [await producer.send("t", b"v" * size, partition=index) for index in (0, 1)]
                await asyncio.gather(*sent)
                assert max(stage.sizes) <= 1_000
                assert len(stage.sizes) == (2 if size == 600 else 1)

    play(scenario, Measuring)


@pytest.mark.parametrize(
    ("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 17), ("zstd", 1, 19)]
)
def test_batches_are_compressed_as_hard_as_the_level_says(codec: str, low: int, high: int) -> None:
    """The level would do nothing."""
    value = b"".join(b"%d spools of %d, " % (n * n % 1_009, n * 7 % 31) for n in range(2_000))

    async def scenario(stage: Measuring) -> None:
        for level in (low, high):
            settings = {"compression_type": codec, f"compression_{codec}_level": level}
            async with stage.producer(**settings) as producer:
                await producer.send_and_wait("t", value, partition=0)
        easy, hard = stage.sizes
        assert hard < easy < len(value)

    play(scenario, Measuring)


def test_what_goes_to_a_broker_is_measured_as_its_own() -> None:
    """The search for a slow broker would find one number for all."""

    async def scenario(stage: Measuring) -> None:
        stage.logs["t", 1].leader = 2
        async with stage.producer() as producer:
            for index in (0, 1, 1):
                await producer.send_and_wait("t", b"v" * 100, partition=index)
            measured = producer.metrics()
            to_two = measured["producer-node-metrics.node-2"]
            assert to_two["request-total"] == to_two["response-total"] == 3  # with its versions
            assert to_two["request-size-max"] == stage.sizes[-1] + 4
            assert to_two["outgoing-byte-total"] > 2 * stage.sizes[-1]
            whole = measured["producer-metrics"]["outgoing-byte-total"]
            assert whole > to_two["outgoing-byte-total"]

    play(scenario, Measuring)


def test_a_busy_partition_leaves_the_others_their_turn() -> None:
    """Where a request has room for one of them, the first would be the only one."""

    async def scenario(stage: Stage) -> None:
        limits = {"max_request_size": 1_000, "max_in_flight_requests_per_connection": 1}
        largest = b"v" * (1_000 - RECORD_OVERHEAD_BYTES)
        async with stage.producer(**limits) as producer:
            await producer.send_and_wait("t", b"first", partition=0)
            busy = [await producer.send("t", largest, partition=0) for _ in range(20)]
            other = await producer.send("t", b"other", partition=1)
            await other
            assert sum(each.done() for each in busy) <= 3

    play(scenario)


@pytest.mark.parametrize("is_bulk", [False, True])
def test_a_large_record_has_room_before_small_ones_that_come_later(is_bulk: bool) -> None:
    """They would take what room there is, one after the other, and it would never be enough."""

    async def scenario(stage: Stage) -> None:
        async with stage.producer(buffer_memory=5_000, max_block_ms=600_000) as producer:
            await producer.partitions_for("t")
            values = [b"%d" % number + b"x" * 400 for number in range(200)]
            entered: list[bytes] = []

            async def send(value: bytes) -> None:
                if is_bulk:
                    await producer.send_many("t", [value], partition=0)
                else:
                    await producer.send("t", value, partition=0)
                entered.append(value)

            async with asyncio.TaskGroup() as sending:
                for value in values[:50]:
                    sending.create_task(send(value))
                sending.create_task(send(large := b"y" * 4_500))
                for value in values[50:]:
                    await asyncio.sleep(0.001)
                    sending.create_task(send(value))
            assert set(entered[: entered.index(large)]) <= set(values[:50])

    play(scenario)


def test_many_records_that_have_waited_for_room_have_it_before_who_comes_then() -> None:
    """A caller that learns of a delivery at once would take the room that it has made."""

    async def scenario(stage: Stage) -> None:
        limits = {"buffer_memory": 5_000, "batch_size": 400, "max_block_ms": 600_000}
        async with stage.producer(**limits) as producer:
            await producer.partitions_for("t")
            entered: list[bytes] = []

            async def send(value: bytes) -> None:
                await producer.send_many("t", [value], partition=0)
                entered.append(value)

            async def follow(delivery: asyncio.Future[Any]) -> None:
                await asyncio.wait([delivery])
                await send(b"late")

            first = [await producer.send("t", b"x" * 400, partition=0) for _ in range(10)]
            async with asyncio.TaskGroup() as sending:
                sending.create_task(send(b"y" * 400))
                sending.create_task(send(b"z" * 400))
                sending.create_task(send(b"large" * 500))
                for each in first:
                    sending.create_task(follow(each))
            assert b"late" not in entered[: entered.index(b"large" * 500)]

    play(scenario)
