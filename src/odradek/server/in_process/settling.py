"""Settling: brokers on one loop come to rest, so that nothing is half done.

That is what a clock moved by hand waits for, before the move and after it. Brokers are at rest when

- no time-out is due, and nothing that was handed to the timer waits;
- no work is under way in the background;
- their sockets hold nothing: no connection to accept, no bytes to read, none of an answer that a
  client would take. Clients' requests are handled, and their responses written.

Operations that wait for the clock keep waiting, and so do those that wait for a client: one that
does not read its responses, or sends only half a request, delays nothing.

Brokers answer each other, and an answer that one has read becomes a request to the other a few
turns of the loop later. So they have to be found at rest some turns in a row. A client that sends
without end does not prevent that: the number of turns is bounded, and large enough to read
everything it had sent before.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from odradek.server.broker import BrokerServer

TURNS_AT_REST: Final = 8
MOST_TURNS: Final = 10_000


async def settle(running: Sequence[BrokerServer]) -> None:
    """Returns when the brokers are at rest. They may start and stop meanwhile."""
    turns_at_rest = 0
    for _ in range(MOST_TURNS):
        for server in tuple(running):
            await server.finish_due_work()
        await asyncio.sleep(0)  # the loop looks at the sockets
        at_rest = all(server.is_at_rest for server in running)
        turns_at_rest = turns_at_rest + 1 if at_rest else 0
        if turns_at_rest == TURNS_AT_REST:
            return
