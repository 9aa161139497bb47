"""Blocking members of the newer protocols whose broker stops in the midst of a call, behind any of
its requests. If these fail, a call hangs there.

Each call is made again and again: the broker stops behind none of its requests, behind the first,
and so on, until it ends before that. A call that hangs fails by the test's own time-out.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from tests.wire.client.faults.lies import LyingProxy, behind, silence
from tests.wire.client.test_share_consumer import begin_with_the_first, produce

from odradek.client.apis import FETCH
from odradek.client.errors import KafkaError
from odradek.client.sync import Consumer, ShareConsumer

Run = Callable[[Coroutine[Any, Any, None]], None]
RECORDS = 3
LIMITS: dict[str, Any] = {"request_timeout_ms": 500, "default_api_timeout_ms": 1_000}


class StoppingProxy(LyingProxy):
    """Passes on so many requests from when it `counts` them, and no other."""

    def __init__(self, requests: int) -> None:
        super().__init__(FETCH, silence, 0)
        self._requests = requests
        self.counts = False
        self.has_stopped = False

    async def _before_passing(self, api_key: int) -> None:
        if not self.counts:
            return
        if not self._requests:
            self.has_stopped = True
            await asyncio.Event().wait()
        self._requests -= 1


def consumer(servers: str) -> Consumer:
    """A member that has read a record, and owes its commit."""
    settings = {"group_protocol": "consumer", "auto_offset_reset": "earliest"}
    return Consumer(servers, group_id="t", topics=["t"], **settings, **LIMITS)


def share_consumer(servers: str) -> ShareConsumer:
    """A member that has read a record, and owes its acknowledgement."""
    return ShareConsumer(servers, group_id="t", topics=["t"], **LIMITS)


CALLS: dict[str, tuple[Callable[[str], Any], Callable[[Any], object]]] = {
    "poll": (consumer, lambda c: (c.seek_to_end(), c.poll(100))),
    "commit": (consumer, lambda c: c.commit()),
    "committed": (consumer, lambda c: c.committed(c.assignment())),
    "end_offsets": (consumer, lambda c: c.end_offsets(c.assignment())),
    "partitions_for": (consumer, lambda c: c.partitions_for("u")),
    "unsubscribe": (consumer, lambda c: c.unsubscribe()),
    "close": (consumer, lambda c: c.close(100)),
    "poll of a share": (share_consumer, lambda c: c.poll(100)),
    "commit of a share": (share_consumer, lambda c: c.commit()),
    "unsubscribe of a share": (share_consumer, lambda c: c.unsubscribe()),
    "close of a share": (share_consumer, lambda c: c.close(100)),
}


async def _is_stopped_behind(requests: int, name: str) -> bool:
    make, call = CALLS[name]
    proxy = StoppingProxy(requests)

    def called() -> bool:
        member = make(servers)
        while True:
            with suppress(KafkaError):  # these time-outs may be over before the broker stops
                if member.poll(100, max_records=1):
                    break
        proxy.counts = True
        with suppress(KafkaError):
            call(member)
        has_stopped = proxy.has_stopped
        member.close(0)
        return has_stopped

    async with behind(proxy) as servers:
        await begin_with_the_first(servers, "t")
        await produce(servers, "t", RECORDS)
        return await asyncio.to_thread(called)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_call_ends_wherever_the_broker_stops(run: Run, name: str) -> None:
    async def scenario() -> None:
        for requests in count():
            if not await _is_stopped_behind(requests, name):
                assert requests, "it stops at least once"
                return

    run(scenario())
