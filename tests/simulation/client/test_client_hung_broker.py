"""Producers of ours while one of their brokers takes what they send and answers nothing, on a clock
that jumps. If this fails, it stops the partitions of the others as well."""

import asyncio
import random
from collections.abc import Callable

import pytest
from tests.simulation.client.producing.client_producers import (
    BROKERS,
    PARTITIONS,
    SETTINGS,
    TOPICS,
    Brokers,
)
from tests.simulation.virtual import Connection, LoopClock, Network, VirtualLoop

from odradek.client import Producer

SOON_S = 1
ROUNDS = 12  # several request.timeout.ms, and less than delivery.timeout.ms


class Stage:
    """Brokers that lead a partition each, of which one may be silent."""

    def __init__(self) -> None:
        self.brokers = Brokers(random.Random(7))
        self.network = Network(random.Random(7), self.serve)
        self.silent: int | None = None
        self.led = dict(zip(BROKERS, self.brokers.logs, strict=False))
        for broker, where in self.led.items():
            self.brokers.logs[where].leader = broker

    def serve(self, connection: Connection, frame: bytes, answer: Callable[[bytes], None]) -> None:
        if connection.port != self.silent:
            self.brokers.serve(connection, frame, answer)


@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize("broker", BROKERS)
def test_one_hung_broker_does_not_keep_a_producer_from_the_partitions_of_others(
    broker: int, is_transactional: bool
) -> None:
    """Whichever it is: one of them is asked for metadata as well."""
    stage = Stage()
    settings = dict(SETTINGS)
    if is_transactional:
        settings["transactional.id"] = "x"
        stage.brokers.coordinator = next(each for each in BROKERS if each != broker)

    async def scenario(producer: Producer) -> None:
        if is_transactional:
            await producer.init_transactions()
            producer.begin_transaction()
        for topic, index in stage.led.values():
            await producer.send_and_wait(topic, b"first", partition=index)
        stage.silent = broker
        held = []
        for _ in range(ROUNDS):
            sent = {
                each: await producer.send(topic, b"v", partition=index)
                for each, (topic, index) in stage.led.items()
            }
            held.append(sent.pop(broker))
            async with asyncio.timeout(SOON_S):
                await asyncio.gather(*sent.values())
            await asyncio.sleep(0.25)
        assert not any(each.done() for each in held)
        stage.silent = None
        await asyncio.gather(*held)
        if is_transactional:
            await producer.commit_transaction()

    run(stage, settings, scenario)


def test_a_partition_without_leader_does_not_keep_the_others_of_its_topic() -> None:
    """Records for the partition wait alone until a leader is elected."""
    stage = Stage()
    without, led = (stage.brokers.logs[TOPICS[0], index] for index in range(PARTITIONS))
    led.leader = BROKERS[0]

    async def scenario(producer: Producer) -> None:
        for index in range(PARTITIONS):
            await producer.send_and_wait(TOPICS[0], b"first", partition=index)
        without.leader, without.leader_epoch = -1, 1
        held = await producer.send(TOPICS[0], b"held", partition=0)
        await asyncio.sleep(1)
        for _ in range(ROUNDS):
            async with asyncio.timeout(SOON_S):
                await producer.send_and_wait(TOPICS[0], b"v", partition=1)
        assert not held.done()
        without.leader = BROKERS[1]
        await held

    run(stage, dict(SETTINGS), scenario)


def run(stage: Stage, settings: dict[str, object], scenario: Callable[[Producer], object]) -> None:
    async def on_stage() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.network = stage.network
        servers = ",".join(f"client:{each}" for each in BROKERS)
        async with Producer(
            servers, settings, clock=LoopClock(loop), rng=random.Random(7)
        ) as producer:
            await scenario(producer)  # type: ignore[misc]

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(on_stage())
