"""Blocking work on threads: its outcome comes back to the loop, exactly once."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest

from odradek.server.background import ThreadPoolBackground, ThreadWorkers


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


def test_nothing_is_under_way_when_draining_has_ended() -> None:
    """A checkpoint that a timer began as the broker ended would be written by two threads."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        background = ThreadPoolBackground(loop)
        release = threading.Event()
        done: list[str] = []

        def submit_late() -> None:
            background.submit(release.wait, lambda _: done.append("late"), pytest.fail)
            loop.call_later(0, release.set)

        def on_done(_: None) -> None:
            done.append("first")
            # Runs before whoever waits for the end.
            loop.call_soon(submit_late)

        background.submit(lambda: None, on_done, pytest.fail)
        await background.drain()
        assert done == ["first", "late"]
        background.close()

    asyncio.run(main())


def test_the_loop_serves_what_waits_before_what_was_put_off() -> None:
    """Long work in pieces would hold up requests, or go on while the broker's files are closed."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        background = ThreadPoolBackground(loop)
        done: list[str] = []

        def piece(number: int) -> None:
            assert threading.current_thread() is threading.main_thread()
            done.append(f"piece {number}")
            if number < 3:
                loop.call_soon(done.append, f"request {number}")
                background.defer(partial(piece, number + 1))

        background.defer(partial(piece, 1))
        assert done == []
        await background.drain()
        background.close()
        assert done == ["piece 1", "request 1", "piece 2", "request 2", "piece 3"]

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


def test_workers_hand_over_on_the_callers_thread() -> None:
    """The logs of a broker would be changed by several threads at once."""
    callers: list[int] = []
    names: list[str] = []

    def work(number: int, hand_over: Callable[[int], None]) -> None:
        names.append(threading.current_thread().name)
        hand_over(number)
        hand_over(number + 100)

    rows = [[partial(work, n) for n in range(5)], [partial(work, n) for n in range(5, 8)], []]
    results = []
    for result in ThreadWorkers().run(rows, 2):
        callers.append(threading.get_ident())
        results.append(result)
    assert sorted(results) == [*range(8), *range(100, 108)]
    assert all(results.index(n) < results.index(n + 100) for n in range(8))
    assert set(callers) == {threading.get_ident()}
    assert all(name.startswith("odradek-worker") for name in names)


def test_rows_do_not_wait_for_each_other() -> None:
    """A slow disk would hold up the logs of the others."""
    other_row_done = threading.Event()

    def slow(hand_over: Callable[[str], None]) -> None:
        assert other_row_done.wait(60)
        hand_over("slow")

    def quick(hand_over: Callable[[str], None]) -> None:
        hand_over("quick")
        other_row_done.set()

    assert list(ThreadWorkers().run([[slow], [quick]], 1)) == ["quick", "slow"]


def test_what_work_raises_ends_the_run() -> None:
    """A mistake of ours would be swallowed, and the broker start without some of its logs."""

    def broken(_: Callable[[int], None]) -> None:
        raise AssertionError("a mistake")

    with pytest.raises(AssertionError, match="a mistake"):
        list(ThreadWorkers().run([[broken]], 2))
