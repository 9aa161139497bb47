"""Callbacks of operations that complete, check, add, raise and shut down, to any depth.

What a completion or a condition asks of the purgatory is done in its turn, never on a stack that
grows with the number of operations; and whatever one raises, the others have their turn.
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import pytest
from tests.unit.purgatory.acting import DEEP, Acting, Hall

from odradek.purgatory import DelayedOperationPurgatory
from odradek.timer import TimerTask


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


@pytest.mark.parametrize("number_of_purgatories", [2, 3, DEEP])
@pytest.mark.parametrize("way", ["check", "expire"])
def test_a_chain_may_go_through_several_purgatories(
    hall: Hall, number_of_purgatories: int, way: str
) -> None:
    """An append completes a produce, that a fetch, and that a group's rebalance. However many
    purgatories there are, the stack is one."""
    chain = [Acting() for _ in range(DEEP)]
    halls = [
        DelayedOperationPurgatory(f"hall {number}", hall.timer)
        for number in range(number_of_purgatories)
    ]
    for number, one in enumerate(chain):
        following = halls[(number + 1) % number_of_purgatories]
        halls[number % number_of_purgatories].try_complete_else_watch(one, [number])
        one.ready = True
        go_on = following.check_and_complete if way == "check" else following.expire
        one.when_completed = partial(go_on, number + 1)
    halls[0].check_and_complete(0)
    assert all(one.completions == 1 for one in chain)
    assert [each.delayed for each in halls] == [0] * number_of_purgatories


def test_of_a_chain_through_purgatories_that_raises_the_others_run(hall: Hall) -> None:
    """The next completion belongs to another purgatory, and its caller is still to be told."""
    halls = [DelayedOperationPurgatory(f"hall {number}", hall.timer) for number in range(DEEP)]
    chain = [Acting(ready=False) for _ in halls]
    for number, one in enumerate(chain):
        halls[number].try_complete_else_watch(one, ["a"])
        one.ready = True

    def go_on(number: int) -> None:
        if number < DEEP - 1:
            halls[number + 1].check_and_complete("a")
        if number == 5:
            raise OSError("gone")

    for number, one in enumerate(chain):
        one.when_completed = partial(go_on, number)
    with pytest.raises(OSError, match="gone"):
        halls[0].check_and_complete("a")
    assert all(one.completions == 1 for one in chain)
    # Nothing is left in line: the next completion is told at once.
    last = Acting()
    assert last.force_complete()
    assert last.completions == 1


def test_what_another_thread_completes_waits_in_no_line_of_this_one(hall: Hall) -> None:
    """A thread would be told that its completion has run when it waits for another thread's."""
    elsewhere = DelayedOperationPurgatory("elsewhere", hall.timer)
    first, second, theirs = (Acting() for _ in range(3))
    elsewhere.try_complete_else_watch(theirs, ["a"])
    seen: list[int] = []

    def complete_theirs() -> None:
        other = threading.Thread(target=theirs.force_complete)
        other.start()
        other.join()
        seen.append(theirs.completions)

    first.when_completed = second.force_complete
    second.when_completed = complete_theirs
    first.force_complete()
    assert seen == [1]


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
    """The operations behind one that fails would not hear of the event."""
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


def hand_in_and_ask(hall: Hall) -> int:
    """An operation whose condition asks for something."""
    operation = Acting()
    operation.when_tried = lambda: hall.purgatory.check_and_complete("b")
    return hall.purgatory.try_complete_else_watch(operation, ["c"])


def be_refused(hall: Hall) -> int:
    with pytest.raises(TypeError, match="unhashable"):
        hall.purgatory.try_complete_else_watch(Acting(), [[]])
    return 0


INNER_CALLS: dict[str, tuple[Callable[[Hall], int], int]] = {
    "check": (lambda hall: hall.purgatory.check_and_complete("b"), 1),
    "check several": (lambda hall: hall.purgatory.check_all_and_complete(["b", "c"]), 1),
    "expire": (lambda hall: hall.purgatory.expire("b"), 1),
    "hand in": (hand_in_and_ask, 0),
    "be refused": (be_refused, 0),
}


@pytest.mark.parametrize("call", INNER_CALLS)
def test_a_failure_is_told_to_who_looked_and_not_to_a_completion(hall: Hall, call: str) -> None:
    """A completed operation would break off for the failure of another, and answer nobody."""
    act, answer = INNER_CALLS[call]
    answers: list[int] = []
    bad, good, other = hall.watch("a"), hall.watch("a"), hall.watch("b")

    def fail() -> None:
        raise LookupError("no such log")

    bad.when_tried = fail
    good.when_completed = lambda: answers.append(act(hall))
    good.ready = other.ready = True
    with pytest.raises(LookupError):
        hall.purgatory.check_and_complete("a")
    assert answers == [answer]


def test_a_line_is_that_of_its_thread(hall: Hall) -> None:
    """A completing thread would go on before the answer is given."""
    first, second, third = (hall.watch(key) for key in "abc")
    seen: list[int] = []

    def complete_elsewhere() -> None:
        thread = threading.Thread(target=third.force_complete)
        thread.start()
        thread.join()
        seen.append(third.completions)

    first.when_completed = second.force_complete
    second.when_completed = complete_elsewhere
    first.force_complete()
    assert seen == [1]


def test_an_interrupt_is_raised_before_anything_else(hall: Hall) -> None:
    """The request to end the program would have to be made again."""
    failures: Iterator[BaseException] = iter((AssertionError("two leaders"), KeyboardInterrupt()))

    def fail() -> None:
        raise next(failures)

    for _ in range(2):
        hall.watch("a").when_tried = fail
    with pytest.raises(KeyboardInterrupt):
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


def test_expiring_ends_though_each_watches_another(hall: Hall) -> None:
    """A member that joins again when its deadline ends would keep the loop for ever."""

    def watch_another() -> None:
        assert hall.purgatory.stats.watched < 10
        hall.watch("a").when_completed = watch_another

    hall.watch("a").when_completed = watch_another
    assert hall.purgatory.expire("a") == 1
    assert hall.purgatory.delayed == 1


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


def test_a_shutdown_forgets_what_conditions_have_asked_for(hall: Hall) -> None:
    """A request before it concerns nobody after it."""
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


@pytest.mark.parametrize("is_ready", [False, True])
def test_what_a_condition_asks_for_is_done_though_its_key_is_refused(
    hall: Hall, is_ready: bool
) -> None:
    """It concerns others, who know nothing of the key."""
    other, operation = hall.watch("b"), Acting(ready=is_ready)

    def tell() -> None:
        other.ready = True
        hall.purgatory.check_and_complete("b")

    operation.when_tried = tell
    if is_ready:
        assert hall.purgatory.try_complete_else_watch(operation, ["a", []])
    else:
        with pytest.raises(TypeError, match="unhashable"):
            hall.purgatory.try_complete_else_watch(operation, ["a", []])
    assert other.completions == 1
    assert hall.is_empty()


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


def test_what_a_task_of_the_timer_completes_may_go_on_for_ever_so_long(hall: Hall) -> None:
    """Most chains begin with a time-out."""
    chain = chained(hall, CHAINS["check"](hall))
    hall.timer.add(TimerTask(7, chain[0].force_complete))
    hall.timer.advance_clock(7)
    assert all(one.completions == 1 for one in chain)
    assert hall.told == []
