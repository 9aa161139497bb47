"""Conditions that check, hand in, complete and raise while they are looked at.

What they ask their purgatory for is done when they have returned, and comes to an end.
"""

import threading
from collections.abc import Callable
from itertools import pairwise

import pytest
from tests.unit.purgatory.acting import DEEP, Acting, Hall, nothing

from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory


def elsewhere(work: Callable[[], object]) -> None:
    """Does it on another thread, and waits for that."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


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


def test_a_condition_that_tries_itself_many_times_is_looked_at_once_more(hall: Hall) -> None:
    """All that one thread says is one word, however often."""
    operation = hall.watch("a")
    operation.when_tried = lambda: [operation.safe_try_complete() for _ in range(3)]
    assert not operation.safe_try_complete()
    assert operation.looks == 2


def test_a_condition_that_tries_itself_and_raises_is_not_looked_at_again(hall: Hall) -> None:
    """It would raise again, and leave word again, without end."""
    operation = hall.watch("a")

    def try_and_fail() -> None:
        operation.safe_try_complete()
        raise LookupError("no such log")

    operation.when_tried = try_and_fail
    with pytest.raises(LookupError):
        hall.purgatory.check_and_complete("a")
    assert operation.looks == 1
    operation.when_tried = nothing
    hall.purgatory.check_and_complete("a")
    assert operation.looks == 2


def test_a_condition_that_completes_and_raises_is_not_looked_at_again(hall: Hall) -> None:
    """An operation left word meanwhile: it has its answer, and its request is gone."""
    operation = hall.watch("a")

    def complete_and_fail() -> None:
        elsewhere(operation.safe_try_complete)
        operation.force_complete()
        raise LookupError("no such log")

    operation.when_tried = complete_and_fail
    with pytest.raises(LookupError):
        hall.purgatory.check_and_complete("a")
    assert operation.events == ["look", "complete"]


@pytest.mark.parametrize("is_last", [False, True])
def test_word_of_another_thread_counts_at_every_look(is_last: bool) -> None:
    """Its completion would be lost, for the condition has left word itself before or after."""

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
        if is_last:
            operation.safe_try_complete()
        if operation.looks == 2:
            operation.is_ready = True
            elsewhere(operation.safe_try_complete)
        operation.safe_try_complete()

    assert operation.safe_try_complete()
    assert (operation.looks, operation.completions) == (3, 1)


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_word_of_another_thread_counts_though_the_condition_raises(
    hall: Hall, failures: int
) -> None:
    """The other thread was told that somebody looks, and looks no more itself."""
    operation = hall.watch("a")

    def hear_and_fail() -> None:
        if operation.looks <= failures:
            operation.ready = operation.looks == failures
            elsewhere(operation.safe_try_complete)
            raise LookupError(f"no such log, at look {operation.looks}")

    operation.when_tried = hear_and_fail
    with pytest.raises(LookupError, match="look 1"):
        hall.purgatory.check_and_complete("a")
    assert (operation.looks, operation.completions) == (failures + 1, 1)
    assert hall.is_empty()


def test_a_condition_that_always_raises_is_looked_at_once_for_each_word(hall: Hall) -> None:
    """A later check must find it as it was."""
    operation = hall.watch("a")

    def hear_and_fail() -> None:
        if operation.looks == 1:
            elsewhere(operation.safe_try_complete)
        raise LookupError("no such log")

    operation.when_tried = hear_and_fail
    for looks in (2, 3):
        with pytest.raises(LookupError):
            hall.purgatory.check_and_complete("a")
        assert operation.looks == looks
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


def test_a_condition_that_checks_new_keys_each_time_comes_to_an_end(hall: Hall) -> None:
    """Keys that nobody waits under are no news, as many as there may be."""
    operation = hall.watch("a")

    def check() -> None:
        assert operation.looks < 10
        hall.purgatory.check_all_and_complete(["a", f"nobody's {operation.looks}"])

    operation.when_tried = check
    assert hall.purgatory.check_and_complete("a") == 0
    assert operation.looks == 2


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
    """The findings of a condition concern others, however long the chain."""
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
    """An operation handed in there is tried when the condition has returned."""
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
    """It would never be answered, not even by its time-out."""
    handed_in, operation = Acting(), hall.watch("a")

    def look_again_and_hand_in() -> None:
        hall.purgatory.check_and_complete("a")
        if operation.looks == 2:
            hall.purgatory.try_complete_else_watch(handed_in, ["b"])

    operation.when_tried = look_again_and_hand_in
    hall.purgatory.check_and_complete("a")
    assert (hall.purgatory.delayed, handed_in.is_pending) == (2, True)


def test_what_a_condition_checks_at_its_second_look_is_looked_at(hall: Hall) -> None:
    """The operations that it concerns would not hear of it."""
    other, operation = hall.watch("b"), hall.watch("a")

    def look_again_and_tell() -> None:
        hall.purgatory.check_and_complete("a")
        if operation.looks == 2:
            other.ready = True
            hall.purgatory.check_and_complete("b")

    operation.when_tried = look_again_and_tell
    hall.purgatory.check_and_complete("a")
    assert other.completions == 1


def test_what_is_handed_in_late_is_heard_like_all_else(hall: Hall) -> None:
    """Every key that it checks was looked at before, but not for what it has to tell."""
    handed_in, waiting, operation = Acting(), hall.watch("b"), hall.watch("a")

    def tell() -> None:
        waiting.ready = True
        hall.purgatory.check_and_complete("b")

    def look_again_and_hand_in() -> None:
        if operation.looks == 1:
            hall.purgatory.check_all_and_complete(["b", "a"])
        else:
            hall.purgatory.try_complete_else_watch(handed_in, ["c"])

    handed_in.when_tried = tell
    operation.when_tried = look_again_and_hand_in
    hall.purgatory.check_and_complete("a")
    assert waiting.completions == 1


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


# What conditions hand over


@pytest.mark.parametrize("is_handed_over", [False, True])
def test_a_condition_that_hands_over_its_own_key_is_looked_at_once_more(
    hall: Hall, is_handed_over: bool
) -> None:
    """A clock that stands still while it moves from one deadline to the next would never go on."""
    operation = hall.watch("a")
    operation.when_tried = lambda: hall.purgatory.check_and_complete_threadsafe("a")
    if is_handed_over:
        hall.purgatory.check_and_complete_threadsafe("a")
    else:
        hall.purgatory.check_and_complete("a")
        assert operation.looks == 1
        operation.events.clear()
    hall.timer.advance_clock(0)
    assert operation.looks == 2
    hall.timer.advance_clock(1000)
    assert operation.events[2:] == ["complete", "expired"]
    assert hall.is_empty()


@pytest.mark.parametrize("is_of_another", [False, True])
def test_conditions_that_hand_over_each_others_keys_come_to_an_end(
    hall: Hall, is_of_another: bool
) -> None:
    """Neither asks for itself, and the two would never let the clock go on."""
    other = DelayedOperationPurgatory("other", hall.timer) if is_of_another else hall.purgatory
    first, second = hall.watch("a"), Acting()
    other.try_complete_else_watch(second, ["b"])
    second.events.clear()
    first.when_tried = lambda: other.check_and_complete_threadsafe("b")
    second.when_tried = lambda: hall.purgatory.check_and_complete_threadsafe("a")
    hall.purgatory.check_and_complete_threadsafe("a")
    hall.timer.advance_clock(0)
    assert 2 <= first.looks + second.looks <= 5
    first.ready = second.ready = True
    hall.purgatory.check_and_complete_threadsafe("a")
    hall.timer.advance_clock(0)
    assert (first.completions, second.completions) == (1, 1)


def test_a_condition_that_hands_over_new_keys_each_time_comes_to_an_end(hall: Hall) -> None:
    """No operation waits under them, so they are no news to anybody."""
    operation = hall.watch("a")

    def ask() -> None:
        hall.purgatory.check_and_complete_threadsafe(("new", operation.looks))
        hall.purgatory.check_and_complete_threadsafe("a")

    operation.when_tried = ask
    hall.purgatory.check_and_complete_threadsafe("a")
    hall.timer.advance_clock(0)
    assert operation.looks == 2


def test_each_completion_may_hand_over_the_check_that_completes_the_next(hall: Hall) -> None:
    """As long as something completes, a further look is worth its while."""
    chain = [hall.watch("a") for _ in range(50)]
    for one, following in pairwise(chain):

        def go_on(of: Acting = one) -> None:
            of.ready = True
            hall.purgatory.check_and_complete_threadsafe("a")

        following.when_completed = go_on
    chain[-1].ready = True
    hall.purgatory.check_and_complete_threadsafe("a")
    hall.timer.advance_clock(0)
    assert all(one.completions == 1 for one in chain)
    assert hall.is_empty()


def test_what_a_condition_makes_true_at_its_second_look_is_heard_of(hall: Hall) -> None:
    """It hands over a key that was looked at in vain in its own check, and waits until its time
    is over."""
    operation, other = hall.watch("a"), hall.watch("b")

    def ask() -> None:
        other.ready = operation.looks == 2
        hall.purgatory.check_and_complete_threadsafe("a")
        hall.purgatory.check_and_complete_threadsafe("b")

    operation.when_tried = ask
    hall.purgatory.check_and_complete_threadsafe("b")
    hall.purgatory.check_and_complete_threadsafe("a")
    hall.timer.advance_clock(0)
    assert other.completions == 1


def test_what_other_threads_hand_over_during_a_look_always_counts(hall: Hall) -> None:
    """They know of something that the condition has not seen: not even one that asks for itself
    may have their word dropped."""
    operation = hall.watch("a")
    words = 5

    def ask() -> None:
        hall.purgatory.check_and_complete_threadsafe("a")
        if operation.looks <= words:
            elsewhere(lambda: hall.purgatory.check_and_complete_threadsafe("a"))
        operation.ready = operation.looks > words

    operation.when_tried = ask
    hall.purgatory.check_and_complete_threadsafe("a")
    hall.timer.advance_clock(0)
    assert operation.completions == 1
