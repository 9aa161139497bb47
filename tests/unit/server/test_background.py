"""Blocking work on threads: its outcome comes back to the loop, exactly once."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from unittest.mock import ANY

import pytest

from odradek.background import InlineBackground, SlicedRound, note_refusal, note_refusals
from odradek.errors import BrokerError, ErrorCode
from odradek.server.background import ThreadPoolBackground, ThreadWorkers


def test_outcomes_come_back_to_the_loops_thread() -> None:
    """Goal: floors that use the port need no locks."""

    async def main() -> None:
        background = ThreadPoolBackground(asyncio.get_running_loop(), pytest.fail)
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
        background = ThreadPoolBackground(loop, pytest.fail)
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
        background = ThreadPoolBackground(loop, pytest.fail)
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


class Outcome:
    """The outcome of one piece of work on one port."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.errors: list[BaseException] = []
        self.broken: list[AssertionError] = []


def inline_outcome(work: Callable[[], object], on_done: Callable[[object], None]) -> Outcome:
    """Of `InlineBackground`, whose caller gets the assertion that would end a broker."""
    outcome = Outcome()
    try:
        InlineBackground().submit(
            work,
            lambda result: (outcome.done.append(result), on_done(result))[1],
            outcome.errors.append,
        )
    except AssertionError as error:
        outcome.broken.append(error)
    return outcome


def threaded_outcome(work: Callable[[], object], on_done: Callable[[object], None]) -> Outcome:
    """Of the thread pool, drained and closed."""
    outcome = Outcome()

    async def main() -> None:
        background = ThreadPoolBackground(asyncio.get_running_loop(), outcome.broken.append)
        background.submit(
            work,
            lambda result: (outcome.done.append(result), on_done(result))[1],
            outcome.errors.append,
        )
        await background.drain()
        background.close()

    asyncio.run(main())
    return outcome


BOTH = pytest.mark.parametrize("outcome_of", [inline_outcome, threaded_outcome])
OutcomeOf = Callable[[Callable[[], object], Callable[[object], None]], Outcome]


@BOTH
@pytest.mark.parametrize(
    "error",
    [OSError("disk"), TypeError("ours"), KeyError("ours"), AssertionError("two and two")],
    ids=lambda error: type(error).__name__,
)
def test_exactly_one_callback_comes_whatever_the_work_raises(
    outcome_of: OutcomeOf, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """A log that is being flushed, or a store that is busy, would stay so for ever."""

    def work() -> None:
        raise error

    outcome = outcome_of(work, pytest.fail)
    assert (outcome.done, outcome.errors) == ([], [error])
    assert outcome.broken == ([error] if isinstance(error, AssertionError) else [])
    logged = [record.exc_info for record in caplog.records]
    assert logged == ([] if isinstance(error, OSError) else [(type(error), error, ANY)])


@BOTH
def test_work_that_succeeds_calls_back_once(outcome_of: OutcomeOf) -> None:
    """The two ports would differ where tests use the one and brokers the other."""
    outcome = outcome_of(lambda: 7, lambda _: None)
    assert (outcome.done, outcome.errors, outcome.broken) == ([7], [], [])


@BOTH
def test_an_assertion_of_a_callback_ends_the_broker(outcome_of: OutcomeOf) -> None:
    """It would be a line in the log, and the broker go on with state that is not true."""

    def on_done(_: object) -> None:
        raise AssertionError("two and two")

    outcome = outcome_of(lambda: 7, on_done)
    assert [str(error) for error in outcome.broken] == ["two and two"]
    assert (outcome.done, outcome.errors) == ([7], [])


def test_a_callback_that_raises_is_logged_and_ends_its_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A stop would wait for ever for work that has ended."""

    def on_done(_: object) -> None:
        raise KeyError("ours")

    assert threaded_outcome(lambda: 7, on_done).broken == []
    assert "KeyError: 'ours'" in caplog.text


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


def test_a_round_that_is_under_way_is_not_begun_again() -> None:
    """Rounds that take longer than their interval would become ever more."""
    later: list[Callable[[], None]] = []
    done: list[int] = []
    ends: list[str] = []
    walk = SlicedRound(lambda: [1, 2, 3], done.append, 2, later.append, lambda: ends.append("end"))
    walk.begin()
    walk.begin()
    assert (done, ends) == ([1, 2], [])
    later.pop(0)()
    while later:
        later.pop(0)()
    assert (done, ends) == ([1, 2, 3], ["end"])
    walk.begin()
    assert done == [1, 2, 3, 1, 2]


def test_what_nobody_waits_for_says_why_it_was_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Fails when housekeeping that is refused for hours leaves no trace, or success leaves one."""
    with caplog.at_level("INFO", "odradek.background"):
        note_refusal("tokens are removed later", None)
        note_refusal("tokens are removed later", [1])
        assert caplog.messages == []
        note_refusal("tokens are removed later", BrokerError(ErrorCode.NOT_CONTROLLER))
    (message,) = caplog.messages
    assert message.startswith("tokens are removed later: NOT_CONTROLLER")


def test_many_refusals_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A controller that is deposed would log each of a hundred thousand partitions."""
    gone, full = BrokerError(ErrorCode.NOT_CONTROLLER), BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
    with caplog.at_level("INFO", "odradek.background"):
        note_refusals("leaderships that go back later", ["done", None])
        assert caplog.messages == []
        note_refusals("leaderships that go back later", ["done", gone, full, gone])
    told = "leaderships that go back later: 2 NOT_CONTROLLER, 1 KAFKA_STORAGE_ERROR"
    assert caplog.messages == [told]
