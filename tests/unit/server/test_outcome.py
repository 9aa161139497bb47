"""Awaiting what a floor reports by callback."""

import asyncio

from odradek.metadata.store import OnDone
from odradek.server.awaiting import outcome


def test_an_outcome_that_nobody_waits_for_any_more() -> None:
    """Ctrl-C while the broker starts, or a time-out around `create_topic_async`, would leave a
    traceback in the log, and the loop's callback half done."""
    waiting: list[OnDone[int]] = []

    async def main() -> None:
        task = asyncio.ensure_future(outcome(waiting.append))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(main())
    (on_done,) = waiting
    on_done(7)
