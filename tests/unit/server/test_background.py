"""Blocking work on threads: its outcome comes back to the loop, exactly once."""

import asyncio
import threading

import pytest

from odradek.server.background import ThreadPoolBackground


def test_outcomes_come_back_to_the_loops_thread() -> None:
    """Goal: floors that use the port need no locks."""

    async def main() -> None:
        background = ThreadPoolBackground(asyncio.get_running_loop())
        seen: list[object] = []

        def work() -> int:
            assert threading.current_thread() is not threading.main_thread()
            return 7

        def fail() -> int:
            raise OSError("disk")

        def on_done(result: int) -> None:
            assert threading.current_thread() is threading.main_thread()
            seen.append(result)
            if len(seen) < 3:
                background.submit(work, on_done, seen.append)

        background.submit(work, on_done, seen.append)
        background.submit(fail, on_done, lambda error: seen.append(str(error)))
        await background.drain()
        background.close()
        assert sorted(map(str, seen)) == ["7", "7", "disk"]

    asyncio.run(main())


def test_our_own_mistakes_reach_the_loops_exception_handler() -> None:
    """Goal: an assertion in a thread is not answered as if a disk had failed."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        caught: list[dict[str, object]] = []
        loop.set_exception_handler(lambda _, context: caught.append(context))
        background = ThreadPoolBackground(loop)

        def work() -> None:
            raise AssertionError("two and two")

        background.submit(work, pytest.fail, pytest.fail)
        await background.drain()
        background.close()
        assert isinstance(caught[0]["exception"], AssertionError)

    asyncio.run(main())
