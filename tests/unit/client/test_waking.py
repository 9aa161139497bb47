"""The calls that `wakeup` ends. If this fails, a wake-up is lost, and its reader stays blocked."""

import asyncio

import pytest

from odradek.client.aio.waking import Waking
from odradek.client.errors import WokenUp


def test_who_had_ended_just_before_leaves_the_wake_up_to_the_next() -> None:
    async def scenario() -> None:
        waking, news = Waking(), asyncio.Event()

        async def call() -> str:
            async with waking.waited():
                await news.wait()
            return "ended"

        calling = asyncio.create_task(call())
        await asyncio.sleep(0)
        news.set()
        waking.wake()
        assert await calling == "ended"
        with pytest.raises(WokenUp):
            await call()
        assert await call() == "ended"

    asyncio.run(scenario())
