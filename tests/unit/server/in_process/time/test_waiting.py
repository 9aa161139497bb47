"""Why is this request waiting? `odradek.Broker.waiting` answers."""

import asyncio
import re
from contextlib import closing
from itertools import chain

from tests.deadlines import deadline_s

import odradek
from odradek.client.addresses import parse_bootstrap_servers
from odradek.client.apis import FETCH
from odradek.client.sync.connection import BlockingConnection
from odradek.clock import ManualClock
from odradek.protocol.direct.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
)
from odradek.purgatory import WaitingOperation

VERSION = 12
MAX_WAIT_MS = 5_000


def send_fetch(connection: BlockingConnection) -> None:
    """A fetch that waits for a hundred bytes."""
    topic = FetchTopic("orders", None, [FetchPartition(0, 0, 1 << 20, -1)])
    request = FetchRequest(-1, MAX_WAIT_MS, 100, [topic])
    connection.send(FETCH, VERSION, encode_fetch_request(request, VERSION))


def first_waiting(broker: odradek.Broker) -> WaitingOperation:
    """The waiting operations, as soon as the broker has read the request that has to wait."""
    while not (waiting := broker.waiting()):
        pass
    (operation,) = waiting
    return operation


def test_a_parked_fetch_says_what_it_waits_for() -> None:
    """The reason why a client gets no answer would have to be guessed."""
    clock = ManualClock()
    with odradek.Broker(clock=clock) as broker:
        broker.create_topic("orders")
        assert broker.waiting() == []
        address = parse_bootstrap_servers(broker.bootstrap_servers)[0]
        with closing(
            BlockingConnection(address, client_id="t", timeout_s=deadline_s(60))
        ) as connection:
            send_fetch(connection)
            waiting = first_waiting(broker)
            assert (waiting.kind, waiting.missing) == ("DelayedFetch", "100 of 100 bytes")
            assert waiting.deadline_ms - waiting.since_ms == MAX_WAIT_MS
            assert [str(key) for key in waiting.keys] == ["orders-0"]
            clock.advance(MAX_WAIT_MS)
            assert broker.waiting() == []
            connection.receive()


def test_a_report_leaves_out_what_always_waits() -> None:
    """A search for the fetch that a test hangs on would find idle followers first."""
    with odradek.Cluster(brokers=2) as cluster:
        cluster.create_topic("orders")
        leader = cluster.leader("orders")
        assert leader is not None
        address = parse_bootstrap_servers(leader.bootstrap_servers)[0]
        with closing(
            BlockingConnection(address, client_id="t", timeout_s=deadline_s(60))
        ) as connection:
            send_fetch(connection)
            while len(waiting := [*chain.from_iterable(cluster.waiting().values())]) < 2:
                pass  # a follower, and the client
            assert sum(each.is_routine for each in waiting) == len(waiting) - 1
            [line] = re.findall(r"DelayedFetch.*", cluster.report())
            assert line.endswith(": 100 of 100 bytes")


def test_a_broker_on_the_running_loop_may_be_asked_as_well() -> None:
    """`async with` has no thread that the question could be handed to."""

    async def main() -> None:
        async with odradek.Broker() as broker:
            assert broker.waiting() == []

    asyncio.run(main())
