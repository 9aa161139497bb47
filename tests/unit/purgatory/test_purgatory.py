"""Delayed operations and the purgatory: exactly one completion, none lost (R3, R4)."""

import gc
import weakref
from collections.abc import Callable

import pytest

from odradek.purgatory import (
    DelayedOperation,
    DelayedOperationPurgatory,
    ExpiredOperationReaper,
    WaitingOperation,
)
from odradek.timer import MockTimer, TimerTask


class Waiting(DelayedOperation):
    """An operation whose condition a test sets, and which notes what happens to it."""

    def __init__(self, delay_ms: int = 1000, ready: bool = False) -> None:
        super().__init__(delay_ms)
        self.ready = ready
        self.events: list[str] = []
        self.on_try: Callable[[], object] | None = None

    def try_complete(self) -> bool:
        if self.on_try is not None:
            self.on_try()
        return self.force_complete() if self.ready else False

    def on_complete(self) -> None:
        self.events.append("complete")

    def on_expiration(self) -> None:
        self.events.append("expired")

    def missing(self) -> str:
        return "the test's leave"


class Hall:
    """A purgatory over a timer that the test moves."""

    def __init__(self, **options: object) -> None:
        self.timer = MockTimer()
        self.purgatory = DelayedOperationPurgatory("test", self.timer, **options)  # type: ignore[arg-type]

    def watch(self, *keys: str, delay_ms: int = 1000, ready: bool = False) -> Waiting:
        operation = Waiting(delay_ms, ready)
        self.purgatory.try_complete_else_watch(operation, keys)
        return operation


@pytest.fixture
def hall() -> Hall:
    return Hall()


def test_an_operation_whose_condition_holds_never_waits(hall: Hall) -> None:
    """An answer that is there already would be late by a wake-up."""
    operation = Waiting(ready=True)
    assert hall.purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.events == ["complete"]
    assert (hall.purgatory.watched, hall.purgatory.delayed, hall.timer.size) == (0, 0, 0)
    assert hall.purgatory.stats.completed_at_once == 1


def test_a_check_completes_in_the_order_of_watching(hall: Hall) -> None:
    """Requests that waited longer are answered first."""
    order: list[int] = []
    operations = [hall.watch("a") for _ in range(3)]
    for i, operation in enumerate(operations):
        operation.ready = i != 1
        operation.on_try = lambda i=i: order.append(i)  # type: ignore[misc]
    assert hall.purgatory.check_and_complete("a") == 2
    assert order == [0, 1, 2]
    assert [one.is_completed for one in operations] == [True, False, True]
    assert (hall.purgatory.watched, hall.purgatory.delayed, hall.timer.size) == (1, 1, 1)


def test_a_check_of_several_keys_tries_everything_once(hall: Hall) -> None:
    """A fetch of a thousand partitions would be tried a thousand times when all have changed."""
    tries: list[str] = []
    many, one, other = hall.watch("a", "b", "c"), hall.watch("b"), hall.watch("d")
    for name, operation in (("many", many), ("one", one), ("other", other)):
        operation.on_try = lambda name=name: tries.append(name)  # type: ignore[misc]
    assert hall.purgatory.check_all_and_complete(["a", "b", "c", "nobody's"]) == 0
    assert tries == ["many", "one"]
    many.ready = one.ready = True
    assert hall.purgatory.check_all_and_complete(["a", "b"], "role") == 2
    assert (many.events, one.events, other.events) == (["complete"], ["complete"], [])
    assert hall.purgatory.stats.completed_by_check == {"role": 2}
    assert hall.purgatory.check_all_and_complete(["c"]) == 0
    assert (hall.purgatory.watched, hall.purgatory.delayed) == (1, 1)
    assert hall.purgatory.check_all_and_complete([]) == 0


def test_a_check_of_an_unknown_key_completes_nothing(hall: Hall) -> None:
    """Most appends wake nobody; they must cost nothing and leave nothing."""
    assert hall.purgatory.check_and_complete("nobody") == 0


def test_a_time_out_completes_first_and_expires_then(hall: Hall) -> None:
    """The answer of an expired request is sent by `on_complete`, like any other."""
    operation = hall.watch("a", delay_ms=20)
    hall.timer.advance_clock(19)
    assert operation.events == []
    hall.timer.advance_clock(1)
    assert operation.events == ["complete", "expired"]
    assert operation.is_completed
    assert hall.purgatory.delayed == 0
    assert hall.purgatory.stats.expired == 1


def test_completing_takes_the_operation_out_of_the_timer(hall: Hall) -> None:
    """Completed requests would pile up until their time-outs."""
    operation = hall.watch("a", delay_ms=20)
    operation.ready = True
    assert hall.purgatory.check_and_complete("a") == 1
    assert hall.timer.size == 0
    hall.timer.advance_clock(100)
    assert operation.events == ["complete"]


def test_force_complete_answers_true_once(hall: Hall) -> None:
    """Two winners would answer one request twice."""
    operation = hall.watch("a")
    assert operation.force_complete()
    assert not operation.force_complete()
    assert operation.events == ["complete"]


def test_what_is_complete_is_dropped_without_being_counted(hall: Hall) -> None:
    """The count says what *this* call completed."""
    first = hall.watch("a", "b")
    second = hall.watch("a", "b", "c")
    assert (hall.purgatory.watched, hall.purgatory.delayed) == (5, 2)
    first.ready = True
    assert hall.purgatory.check_and_complete("b") == 1
    assert (hall.purgatory.watched, hall.purgatory.delayed) == (4, 1)
    assert hall.purgatory.check_and_complete("a") == 0
    assert hall.purgatory.watched == 3
    second.force_complete()
    assert hall.purgatory.check_and_complete("c") == 0
    assert hall.purgatory.watched == 2


def test_an_empty_list_of_keys_is_an_error(hall: Hall) -> None:
    """No event could ever wake the operation."""
    operation = Waiting(ready=True)
    with pytest.raises(ValueError, match="at least one key"):
        hall.purgatory.try_complete_else_watch(operation, [])
    assert operation.events == []


def test_keys_may_be_anything_hashable(hall: Hall) -> None:
    """Partitions, groups and members wait in purgatories of the same class."""
    operation = Waiting()
    hall.purgatory.try_complete_else_watch(operation, [("orders", 0), 7, None])
    operation.ready = True
    assert hall.purgatory.check_and_complete(None) == 1


def test_the_condition_is_tried_again_after_watching(hall: Hall) -> None:
    """An event between the first try and the watching would never wake the operation."""
    operation = Waiting()
    tries: list[int] = []

    def hold_at_the_second_try() -> None:
        tries.append(1)
        operation.ready = len(tries) == 2

    operation.on_try = hold_at_the_second_try
    assert hall.purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert operation.events == ["complete"]
    assert hall.timer.size == 0
    assert hall.purgatory.delayed == 0


def test_an_operation_that_others_complete_meanwhile_is_not_timed(hall: Hall) -> None:
    """It would stay in the timer, complete, until its time-out."""
    operation = Waiting()
    tries: list[int] = []

    def others_complete_it() -> None:
        tries.append(1)
        if len(tries) == 2:
            operation.force_complete()

    operation.on_try = others_complete_it
    assert not hall.purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.events == ["complete"]
    assert (hall.timer.size, hall.purgatory.delayed) == (0, 0)


def test_an_operation_completed_while_it_is_put_into_the_timer_leaves_it() -> None:
    """Another thread may win at any moment; what it completed must not wait for its time-out."""

    class RacingTimer(MockTimer):
        def add(self, task: TimerTask) -> None:
            assert isinstance(task, Waiting)
            task.force_complete()
            super().add(task)

    timer = RacingTimer()
    purgatory = DelayedOperationPurgatory("test", timer)
    operation = Waiting()
    assert not purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.events == ["complete"]
    assert (timer.size, purgatory.delayed) == (0, 0)


def test_watching_stops_when_the_operation_completes_on_the_way(hall: Hall) -> None:
    """Every further list would hold a completed operation until a purge."""
    operation = Waiting()

    class Key:
        """A key whose use completes the operation, as another thread might."""

        def __hash__(self) -> int:
            operation.force_complete()
            return 1

    assert not hall.purgatory.try_complete_else_watch(operation, ["a", Key(), "b"])
    assert hall.purgatory.watched == 2
    assert hall.purgatory.check_and_complete("b") == 0
    hall.purgatory.purge()
    assert (hall.purgatory.watched, hall.purgatory.delayed) == (0, 0)
    assert hall.timer.size == 0


def test_no_time_at_all_expires_at_once(hall: Hall) -> None:
    """A fetch that does not want to wait is answered by its time-out, in the same call."""
    operation = hall.watch("a", delay_ms=0)
    assert operation.events == ["complete", "expired"]
    assert (hall.timer.size, hall.purgatory.delayed) == (0, 0)


def test_a_completed_operation_is_not_watched(hall: Hall) -> None:
    """It was completed before it was handed in; nobody is left to wait for it."""
    operation = Waiting()
    operation.force_complete()
    assert not hall.purgatory.try_complete_else_watch(operation, ["a"])
    assert (hall.purgatory.watched, hall.purgatory.delayed, hall.timer.size) == (0, 0, 0)


def test_no_key_outlives_its_operations(hall: Hall) -> None:
    """A broker sees millions of keys; each leaked list is memory that never comes back."""
    for i in range(100):
        hall.watch(f"key{i}").ready = True
        hall.purgatory.check_and_complete(f"key{i}")
    assert hall.purgatory._watchers == {}
    for i in range(100):
        hall.watch(f"key{i}", delay_ms=5)
    hall.timer.advance_clock(5)
    hall.purgatory.purge()
    assert hall.purgatory._watchers == {}
    assert hall.purgatory.watched == 0


def test_a_purge_comes_when_the_completed_outnumber_limit_and_pending() -> None:
    """Purging more often walks over waiting operations for nothing; rarer keeps garbage."""
    hall = Hall(purge_interval=10)
    pending = [hall.watch("a") for _ in range(20)]
    for _ in range(20):
        hall.watch("a").force_complete()
    hall.watch("a").force_complete()
    assert hall.purgatory.watched == 41
    last = hall.watch("a")
    assert hall.purgatory.watched == 42
    assert (hall.purgatory.delayed, len(pending)) == (21, 20)
    last.force_complete()
    hall.watch("a")
    assert hall.purgatory.watched == 21


@pytest.mark.parametrize("amortised", [True, False])
def test_time_outs_are_purged_though_nothing_is_watched_any_more(amortised: bool) -> None:
    """Clients that go away all at once would leave their requests in memory for good."""
    hall = Hall(purge_interval=10, amortised_purge=amortised)
    for i in range(100):
        hall.watch(f"key{i}", delay_ms=5)
    hall.timer.advance_clock(5)
    assert (hall.purgatory.delayed, hall.purgatory.stats.expired) == (0, 100)
    assert len(hall.purgatory._watchers) == hall.purgatory.watched <= 11


def test_what_one_key_completes_is_purged_from_the_others() -> None:
    """An operation waits under many keys, and perhaps nothing ever happens under the rest."""
    hall = Hall(purge_interval=10)
    for i in range(100):
        hall.watch("a", f"key{i}").ready = True
    assert hall.purgatory.check_and_complete("a") == 100
    assert hall.purgatory.watched == 0


def test_the_published_rule_purges_by_its_estimate() -> None:
    """It is selectable so that it can be measured and compared."""
    hall = Hall(purge_interval=10, amortised_purge=False)
    for _ in range(20):
        hall.watch("a")
    for _ in range(10):
        hall.watch("a").force_complete()
    assert hall.purgatory.watched == 30
    hall.watch("a").force_complete()
    assert hall.purgatory.watched == 31
    hall.watch("a")
    assert hall.purgatory.watched == 21
    hall.watch("a").force_complete()
    hall.watch("a")
    assert hall.purgatory.watched == 23, "after a purge the estimate starts again"


def test_without_a_reaper_purging_is_left_to_the_caller() -> None:
    """Tests and unusual owners decide themselves."""
    hall = Hall(purge_interval=0, reaper_enabled=False)
    for _ in range(5):
        hall.watch("a").force_complete()
    assert hall.purgatory.watched == 5
    assert hall.purgatory.maybe_purge()
    assert hall.purgatory.watched == 0


def test_the_reaper_expires_and_purges() -> None:
    """A program without an event loop needs somebody to do both."""
    hall = Hall(purge_interval=2)
    operations = [hall.watch("a", delay_ms=150) for _ in range(3)]
    assert ExpiredOperationReaper(hall.purgatory).do_work()
    assert all(one.events == ["complete", "expired"] for one in operations)
    assert hall.purgatory.watched == 0


def test_the_reaper_purges_what_others_have_completed() -> None:
    """Other threads complete, and purge nothing; perhaps nothing expires any more."""
    hall = Hall(purge_interval=2)
    for operation in [hall.watch("a") for _ in range(3)]:
        operation.force_complete()
    assert hall.purgatory.watched == 3
    assert not ExpiredOperationReaper(hall.purgatory).do_work()
    assert hall.purgatory.watched == 0


def test_checking_from_on_complete(hall: Hall) -> None:
    """A completed produce wakes fetches, which wake others; the lists must survive that."""
    first, second = hall.watch("a"), hall.watch("a")
    first.ready = True
    counted: list[int] = []

    def wake_the_second() -> None:
        first.events.append("complete")
        second.ready = True
        counted.append(hall.purgatory.check_and_complete("a"))
        hall.watch("a")

    first.on_complete = wake_the_second  # type: ignore[method-assign]
    assert hall.purgatory.check_and_complete("a") == 1
    assert counted == [1]
    assert first.events == ["complete"]
    assert second.events == ["complete"]
    assert hall.purgatory.watched == 1
    assert hall.purgatory.delayed == 1


def test_a_check_ends_though_every_completion_watches_another_operation(hall: Hall) -> None:
    """Clients that ask again at once would hold the loop in one check for ever."""
    watched: list[Waiting] = []

    def watch_another() -> None:
        if len(watched) < 100:
            operation = hall.watch("a")
            operation.ready = True
            operation.on_complete = watch_another  # type: ignore[method-assign]
            watched.append(operation)

    watch_another()
    assert hall.purgatory.check_and_complete("a") == 1
    assert (len(watched), hall.purgatory.delayed) == (2, 1)
    assert hall.purgatory.check_and_complete("a") == 1


def test_a_completion_that_arrives_during_a_check_is_not_lost(hall: Hall) -> None:
    """The check has looked already; who comes now must make it look again."""
    operation = hall.watch("a")
    tries: list[str] = []

    def something_happens_after_the_look() -> None:
        tries.append("look")
        if len(tries) == 1:
            assert not operation.safe_try_complete()
        else:
            operation.ready = True

    operation.on_try = something_happens_after_the_look
    assert hall.purgatory.check_and_complete("a") == 1
    assert len(tries) == 2
    assert operation.events == ["complete"]


def test_an_exception_in_a_condition_leaves_the_operation_checkable(hall: Hall) -> None:
    """A failed look must not block all later ones."""
    operation = hall.watch("a")

    def fail() -> None:
        raise LookupError("no such log")

    operation.on_try = fail
    with pytest.raises(LookupError):
        hall.purgatory.check_and_complete("a")
    operation.on_try = None
    operation.ready = True
    assert hall.purgatory.check_and_complete("a") == 1


def test_waiting_operations_can_be_listed(hall: Hall) -> None:
    """This is what answers "why is this request waiting?"."""
    hall.timer.advance_clock(50)
    late = hall.watch("a", "b", delay_ms=100)
    hall.timer.advance_clock(10)
    hall.watch("b", delay_ms=30)
    done = hall.watch("c")
    done.force_complete()
    assert hall.purgatory.waiting() == [
        WaitingOperation("Waiting", ("a", "b"), 50, 150, "the test's leave"),
        WaitingOperation("Waiting", ("b",), 60, 90, "the test's leave"),
    ]
    assert not late.is_completed


def test_what_waits_longest_is_told_first(hall: Hall) -> None:
    """Whatever the order of the keys; what is stuck would else be looked for among all others."""
    for moment, keys in enumerate(("b", "ac", "b", "a")):
        hall.watch(*keys)
        hall.timer.advance_clock(1)
        assert hall.purgatory.waiting()[-1].since_ms == moment
    hall.watch("a").force_complete()
    assert [one.since_ms for one in hall.purgatory.waiting()] == [0, 1, 2, 3]
    assert sorted(hall.purgatory.waiting_since()) == [0, 1, 2, 3]


def test_a_look_at_what_waits_may_be_interrupted_by_others(hall: Hall) -> None:
    """Such a look goes on over turns of the loop, in which anything may happen."""
    for key in "abc":
        hall.watch(key)
    looking = hall.purgatory.waiting_since()
    assert next(looking) == 0
    hall.watch("d")
    hall.purgatory.shutdown()
    assert list(looking) == []


def test_the_counts_add_up(hall: Hall) -> None:
    """The report of a run says how many waited and what woke them."""
    hall.watch("a", ready=True)
    for _ in range(3):
        hall.watch("a").ready = True
    hall.purgatory.check_and_complete("a", reason="append")
    hall.watch("b", delay_ms=5)
    hall.timer.advance_clock(5)
    hall.watch("b").force_complete()
    hall.watch("b")
    stats = hall.purgatory.stats
    assert stats.watched == 6
    assert stats.completed_at_once == 1
    assert stats.completed_by_check == {"append": 3}
    assert (stats.completed, stats.expired) == (5, 1)
    assert stats.watched == stats.completed + hall.purgatory.delayed


def test_another_thread_hands_its_check_over(hall: Hall) -> None:
    """The owner does the work at its next turn."""
    operation = hall.watch("a")
    operation.ready = True
    hall.purgatory.check_and_complete_threadsafe("a", "elsewhere")
    assert operation.events == []
    hall.timer.advance_clock(0)
    assert operation.events == ["complete"]
    assert hall.purgatory.stats.completed_by_check == {"elsewhere": 1}


def test_a_check_asked_for_many_times_is_made_once(hall: Hall) -> None:
    """Threads that ask faster than the owner checks would else fill its queue without end."""
    operation = hall.watch("a")
    tries: list[str] = []
    operation.on_try = lambda: tries.append("a")
    for _ in range(1000):
        hall.purgatory.check_and_complete_threadsafe("a")
    hall.timer.advance_clock(0)
    assert tries == ["a"]
    hall.purgatory.check_and_complete_threadsafe("a")
    hall.timer.advance_clock(0)
    assert tries == ["a", "a"]


def test_a_check_may_be_made_before_who_hands_it_over_goes_on() -> None:
    """The owner is quicker than the other thread; the next check would be taken for asked for."""

    class QuickTimer(MockTimer):
        def add_threadsafe(self, task: TimerTask) -> None:
            super().add_threadsafe(task)
            self.advance_clock(0)

    purgatory = DelayedOperationPurgatory("test", QuickTimer())
    operation = Waiting()
    tries: list[str] = []
    operation.on_try = lambda: tries.append("a")
    purgatory.try_complete_else_watch(operation, ["a"])
    tries.clear()
    for _ in range(2):
        purgatory.check_and_complete_threadsafe("a")
    assert tries == ["a", "a"]


def test_a_check_asked_for_during_a_check_is_made(hall: Hall) -> None:
    """The event that makes the condition true then was not seen, and would not be looked at
    again."""
    operation = hall.watch("a")

    def hear_after_the_look() -> None:
        operation.on_try = lambda: setattr(operation, "ready", True)
        hall.purgatory.check_and_complete_threadsafe("a")

    operation.on_try = hear_after_the_look
    hall.purgatory.check_and_complete_threadsafe("a")
    hall.timer.advance_clock(0)
    assert operation.events == ["complete"]


def test_shutting_down_forgets_without_completing(hall: Hall) -> None:
    """Connections are closed by then; an answer would go nowhere. Other users keep the timer."""
    operation = hall.watch("a", delay_ms=5)
    hall.purgatory.shutdown()
    assert (hall.purgatory.watched, hall.purgatory.delayed, hall.timer.size) == (0, 0, 0)
    hall.timer.advance_clock(10)
    assert operation.events == []


def test_operations_that_nobody_completes_are_let_go_with_the_purgatory() -> None:
    """Clients that went away without a word, time-outs of years: nothing may keep them then."""
    hall = Hall()
    request = Request()
    alive = weakref.ref(request)
    for i in range(100):
        operation = Waiting(10**12)
        operation.on_try = request.look
        hall.purgatory.try_complete_else_watch(operation, ["a", i])
    del operation, request
    hall.timer.advance_clock(10**9)
    assert (hall.purgatory.delayed, hall.timer.size) == (100, 100)
    gc.disable()
    try:
        hall.purgatory.shutdown()
        assert hall.timer.size == 0
        assert alive() is None
    finally:
        gc.enable()


class Request:
    """An object that an operation refers to, and whose end can be watched."""

    def look(self) -> None: ...


def test_an_exception_on_completion_by_time_out_is_told_once_and_the_rest_goes_on() -> None:
    """One bad answer would hold up every other time-out of its moment."""
    told: list[Exception] = []
    timer = MockTimer(on_error=lambda task, error: told.append(error))
    purgatory = DelayedOperationPurgatory("test", timer)

    class Bad(Waiting):
        def on_complete(self) -> None:
            raise OSError("the connection has gone")

    bad, good = Bad(5), Waiting(5)
    purgatory.try_complete_else_watch(bad, ["a"])
    purgatory.try_complete_else_watch(good, ["a"])
    timer.advance_clock(100)
    assert [type(error) for error in told] == [OSError]
    assert bad.is_completed
    assert good.events == ["complete", "expired"]
    assert (purgatory.delayed, timer.size) == (0, 0)


def test_completing_another_operation_from_on_complete(hall: Hall) -> None:
    """One answer may settle others, under the same key and elsewhere, before it returns."""
    first, second, third = hall.watch("a"), hall.watch("a"), hall.watch("b", delay_ms=5)

    def settle_the_others() -> None:
        second.force_complete()
        third.force_complete()

    first.on_complete = settle_the_others  # type: ignore[method-assign]
    first.ready = True
    assert hall.purgatory.check_and_complete("a") == 1
    assert (second.events, third.events) == (["complete"], ["complete"])
    hall.timer.advance_clock(5000)
    hall.purgatory.purge()
    assert (hall.purgatory.watched, hall.purgatory.delayed, hall.timer.size) == (0, 0, 0)


def test_an_operation_must_say_what_it_does() -> None:
    """A forgotten method would be a request that is never answered."""
    operation = DelayedOperation(5)
    with pytest.raises(NotImplementedError):
        operation.try_complete()
    with pytest.raises(NotImplementedError):
        operation.on_complete()
    with pytest.raises(NotImplementedError):
        operation.on_expiration()
    assert operation.missing() == ""
