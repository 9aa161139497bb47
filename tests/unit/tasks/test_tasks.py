"""Tasks over a broker in this process, on a clock that the test moves."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

import odradek
from odradek.clock import ManualClock
from odradek.tasks import App, DelaysUnsupported, TaskFailed

HOUR_MS = 3_600_000


class Tried:
    """Tells how often a task was run, and lets the test wait for the next time."""

    def __init__(self) -> None:
        self.arguments: list[object] = []
        self._news = asyncio.Condition()

    async def note(self, argument: object) -> None:
        async with self._news:
            self.arguments.append(argument)
            self._news.notify_all()

    async def wait(self, count: int) -> list[object]:
        async with self._news:
            await self._news.wait_for(lambda: len(self.arguments) >= count)
        return self.arguments


Test = Callable[[odradek.Broker, ManualClock, App, Tried], Awaitable[None]]


@asynccontextmanager
async def working(app: App) -> AsyncIterator[None]:
    async with app:
        worker = asyncio.create_task(app.work(max_poll_interval_ms=600_000))
        try:
            yield
        finally:
            worker.cancel()
            await asyncio.wait([worker])


def run(test: Test) -> None:
    """The broker has a thread of its own, the clients and workers have the test's."""
    clock = ManualClock()
    with odradek.Broker(clock=clock) as broker:

        async def whole() -> None:
            app = App(broker.bootstrap_servers, "billing", rng=random.Random(1))
            await asyncio.wait_for(test(broker, clock, app, Tried()), 60)

        asyncio.run(whole())


def test_a_task_is_run_and_gives_back():
    """Fails when a call does not reach a worker, or its result not the caller."""

    async def test(broker, clock, app, tried):
        @app.task()
        def add(one: int, *, other: int) -> int:
            return one + other

        @app.task()
        async def add_later(one: int, other: int) -> int:
            return one + other

        async with working(app):
            assert await add.call(1, other=2) == 3
            results = await asyncio.gather(*(add_later.call(each, 1) for each in range(5)))
            assert results == [1, 2, 3, 4, 5]
        assert add(1, other=2) == 3
        assert app._results._waiting == {}

    run(test)


def test_who_leaves_an_app_lets_the_others_go_on():
    """Fails when of two callers in one process the first to be done takes the other's producer, or
    has it cancelled while it waits for a result."""

    async def test(broker, clock, app, tried):
        may_end = asyncio.Event()

        @app.task()
        async def charge(order: str) -> str:
            await tried.note(order)
            await may_end.wait()
            return order

        async def buy(order: str) -> str:
            async with app:
                return await charge.call(order)

        async with app:
            worker = asyncio.create_task(app.work())
            bought = asyncio.create_task(buy("4711"))
            await tried.wait(1)
            async with app:
                await charge.send("4712")
            may_end.set()
            assert await bought == "4711"
            await charge.send("4713")
            await tried.wait(3)
            worker.cancel()
            await asyncio.wait([worker])
        with pytest.raises(RuntimeError, match="is not started"):
            await charge.send("4714")

    run(test)


def test_a_coroutine_function_in_a_plain_one_is_run():
    """Fails when the call of a decorated task is committed and nothing was done."""

    async def test(broker, clock, app, tried):
        async def charge(order: str) -> str:
            await tried.note(order)
            return "paid"

        charged = app.task(name="charge")(lambda order: charge(order))
        async with working(app):
            await charged.send("4711")
            assert await charged.call("4712") == "paid"
        assert tried.arguments == ["4711", "4712"]

    run(test)


def test_a_task_that_has_nothing_next_fails_like_any_other():
    """Fails when a StopIteration on a thread stops the worker for ever."""

    async def test(broker, clock, app, tried):
        @app.task()
        def first(orders: list[str]) -> str:
            return next(iter(orders))

        async with working(app):
            with pytest.raises(TaskFailed, match="StopIteration"):
                await first.call([])
            assert await first.call(["4711"]) == "4711"

    run(test)


def test_a_task_whose_work_is_cancelled_fails_like_any_other():
    """Fails when the worker takes it for its own end: every worker then ends without a word."""

    async def test(broker, clock, app, tried):
        @app.task()
        async def charge(is_there: bool) -> str:
            bank = asyncio.create_task(asyncio.sleep(0))
            if not is_there:
                bank.cancel()
            await bank
            return "paid"

        async with app:
            worker = asyncio.create_task(app.work())
            result = asyncio.create_task(charge.call(False))
            await asyncio.wait([worker, result], return_when=asyncio.FIRST_COMPLETED)
            assert not worker.done()
            with pytest.raises(TaskFailed, match="was cancelled"):
                await result
            assert await charge.call(True) == "paid"
            worker.cancel()
            await asyncio.wait([worker])
            assert worker.cancelled()

    run(test)


def test_what_raises_is_tried_again_later_each_time():
    """Fails when retries come at once, come too often, or not until they succeed."""

    async def test(broker, clock, app, tried):
        @app.task(retries=3, delay=timedelta(hours=1))
        async def charge(order: str) -> str:
            await tried.note(clock.wall_ms())
            if len(tried.arguments) < 3:
                raise ValueError("no")
            return "paid"

        start_ms = clock.wall_ms()
        async with working(app):
            result = asyncio.create_task(charge.call("4711"))
            for attempt, hours in enumerate((1, 2)):
                await tried.wait(attempt + 1)
                await broker.wait_for_async("billing.later", attempt + 1)
                clock.advance(hours * HOUR_MS - 1)
                assert len(tried.arguments) == attempt + 1
                clock.advance(1)
            assert await result == "paid"
        assert [each - start_ms for each in tried.arguments] == [0, HOUR_MS, 3 * HOUR_MS]
        assert broker.records("billing.dead") == []

    run(test)


def test_what_fails_for_good_is_put_aside():
    """Fails when it is lost, or holds up what comes after it."""

    async def test(broker, clock, app, tried):
        @app.task(retries=1, backoff="constant", delay=timedelta(seconds=1))
        async def charge(order: str) -> None:
            await tried.note(order)
            raise ValueError(f"no such order: {order}")

        @app.task()
        def unserializable() -> object:
            return object()

        async with working(app):
            result = asyncio.create_task(charge.call("4711"))
            await broker.wait_for_async("billing.later", 1)
            clock.advance(1000)
            with pytest.raises(TaskFailed, match="ValueError: no such order: 4711"):
                await result
            with pytest.raises(TaskFailed, match="not JSON serializable"):
                await unserializable.call()
            await broker.produce_async("billing", "nonsense")
            await broker.produce_async("billing", '{"id": "1", "task": "unknown", "args": []}')
            dead = await broker.wait_for_async("billing.dead", 4)
        errors = [dict(each.headers)["error"].decode() for each in dead]
        assert [each.split(":")[0] for each in errors] == [
            "ValueError",
            "TypeError",
            "not a call",
            "there is no task 'unknown'",
        ]
        assert json.loads(dead[0].value)["args"] == ["4711"]

    run(test)


def test_what_is_too_large_fails_like_anything_else():
    """Fails when a result or an error that is no record's size ends the worker, again and again."""

    async def test(broker, clock, app, tried):
        @app.task()
        def large_result() -> str:
            return "x" * 2_000_000

        @app.task()
        def large_error() -> None:
            raise ValueError("x" * 2_000_000)

        @app.task()
        def fine() -> int:
            return 1

        async with working(app):
            with pytest.raises(TaskFailed, match="RecordTooLarge"):
                await large_result.call()
            with pytest.raises(TaskFailed, match=r"ValueError: x{900}"):
                await large_error.call()
            assert await fine.call() == 1

    run(test)


@pytest.mark.parametrize(
    "value",
    [
        '{"id": "1", "task": "fine", "args": ' + "[" * 20_000 + "]" * 20_000 + "}",
        '{"id": "\\ud800", "task": "fine", "args": [], "wants_result": true}',
        '{"' + "x" * 600_000 + '": 1}',
        '{"id": "1", "task": "' + "x" * 600_000 + '", "args": []}',
        '{"id": "1", "task": "fails", "args": ["' + "x" * 1_048_300 + '"]}',
    ],
    ids=["deep", "no id", "long name", "long task", "full"],
)
def test_no_record_ends_the_workers(value):
    """Fails when a record that cannot be put aside ends every worker that is given it."""

    async def test(broker, clock, app, tried):
        @app.task()
        def fails(text: str) -> None:
            raise ValueError("no " * 100)

        @app.task()
        def fine() -> int:
            return 1

        async with app:
            worker = asyncio.create_task(app.work())
            await broker.produce_async("billing", value)
            result = asyncio.create_task(fine.call())
            await asyncio.wait([worker, result], return_when=asyncio.FIRST_COMPLETED)
            assert not worker.done(), worker.exception()
            assert await result == 1
            worker.cancel()
            await asyncio.wait([worker])
        [dead] = broker.records("billing.dead")
        # What cannot be put aside stays where it was, and the header tells where.
        assert dead.value in (value.encode(), None)
        is_kept = dead.value is not None
        assert is_kept != dict(dead.headers)["error"].startswith(b"too large to be put aside")

    run(test)


def test_a_retry_that_is_refused_for_good_is_none():
    """Fails when a delay that the topic does not take ends every worker."""

    async def test(broker, clock, app, tried):
        @app.task(retries=1, delay=timedelta(hours=1))
        def charge(order: str) -> None:
            raise ValueError("no such order")

        broker.create_topic("billing")
        config = {"schedule.target.topic": "billing", "schedule.max.delay.ms": "1000"}
        broker.create_topic("billing.later", config=config)
        async with app:
            worker = asyncio.create_task(app.work())
            result = asyncio.create_task(charge.call("4711"))
            await asyncio.wait([worker, result], return_when=asyncio.FIRST_COMPLETED)
            with pytest.raises(TaskFailed, match=r"no retry: .*; ValueError: no such order"):
                await result
            worker.cancel()
            await asyncio.wait([worker])

    run(test)


def test_calls_are_put_off_replaced_and_cancelled():
    """Fails when a call is early, or comes though another took its place."""

    async def test(broker, clock, app, tried):
        @app.task()
        async def remind(text: str) -> None:
            await tried.note(text)

        async with working(app):
            await remind.options(countdown="1h", id="a").send("replaced")
            await remind.options(countdown="2h", id="a").send("two hours")
            await remind.options(countdown=timedelta(minutes=5), id="b").send("cancelled")
            await remind.options(eta=clock.wall_ms() + HOUR_MS).send("one hour")
            await app.cancel("b")
            clock.advance(HOUR_MS - 1)
            assert len(broker.records("billing")) == 0
            clock.advance(1)
            await tried.wait(1)
            clock.advance(HOUR_MS)
            assert await tried.wait(2) == ["one hour", "two hours"]

    run(test)


def test_a_task_that_repeats():
    """Fails when an occurrence is left out, a retry ends the repetition, or it cannot be ended."""

    async def test(broker, clock, app, tried):
        @app.task(retries=1, delay=timedelta(minutes=1))
        async def report(day: str) -> None:
            await tried.note(day)
            if len(tried.arguments) == 1:
                raise ValueError("not yet")

        async with working(app):
            assert await report.options(repeat="@every 1h").send("today") == "report"
            with pytest.raises(ValueError, match="repeats"):
                await report.options(repeat="@every 1h").call("today")
            clock.advance(HOUR_MS)
            await broker.wait_for_async("billing.later", 2)
            assert len(broker.schedules("billing.later")) == 2
            clock.advance(60_000)
            await tried.wait(2)
            clock.advance(HOUR_MS - 60_000)
            await tried.wait(3)
            await app.cancel("report")
            assert broker.schedules("billing.later") == []

    run(test)


def test_several_wait_for_the_result_of_one_id():
    """Fails when the call that another took the place of waits for ever, or one that has given up
    takes the result from who still waits."""

    async def test(broker, clock, app, tried):
        @app.task()
        async def remind(text: str) -> str:
            return text

        async with working(app):
            calls = []
            for count, text in enumerate(("given up", "replaced", "told")):
                put_off = remind.options(countdown="1h", id="a")
                calls.append(asyncio.create_task(put_off.call(text)))
                await broker.wait_for_async("billing.later", count + 1)
            calls[0].cancel()
            await asyncio.wait(calls[:1])
            clock.advance(HOUR_MS)
            assert await asyncio.gather(*calls[1:]) == ["told", "told"]
        assert app._results._waiting == {}

    run(test)


def test_a_call_that_the_function_does_not_take_is_not_sent():
    """Fails when a mistake of the caller is found hours later by a worker."""

    async def test(broker, clock, app, tried):
        @app.task()
        def charge(order: str) -> None: ...

        with pytest.raises(RuntimeError, match="is not started"):
            await charge.send("4711")
        async with app:
            with pytest.raises(TypeError, match="cents"):
                await charge.send("4711", cents=5)
            with pytest.raises(TypeError, match="JSON"):
                await charge.send(object())
        assert broker.records("billing") == []

    run(test)


def test_a_broker_without_scheduled_delivery_is_told():
    """Fails when a call that was put off is never run, and nobody has said so."""

    async def test(broker, clock, app, tried):
        # What a broker does not know to deliver later is a topic like any other.
        broker.create_topic("billing.later")

        @app.task()
        def charge(order: str) -> str:
            return order

        async with working(app):
            with pytest.raises(DelaysUnsupported, match="charge cannot be put off"):
                await charge.options(countdown="1s").send("4711")
            assert await charge.call("4711") == "4711"

        app.task(name="again", retries=1)(lambda: None)
        with pytest.raises(DelaysUnsupported, match="again cannot be retried"):
            await app.start()

    run(test)


def test_a_worker_that_dies_has_its_call_run_again():
    """Fails when a call is committed before it was run."""

    async def test(broker, clock, app, tried):
        @app.task()
        async def charge(order: str) -> str:
            await tried.note(order)
            if len(tried.arguments) == 1:
                await asyncio.Event().wait()
            return order

        async with app:
            worker = asyncio.create_task(app.work())
            result = asyncio.create_task(charge.call("4711"))
            await tried.wait(1)
            worker.cancel()
            await asyncio.wait([worker])
            worker = asyncio.create_task(app.work())
            assert await result == "4711"
            worker.cancel()
            await asyncio.wait([worker])

    run(test)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"backoff": "fibonacci"}, "backoff is one of"),
        ({"retries": -1}, "0 or more"),
        ({"delay": timedelta(0)}, "longer than nothing"),
    ],
)
def test_retries_that_make_no_sense(settings, why):
    """Fails when a mistake is found only when a task raises."""
    app = App("localhost:1", "billing")
    with pytest.raises(ValueError, match=why):
        app.task(**settings)(print)


def test_names_are_given_once():
    """Fails when a task takes the calls of another."""
    app = App("localhost:1", "billing")
    app.task(name="a")(print)
    with pytest.raises(ValueError, match="already"):
        app.task(name="a")(print)


def test_delays_double_up_to_a_bound():
    """Fails when the hundredth retry waits for centuries, or takes as long to compute."""
    task = App("localhost:1", "billing").task(retries=10**9)(print)
    delays = [task.retries.delay_after(attempt) for attempt in (0, 1, 2, 11, 12, 10**9)]
    assert [each.total_seconds() for each in delays] == [1, 2, 4, 2048, 3600, 3600]
