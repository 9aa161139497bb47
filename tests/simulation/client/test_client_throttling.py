"""Brokers that throttle their clients, on a clock that jumps.

A broker with quotas answers at once, says for how long it wants to be asked nothing, and reads
nothing from the connection meanwhile (KIP-219). If these fail, clients of ours go on asking.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import pairwise

from tests.simulation.client.producing.client_producers import BROKERS, PRODUCE, SETTINGS, Brokers
from tests.simulation.virtual import Connection, LoopClock, Network, VirtualLoop

from odradek.client import Producer

THROTTLE_MS = 700


class Stage:
    """Brokers that throttle whoever writes, and when they were asked."""

    def __init__(self) -> None:
        self.brokers = Brokers(random.Random(7))
        self.brokers.throttle_time_ms = THROTTLE_MS
        self.network = Network(random.Random(7), self.serve)
        self.produced: list[tuple[int, float]] = []

    def serve(self, connection: Connection, frame: bytes, answer: Callable[[bytes], None]) -> None:
        if int.from_bytes(frame[:2], "big") == PRODUCE:
            self.produced.append((connection.port, asyncio.get_running_loop().time()))
        self.brokers.serve(connection, frame, answer)

    def pauses_ms(self, port: int) -> list[float]:
        """Between the requests to one broker."""
        times = [time_s for of, time_s in self.produced if of == port]
        return [(late - early) * 1000 for early, late in pairwise(times)]


def play(scenario: Callable[[Stage, Producer], Awaitable[None]], newest: int = 11) -> Stage:
    stage = Stage()
    stage.brokers.newest[PRODUCE] = newest

    async def on_stage() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.network = stage.network
        servers = ",".join(f"client:{each}" for each in BROKERS)
        clock = LoopClock(loop)
        async with Producer(servers, SETTINGS, clock=clock, rng=random.Random(7)) as producer:
            await scenario(stage, producer)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(on_stage())
    return stage


async def send_ten_to_all(stage: Stage, producer: Producer) -> None:
    for _ in range(10):
        deliveries = [
            await producer.send(topic, b"v", partition=index) for topic, index in stage.brokers.logs
        ]
        await asyncio.gather(*deliveries)


def test_a_producer_waits_before_it_writes_to_that_broker_again() -> None:
    stage = play(send_ten_to_all)
    assert stage.produced
    for port in BROKERS:
        assert all(pause_ms >= THROTTLE_MS for pause_ms in stage.pauses_ms(port))


def test_others_are_written_to_meanwhile() -> None:
    async def send_to_one_after_another(stage: Stage, producer: Producer) -> None:
        for index, log in enumerate(list(stage.brokers.logs.values())[:3]):
            log.leader = BROKERS[index]
        before_s = asyncio.get_running_loop().time()
        for topic, index in list(stage.brokers.logs)[:3]:
            await producer.send_and_wait(topic, b"v", partition=index)
        assert (asyncio.get_running_loop().time() - before_s) * 1000 < THROTTLE_MS

    stage = play(send_to_one_after_another)
    assert len({port for port, _ in stage.produced}) == 3


def test_a_broker_that_has_waited_itself_is_not_waited_for() -> None:
    """Before Produce 6 brokers answer only when the time is over: to wait again would be to halve
    what the quota allows."""
    stage = play(send_ten_to_all, newest=5)
    assert any(pause_ms < THROTTLE_MS for port in BROKERS for pause_ms in stage.pauses_ms(port))
