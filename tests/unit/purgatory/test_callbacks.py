"""Callbacks of operations that complete, check, add, raise and shut down, to any depth.

What a completion or a condition asks of the purgatory is done in its turn, never on a stack that
grows with the number of operations; and whatever one raises, the others have their turn.
"""

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.timer import MockTimer, TimerTask

DEEP = 3000
"""More than the interpreter's stack holds."""


def nothing() -> None:
    """What a callback does if a test says nothing else."""


class Acting(DelayedOperation):
    """An operation whose three callbacks a test writes."""

    def __init__(self, delay_ms: int = 1000, ready: bool = False) -> None:
        super().__init__(delay_ms)
        self.ready = ready
        self.events: list[str] = []
        self.when_tried: Callable[[], object] = nothing
        self.when_completed: Callable[[], object] = nothing
        self.when_expired: Callable[[], object] = nothing

    def try_complete(self) -> bool:
        self.events.append("look")
        self.when_tried()
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.events.append("complete")
        self.when_completed()

    def on_expiration(self) -> None:
        self.events.append("expired")
        self.when_expired()

    @property
    def looks(self) -> int:
        return self.events.count("look")

    @property
    def completions(self) -> int:
        return self.events.count("complete")


class Hall:
    """A purgatory over a timer that the test moves, and what the timer was told of."""

    def __init__(self) -> None:
        self.told: list[BaseException] = []
        self.timer = MockTimer(on_error=lambda task, error: self.told.append(error))
        self.purgatory = DelayedOperationPurgatory("test", self.timer)

    def watch(self, *keys: object, delay_ms: int = 1000) -> Acting:
        operation = Acting(delay_ms)
        assert not self.purgatory.try_complete_else_watch(operation, keys)
        operation.events.clear()
        return operation

    def is_empty(self) -> bool:
        self.purgatory.purge()
        return (self.purgatory.watched, self.purgatory.delayed, self.timer.size) == (0, 0, 0)


@pytest.fixture
def hall() -> Hall:
    return Hall()


def chained(hall: Hall, step: Callable[[Acting, int], Callable[[], object]]) -> list[Acting]:
    """Operations, each under its number, of which each completion takes the step to the next."""
    chain = [hall.watch(number) for number in range(DEEP)]
    for number, (one, following) in enumerate(pairwise(chain)):
        one.when_completed = step(following, number + 1)
        following.ready = True
    chain[0].ready = True
    return chain


CHAINS = {
    "check": lambda hall: lambda following, key: lambda: hall.purgatory.check_and_complete(key),
    "check several": lambda hall: (
        lambda following, key: lambda: hall.purgatory.check_all_and_complete([key, "nobody's"])
    ),
    "force": lambda hall: lambda following, key: following.force_complete,
    "expire": lambda hall: lambda following, key: lambda: hall.purgatory.expire(key),
}


@pytest.mark.parametrize("step", CHAINS)
def test_each_completion_may_complete_the_next(hall: Hall, step: str) -> None:
    """One append would end in a RecursionError, and leave requests that nobody answers any more."""
    chain = chained(hall, CHAINS[step](hall))
    assert hall.purgatory.check_and_complete(0) == 1
    assert all(one.completions == 1 for one in chain)
    assert hall.is_empty()


def test_each_completion_may_complete_the_next_without_a_purgatory() -> None:
    """An operation that was never watched is completed by the same rules."""
    chain = [Acting() for _ in range(DEEP)]
    for one, following in pairwise(chain):
        one.when_completed = following.force_complete
    assert chain[0].force_complete()
    assert all(one.events == ["complete"] for one in chain)


def test_a_chain_may_go_through_several_purgatories(hall: Hall) -> None:
    """An append completes a produce, that a fetch, and that a group's rebalance."""
    other = DelayedOperationPurgatory("other", hall.timer)
    chain = [Acting() for _ in range(DEEP)]
    halls = [hall.purgatory, other]
    for number, one in enumerate(chain):
        purgatory, following = halls[number % 2], halls[(number + 1) % 2]
        purgatory.try_complete_else_watch(one, [number])
        one.ready = True
        one.when_completed = lambda number=number, following=following: (  # type: ignore[misc]
            following.check_and_complete(number + 1)
        )
    hall.purgatory.check_and_complete(0)
    assert all(one.completions == 1 for one in chain)


def test_each_completion_may_hand_in_another_operation(hall: Hall) -> None:
    """Clients that are answered ask again, and are answered at once."""
    handed_in: list[Acting] = []

    def hand_in() -> None:
        if len(handed_in) < DEEP:
            operation = Acting(ready=True)
            operation.when_completed = hand_in
            handed_in.append(operation)
            assert hall.purgatory.try_complete_else_watch(operation, ["a"])

    hand_in()
    assert all(one.completions == 1 for one in handed_in)
    assert len(handed_in) == hall.purgatory.stats.completed_at_once == DEEP


@pytest.mark.parametrize("callback", ["when_completed", "when_expired"])
def test_each_time_out_may_hand_in_another_that_has_no_time(hall: Hall, callback: str) -> None:
    """A request that does not want to wait, made when another has given up."""
    handed_in: list[Acting] = []

    def hand_in() -> None:
        if len(handed_in) < DEEP:
            operation = Acting(delay_ms=0)
            setattr(operation, callback, hand_in)
            handed_in.append(operation)
            hall.purgatory.try_complete_else_watch(operation, ["a"])

    first = hall.watch("first")
    setattr(first, callback, hand_in)
    hall.purgatory.expire("first")
    hall.timer.advance_clock(0)
    assert [one.events[-2:] for one in handed_in] == [["complete", "expired"]] * DEEP
    assert hall.is_empty()


def test_of_a_chain_that_raises_the_others_run(
    hall: Hall, caplog: pytest.LogCaptureFixture
) -> None:
    """One answer that fails must not keep ten thousand others from being sent."""
    chain = chained(hall, CHAINS["check"](hall))
    onwards = [one.when_completed for one in chain]

    def failing(number: int) -> Callable[[], None]:
        def go_on_and_fail() -> None:
            onwards[number]()
            raise OSError(f"connection {number} has gone")

        return go_on_and_fail

    for number in (1, 5, 7):
        chain[number].when_completed = failing(number)
    with pytest.raises(OSError, match="connection 1 has gone"):
        hall.purgatory.check_and_complete(0)
    assert all(one.completions == 1 for one in chain)
    assert hall.is_empty()
    assert sorted(str(one.exc_info[1]) for one in caplog.records if one.exc_info) == [
        "connection 5 has gone",
        "connection 7 has gone",
    ]


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("keys", [["a"], ["a", "b"]])
def test_a_check_looks_at_all_though_one_raises(
    hall: Hall, failure: type[BaseException], keys: list[str]
) -> None:
    """What waits behind an operation that fails would not hear of the event."""
    first, bad, last = (hall.watch("a") for _ in range(3))
    first.ready = bad.ready = last.ready = True

    def fail() -> None:
        raise failure("gone")

    bad.when_completed = fail
    with pytest.raises(failure):
        hall.purgatory.check_all_and_complete(keys, "append")
    assert [one.completions for one in (first, bad, last)] == [1, 1, 1]
    assert hall.purgatory.stats.completed_by_check == {"append": 2}
    assert hall.purgatory.watched == 0
    assert hall.is_empty()


def test_a_broken_invariant_is_raised_before_anything_else(hall: Hall) -> None:
    """The broker ends for it; hidden behind a connection that has gone it would go on."""
    failures: Iterator[BaseException] = iter((OSError("gone"), AssertionError("two leaders")))

    def fail() -> None:
        raise next(failures)

    for _ in range(2):
        hall.watch("a").when_tried = fail
    with pytest.raises(AssertionError, match="two leaders"):
        hall.purgatory.check_and_complete("a")


def test_expiring_goes_on_though_one_raises(hall: Hall) -> None:
    """A member's deadlines are ended together, or it lives on by those that are left."""
    bad, good = hall.watch("a"), hall.watch("a")

    def fail() -> None:
        raise OSError("gone")

    bad.when_completed = fail
    with pytest.raises(OSError, match="gone"):
        hall.purgatory.expire("a")
    assert (bad.events, good.events) == (["complete", "expired"], ["complete", "expired"])
    assert hall.is_empty()


def test_a_completion_that_raises_at_the_time_out_is_followed_by_the_expiration(
    hall: Hall,
) -> None:
    """A member whose answer cannot be sent is late all the same; the statistics say so too."""
    bad = hall.watch("a", delay_ms=5)

    def fail() -> None:
        raise OSError("gone")

    bad.when_completed = fail
    hall.timer.advance_clock(5)
    assert bad.events == ["complete", "expired"]
    assert hall.purgatory.stats.expired == 1
    assert [type(error) for error in hall.told] == [OSError]
    assert hall.is_empty()


def test_an_expiration_that_raises_is_purged_like_the_others(hall: Hall) -> None:
    """Requests whose time-outs all fail would stay in memory for good."""
    purgatory = DelayedOperationPurgatory("test", hall.timer, purge_interval=10)

    def fail() -> None:
        raise OSError("gone")

    for number in range(100):
        operation = Acting(5)
        operation.when_expired = fail
        purgatory.try_complete_else_watch(operation, [number])
    hall.timer.advance_clock(5)
    assert len(hall.told) == 100
    assert purgatory.watched <= 11


@pytest.mark.parametrize("several", [False, True])
def test_a_condition_that_checks_its_own_key_is_looked_at_once_more(
    hall: Hall, several: bool
) -> None:
    """The check would never return, and with it the loop."""
    operation = hall.watch("a")
    keys = ["a", "b"] if several else ["a"]
    operation.when_tried = lambda: hall.purgatory.check_all_and_complete(keys)
    assert hall.purgatory.check_and_complete("a") == 0
    assert operation.looks == 2
    operation.ready = True
    assert hall.purgatory.check_and_complete("a") == 1
    assert hall.is_empty()


def test_a_condition_that_tries_itself_is_looked_at_once_more(hall: Hall) -> None:
    """The same without a key."""
    operation = hall.watch("a")
    operation.when_tried = operation.safe_try_complete
    assert not operation.safe_try_complete()
    assert operation.looks == 2


def test_word_of_another_thread_counts_at_every_look() -> None:
    """Its completion would be lost, for the condition has left word itself before."""

    class Late(DelayedOperation):
        """Looks at what it waits for before others make that true."""

        looks = 0
        is_ready = False
        completions = 0

        def try_complete(self) -> bool:
            seen = self.is_ready
            self.looks += 1
            leave_word()
            return seen and self.force_complete()

        def on_complete(self) -> None:
            self.completions += 1

    operation = Late(1000)

    def leave_word() -> None:
        operation.safe_try_complete()
        if operation.looks == 2:
            operation.is_ready = True
            other = threading.Thread(target=operation.safe_try_complete)
            other.start()
            other.join()

    assert operation.safe_try_complete()
    assert (operation.looks, operation.completions) == (3, 1)


@pytest.mark.parametrize("fails_again", [False, True])
def test_word_of_another_thread_counts_though_the_condition_raises(
    hall: Hall, fails_again: bool
) -> None:
    """The other thread was told that somebody looks, and looks no more itself."""
    operation = hall.watch("a")

    def hear_and_fail() -> None:
        if operation.looks == 1:
            operation.ready = not fails_again
            other = threading.Thread(target=operation.safe_try_complete)
            other.start()
            other.join()
            raise LookupError("no such log")
        if fails_again:
            raise LookupError("no such log")

    operation.when_tried = hear_and_fail
    with pytest.raises(LookupError):
        hall.purgatory.check_and_complete("a")
    assert (operation.looks, operation.completions) == (2, 0 if fails_again else 1)
    operation.when_tried = nothing
    operation.ready = True
    hall.purgatory.check_and_complete("a")
    assert operation.completions == 1
    assert hall.is_empty()


def test_a_condition_that_checks_its_own_key_may_be_handed_in(hall: Hall) -> None:
    """It is tried before and after it is watched, and must come to an end both times."""
    operation = Acting()
    operation.when_tried = lambda: hall.purgatory.check_and_complete("a")
    assert not hall.purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.looks <= 3
    assert (hall.purgatory.delayed, hall.timer.size) == (1, 1)


def test_conditions_that_check_each_other_come_to_an_end(hall: Hall) -> None:
    """Two groups that look at each other's members would hold the loop for ever."""
    first, second = hall.watch("a"), hall.watch("b")
    first.when_tried = lambda: hall.purgatory.check_and_complete("b")
    second.when_tried = lambda: hall.purgatory.check_and_complete("a")
    assert hall.purgatory.check_and_complete("a") == 0
    assert (first.looks, second.looks) == (2, 1)


@pytest.mark.parametrize("is_of_another", [False, True])
def test_what_a_condition_completes_elsewhere_is_heard_of(hall: Hall, is_of_another: bool) -> None:
    """Its completion checks here; what that concerns would wait on as if nothing had happened."""
    waiting, operation, elsewhere = hall.watch("b"), hall.watch("a"), Acting()
    if is_of_another:
        other = DelayedOperationPurgatory("other", hall.timer)
        other.try_complete_else_watch(elsewhere, ["c"])

    def tell() -> None:
        waiting.ready = True
        hall.purgatory.check_and_complete("b")

    def look_again() -> None:
        hall.purgatory.check_all_and_complete(["b", "a"])
        if operation.looks == 3:
            elsewhere.force_complete()

    elsewhere.when_completed = tell
    operation.when_tried = look_again
    hall.purgatory.check_and_complete("a")
    assert waiting.completions == 1


def test_many_conditions_under_the_key_that_they_check_come_to_an_end(hall: Hall) -> None:
    """Checks inside of checks would be as many as the orders of the operations."""
    operations = [hall.watch("a") for _ in range(100)]
    for one in operations:
        one.when_tried = lambda: hall.purgatory.check_and_complete("a")
    assert hall.purgatory.check_and_complete("a") == 0
    assert [one.looks for one in operations] == [2] * 100


@pytest.mark.parametrize("others", [[], ["nobody's"]])
def test_each_condition_may_make_the_next_one_true(hall: Hall, others: list[str]) -> None:
    """What a condition finds out concerns others, however long the chain."""
    chain = [hall.watch(number) for number in range(DEEP)]

    def tell(number: int) -> None:
        chain[number].ready = True
        hall.purgatory.check_all_and_complete([number, *others])

    for number in range(DEEP - 1):
        chain[number].when_tried = lambda number=number: tell(number + 1)  # type: ignore[misc]
    chain[0].ready = True
    assert hall.purgatory.check_and_complete(0) == 1
    assert all(one.completions == 1 for one in chain)
    assert hall.is_empty()


def test_a_condition_hears_of_every_other_that_concerns_it(hall: Hall) -> None:
    """Looking once more is enough for one's own word, not for that of a hundred others."""
    heard: list[int] = []
    target = hall.watch("target")
    target.when_tried = lambda: setattr(target, "ready", len(set(heard)) == 100)
    chain = [hall.watch(number) for number in range(100)]

    def tell(number: int) -> None:
        heard.append(number)
        hall.purgatory.check_and_complete("target")
        hall.purgatory.check_and_complete(number + 1)

    for number, one in enumerate(chain):
        one.when_tried = lambda number=number: tell(number)  # type: ignore[misc]
    hall.purgatory.check_and_complete(0)
    assert target.completions == 1


def test_each_condition_may_hand_in_another_operation(hall: Hall) -> None:
    """What is handed in there is tried when the condition has returned."""
    handed_in: list[Acting] = []

    def hand_in() -> None:
        if len(handed_in) < DEEP:
            operation = Acting(ready=True)
            operation.when_tried = hand_in
            handed_in.append(operation)
            hall.purgatory.try_complete_else_watch(operation, ["a"])

    hall.watch("first").when_tried = hand_in
    hall.purgatory.check_and_complete("first")
    assert len(handed_in) == DEEP
    assert all(one.completions == 1 for one in handed_in)


def test_what_a_condition_hands_in_at_its_second_look_waits(hall: Hall) -> None:
    """Nobody would ever answer it, not even its time-out."""
    handed_in, operation = Acting(), hall.watch("a")

    def look_again_and_hand_in() -> None:
        hall.purgatory.check_and_complete("a")
        if operation.looks == 2:
            hall.purgatory.try_complete_else_watch(handed_in, ["b"])

    operation.when_tried = look_again_and_hand_in
    hall.purgatory.check_and_complete("a")
    assert (hall.purgatory.delayed, handed_in.is_pending) == (2, True)


def test_what_a_condition_checks_at_its_second_look_is_looked_at(hall: Hall) -> None:
    """What it concerns would not hear of it."""
    other, operation = hall.watch("b"), hall.watch("a")

    def look_again_and_tell() -> None:
        hall.purgatory.check_and_complete("a")
        if operation.looks == 2:
            other.ready = True
            hall.purgatory.check_and_complete("b")

    operation.when_tried = look_again_and_tell
    hall.purgatory.check_and_complete("a")
    assert other.completions == 1


def test_what_a_condition_hands_in_must_be_in_order_like_all_else(hall: Hall) -> None:
    """A mistake is told to who makes it, not to who happens to check."""
    refused: list[type[Exception]] = []

    def hand_in() -> None:
        for keys in ([], ["b", []]):
            try:
                hall.purgatory.try_complete_else_watch(Acting(), keys)
            except (TypeError, ValueError) as error:
                refused.append(type(error))

    hall.watch("a").when_tried = hand_in
    hall.purgatory.check_and_complete("a")
    assert refused == [ValueError, TypeError]


CHECKS = {
    "one key": lambda purgatory: purgatory.check_and_complete("a"),
    "several keys": lambda purgatory: purgatory.check_all_and_complete(["a", "b"]),
    "expiry": lambda purgatory: purgatory.expire("a"),
}


@pytest.mark.parametrize(
    ("check", "callback"),
    [
        ("one key", "when_tried"),
        ("one key", "when_completed"),
        ("several keys", "when_tried"),
        ("several keys", "when_completed"),
        ("expiry", "when_completed"),
        ("expiry", "when_expired"),
    ],
)
def test_a_shutdown_within_a_check_forgets_the_rest(hall: Hall, check: str, callback: str) -> None:
    """Requests would be answered on connections that are closed, and counts go below zero."""
    first, second = hall.watch("a", "b"), hall.watch("a", "b")
    first.ready = second.ready = True
    setattr(first, callback, hall.purgatory.shutdown)
    CHECKS[check](hall.purgatory)
    assert (second.looks, second.completions) == (0, 0)
    assert (hall.purgatory.watched, hall.purgatory.delayed, hall.timer.size) == (0, 0, 0)
    hall.watch("a")
    assert (hall.purgatory.watched, hall.purgatory.delayed, hall.timer.size) == (1, 1, 1)


def test_a_shutdown_while_an_operation_is_handed_in_forgets_it(hall: Hall) -> None:
    """It would be in the timer alone, and expire in a purgatory that is shut down."""
    operation = Acting()
    operation.when_tried = lambda: operation.looks == 2 and hall.purgatory.shutdown()
    assert not hall.purgatory.try_complete_else_watch(operation, ["a"])
    assert (hall.purgatory.watched, hall.purgatory.delayed, hall.timer.size) == (0, 0, 0)
    hall.timer.advance_clock(5000)
    assert operation.completions == 0


def test_a_shutdown_while_an_operation_is_first_looked_at_forgets_it(hall: Hall) -> None:
    """As at its second look: it would expire in a purgatory that is shut down."""
    operation = Acting()
    operation.when_tried = lambda: operation.looks == 1 and hall.purgatory.shutdown()
    assert not hall.purgatory.try_complete_else_watch(operation, ["a"])
    assert (hall.purgatory.watched, hall.purgatory.delayed, hall.timer.size) == (0, 0, 0)


def test_a_shutdown_forgets_what_was_handed_in_with_it(hall: Hall) -> None:
    """Of two that a condition has handed in, the first one's own shuts down."""
    first, second = Acting(), Acting(ready=True)
    first.when_tried = hall.purgatory.shutdown

    def hand_in() -> None:
        for one in (first, second):
            hall.purgatory.try_complete_else_watch(one, ["b"])

    hall.watch("a").when_tried = hand_in
    hall.purgatory.check_and_complete("a")
    assert (first.looks, second.events) == (1, [])
    assert hall.is_empty()


def test_what_a_condition_hands_in_waits_under_the_keys_of_that_moment(hall: Hall) -> None:
    """A list that is filled again for the next one would leave it under keys of another."""
    operation, keys = Acting(), ["b"]

    def hand_in() -> None:
        if not operation.events:
            hall.purgatory.try_complete_else_watch(operation, keys)
            keys[:] = ["c"]

    hall.watch("a").when_tried = hand_in
    hall.purgatory.check_and_complete("a")
    operation.ready = True
    assert hall.purgatory.check_and_complete("c") == 0
    assert hall.purgatory.check_and_complete("b") == 1


def test_a_shutdown_forgets_what_conditions_have_asked_for(hall: Hall) -> None:
    """What was asked for before it concerns nobody after it."""
    late = Acting(ready=True)

    def ask_and_shut_down() -> None:
        hall.purgatory.try_complete_else_watch(late, ["b"])
        hall.purgatory.shutdown()

    hall.watch("a").when_tried = ask_and_shut_down
    hall.purgatory.check_and_complete("a")
    assert late.events == []
    assert hall.is_empty()


def test_a_key_that_is_refused_leaves_nothing_watched(hall: Hall) -> None:
    """The operation would wait under the first key for ever, without a time-out."""
    operation = Acting()
    with pytest.raises(TypeError, match="unhashable"):
        hall.purgatory.try_complete_else_watch(operation, ["a", [], "b"])
    assert hall.purgatory._watchers == {}
    assert (hall.purgatory.watched, hall.purgatory.delayed, hall.timer.size) == (0, 0, 0)
    assert hall.purgatory.stats.watched == 0
    assert hall.purgatory.check_and_complete("a") == 0
    assert not hall.purgatory.try_complete_else_watch(operation, ["a"])
    assert (hall.purgatory.watched, hall.purgatory.delayed, hall.timer.size) == (1, 1, 1)


def test_a_condition_that_raises_at_its_second_look_leaves_nothing_watched(hall: Hall) -> None:
    """The caller answers for it; the next check would answer once more, and no time-out ever."""
    operation, neighbour = Acting(), hall.watch("a")

    def fail_the_second_time() -> None:
        if operation.looks == 2:
            raise LookupError("no such log")

    operation.when_tried = fail_the_second_time
    with pytest.raises(LookupError):
        hall.purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert (hall.purgatory.watched, hall.purgatory.delayed, hall.timer.size) == (1, 1, 1)
    assert not neighbour.is_completed


def test_what_a_condition_asks_for_before_it_raises_is_done(hall: Hall) -> None:
    """It concerns others, who know nothing of the failure."""
    other, operation = hall.watch("other"), Acting()

    def ask_and_fail() -> None:
        other.ready = True
        hall.purgatory.check_and_complete("other")
        raise LookupError("no such log")

    operation.when_tried = ask_and_fail
    with pytest.raises(LookupError):
        hall.purgatory.try_complete_else_watch(operation, ["a"])
    assert other.completions == 1
    assert hall.is_empty()


def test_conditions_are_heard_check_after_check(hall: Hall) -> None:
    """The first check for which they asked for something would be the last."""
    others = [hall.watch(number) for number in range(3)]
    operation = hall.watch("a")

    def tell() -> None:
        others[operation.looks - 1].ready = True
        hall.purgatory.check_and_complete(operation.looks - 1)

    operation.when_tried = tell
    for _ in others:
        hall.purgatory.check_and_complete("a")
    assert [one.completions for one in others] == [1, 1, 1]


def test_of_what_a_condition_asks_for_the_rest_is_done_though_one_raises(hall: Hall) -> None:
    """It concerns others, who know nothing of the failure."""
    bad, good = hall.watch("bad"), hall.watch("good")
    refused, let_in = Acting(), Acting()

    def fail() -> None:
        raise LookupError("no such log")

    def ask() -> None:
        for one in (refused, let_in):
            hall.purgatory.try_complete_else_watch(one, ["b"])
        good.ready = True
        for key in ("bad", "good"):
            hall.purgatory.check_and_complete(key)

    bad.when_tried = refused.when_tried = fail
    asking = hall.watch("a")
    asking.when_tried = ask
    with pytest.raises(LookupError):
        hall.purgatory.check_and_complete("a")
    assert (good.completions, let_in.is_pending, refused.is_pending) == (1, True, False)


def test_what_a_task_of_the_timer_completes_may_go_on_for_ever_so_long(hall: Hall) -> None:
    """Most chains begin with a time-out."""
    chain = chained(hall, CHAINS["check"](hall))
    hall.timer.add(TimerTask(7, chain[0].force_complete))
    hall.timer.advance_clock(7)
    assert all(one.completions == 1 for one in chain)
    assert hall.told == []
