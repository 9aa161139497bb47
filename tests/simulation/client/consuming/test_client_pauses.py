"""Clients of ours whose brokers all stop in the midst of a call, behind any of its requests, on a
clock that jumps.

Each call is made again and again: the brokers stop behind none of its requests, behind the first,
and so on, until it ends before they do. The request they stop at is carried out, or is not. If
these fail, a call hangs there beyond its time.
"""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from tests.simulation.client.producing.client_producers import SETTINGS as PRODUCER_SETTINGS
from tests.simulation.client.producing.test_client_sequences import play as play_producer
from tests.simulation.client.producing.test_client_transactions import Coordinator
from tests.simulation.client.test_client_cluster import PROTOCOLS, Answer, Stage, read
from tests.simulation.client.test_client_cluster import play as play_members
from tests.simulation.client.test_client_time_limits import (
    API,
    ASKED_BY_SEVERAL,
    BLOCK,
    DELIVERY,
    IN_TRANSACTIONS,
    OF_CONSUMERS,
    OF_PRODUCERS,
    Limit,
    _at_once,
    limit_ms,
    measure,
)
from tests.simulation.virtual import Connection

from odradek.client import Producer

TASKS = 2
carried_out = pytest.mark.parametrize(
    "is_carried_out", [False, pytest.param(True, marks=pytest.mark.slow)]
)
Serve = Callable[[Connection, bytes, Answer], None]


class Pause:
    """Stops all brokers after so many requests; the next request may still be carried out."""

    def __init__(self, requests: int, *, is_carried_out: bool) -> None:
        self._left = requests
        self._is_carried_out = is_carried_out
        self.has_begun = False

    def serve(self, serve: Serve, connection: Connection, frame: bytes, answer: Answer) -> None:
        if self._left:
            self._left -= 1
            serve(connection, frame, answer)
            return
        if self._is_carried_out and not self.has_begun:
            serve(connection, frame, lambda _: None)
        self.has_begun = True


def everywhere(stopped_behind: Callable[[int], Pause]) -> None:
    """Plays with brokers that stop behind no request, one, two, until they do not any more."""
    for requests in count():
        if not stopped_behind(requests).has_begun:
            assert requests, "they stop at least once"
            return


class Pausing(Coordinator):
    """Its partitions are led by two brokers, which stop when they are told to."""

    pause: Pause | None = None

    def __init__(self) -> None:
        super().__init__()
        self.logs["t", 1].leader = 2

    def serve(self, connection: Connection, frame: bytes, answer: Answer) -> None:
        if self.pause is None:
            super().serve(connection, frame, answer)
        else:
            self.pause.serve(super().serve, connection, frame, answer)


async def two_under_way(producer: Producer) -> None:
    """A request to each of two brokers."""
    for index in (0, 1):
        await producer.send("t", b"b", partition=index)


@carried_out
@pytest.mark.parametrize("index", range(len(IN_TRANSACTIONS)))
def test_a_transaction_ends_in_its_time(index: int, is_carried_out: bool) -> None:
    name, call = IN_TRANSACTIONS[index]
    limit = limit_ms(OF_PRODUCERS.get(name, 50), PRODUCER_SETTINGS) + 100 * TASKS

    def stopped_behind(requests: int) -> Pause:
        pause = Pause(requests, is_carried_out=is_carried_out)

        async def scenario(stage: Pausing) -> None:
            producer = await stage.ready()
            producer.begin_transaction()
            await producer.send_and_wait("t", b"a", partition=0)
            await two_under_way(producer)
            stage.pause = pause
            await measure(producer, name, _at_once(call, TASKS), limit, PRODUCER_SETTINGS)
            await producer.close(timeout_ms=0)

        play_producer(scenario, Pausing)
        return pause

    everywhere(stopped_behind)


ALONE: dict[str, tuple[Limit, Callable[[Any], Any]]] = {
    "flush": ((DELIVERY,), lambda p: p.flush()),
    "send_and_wait": ((BLOCK, DELIVERY), lambda p: p.send_and_wait("u", b"more", partition=0)),
    "close": ((DELIVERY,), lambda p: p.close()),
    "close in time": (50, lambda p: p.close(timeout_ms=50)),
}


@pytest.mark.parametrize("acks", ["all", "0"])
@pytest.mark.parametrize("name", ALONE)
def test_what_is_sent_is_decided_in_its_time(name: str, acks: str) -> None:
    limit, call = ALONE[name]

    def stopped_behind(requests: int) -> Pause:
        pause = Pause(requests, is_carried_out=False)

        async def scenario(stage: Pausing) -> None:
            stage.pause = pause
            producer = stage.producer(acks=acks)
            sending = asyncio.create_task(two_under_way(producer))
            await asyncio.sleep(0.03)
            given = limit_ms(limit, PRODUCER_SETTINGS) + 100 * TASKS
            await measure(producer, name, _at_once(call, TASKS), given, PRODUCER_SETTINGS)
            await producer.close(timeout_ms=0)
            await asyncio.gather(sending, return_exceptions=True)

        play_producer(scenario, Pausing)
        return pause

    everywhere(stopped_behind)


OF_MEMBERS: dict[str, tuple[Limit, Callable[[Any], Any]]] = {
    **{name: (OF_CONSUMERS[name], call) for name, call in ASKED_BY_SEVERAL.items()},
    "close": (500, lambda c: c.close(timeout_ms=500)),
    "end_offsets": ((API,), lambda c: c.end_offsets(c.assignment())),
    "partitions_for": ((API,), lambda c: c.partitions_for("t")),
}


@carried_out
@pytest.mark.parametrize("name", OF_MEMBERS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_asked_of_a_member_ends_in_its_time(
    protocol: str, name: str, is_carried_out: bool
) -> None:
    limit, call = OF_MEMBERS[name]

    def stopped_behind(requests: int) -> Pause:
        pause = Pause(requests, is_carried_out=is_carried_out)

        async def scenario(stage: Stage) -> None:
            member = stage.member(protocol)
            member.subscribe(["t"])
            await read(member, 20)
            given = member._cluster.settings._values
            serve = stage.brokers.serve
            stage.brokers.serve = lambda *each: pause.serve(serve, *each)  # type: ignore[method-assign]
            await measure(
                member, name, _at_once(call, TASKS), limit_ms(limit, given) + 100 * TASKS, given
            )
            await member.close(timeout_ms=0)

        play_members(scenario)
        return pause

    everywhere(stopped_behind)
