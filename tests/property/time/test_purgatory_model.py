"""The purgatory against a model: sets of keys, and flags that say who is complete.

Random interleavings of watching, making conditions true, checking, completing by force and
time going on, including checks that happen inside of other checks and of completions.
"""

from hypothesis import given
from hypothesis import strategies as st

from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.timer import MockTimer

KEYS = st.sampled_from("abcd")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("watch"), st.lists(KEYS, min_size=1, max_size=4), st.integers(-1, 60)),
        st.tuples(st.just("hold"), st.just([]), st.integers(0, 30)),
        st.tuples(st.just("check"), KEYS.map(list), st.just(0)),
        st.tuples(st.just("force"), st.just([]), st.integers(0, 30)),
        st.tuples(st.just("chain"), KEYS.map(list), st.integers(0, 30)),
        st.tuples(st.just("move"), st.just([]), st.integers(0, 60)),
        st.tuples(st.just("purge"), st.just([]), st.just(0)),
    ),
    max_size=60,
)


class Operation(DelayedOperation):
    """Complete when told to be ready; may check another key when it completes."""

    def __init__(self, story: "Story", keys: list[str], delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.story = story
        self.watched_keys = keys
        self.deadline_ms = story.timer.now_ms + max(0, delay_ms)
        self.ready = False
        self.then_check: str | None = None
        self.completions = 0
        self.expirations = 0

    def try_complete(self) -> bool:
        return self.force_complete() if self.ready else False

    def on_complete(self) -> None:
        self.completions += 1
        if self.then_check is not None:
            self.story.purgatory.check_and_complete(self.then_check)

    def on_expiration(self) -> None:
        assert self.completions == 1
        self.expirations += 1


class Story:
    """The purgatory under test and every operation that was ever handed in."""

    def __init__(self, purge_interval: int, amortised_purge: bool) -> None:
        self.timer = MockTimer()
        self.purgatory = DelayedOperationPurgatory(
            "model", self.timer, 0, purge_interval, True, amortised_purge
        )
        self.operations: list[Operation] = []

    def step(self, verb: str, keys: list[str], number: int) -> None:
        some = self.operations[number % len(self.operations)] if self.operations else None
        if verb == "watch":
            self.operations.append(Operation(self, keys, number))
            self.purgatory.try_complete_else_watch(self.operations[-1], keys)
        elif verb == "check":
            self.check(keys[0])
        elif verb == "move":
            self.timer.advance_clock(number)
        elif verb == "purge":
            self.purgatory.purge()
            assert self.purgatory.watched == sum(
                len(one.watched_keys) for one in self.operations if not one.is_completed
            )
        elif some is not None and verb == "hold":
            some.ready = True
        elif some is not None and verb == "force":
            was_completed = some.is_completed
            assert some.force_complete() != was_completed
        elif some is not None:
            some.then_check = keys[0]

    def check(self, key: str) -> None:
        ripe = [
            one
            for one in self.operations
            if key in one.watched_keys and one.ready and not one.is_completed
        ]
        before = sum(one.completions for one in self.operations)
        counted = self.purgatory.check_and_complete(key)
        assert all(one.is_completed for one in ripe)
        assert counted <= sum(one.completions for one in self.operations) - before

    def compare(self) -> None:
        """Checks what must hold at every moment."""
        now_ms = self.timer.now_ms
        for one in self.operations:
            assert one.completions == int(one.is_completed)
            assert one.is_completed or one.deadline_ms > now_ms
            assert one.is_pending != one.is_completed
            assert not one.expirations or one.deadline_ms <= now_ms
        pending = [one for one in self.operations if not one.is_completed]
        assert self.purgatory.delayed == self.timer.size == len(pending)
        assert sorted(len(one.keys) for one in self.purgatory.waiting()) == sorted(
            len(one.watched_keys) for one in pending
        )
        lists = self.purgatory._watchers
        assert all(lists[key].operations for key in lists)
        assert self.purgatory.watched == sum(len(lists[key].operations) for key in lists)
        assert self.purgatory.stats.expired == sum(one.expirations for one in self.operations)


@given(STEPS, st.integers(0, 5), st.booleans())
def test_a_purgatory_does_what_the_model_says(
    steps: list[tuple[str, list[str], int]], purge_interval: int, amortised_purge: bool
) -> None:
    """A lost wake-up, a second completion, a leaked key, or counts that drift."""
    story = Story(purge_interval, amortised_purge)
    for verb, keys, number in steps:
        story.step(verb, keys, number)
        story.compare()
    story.timer.advance_clock(100)
    assert all(one.completions == 1 for one in story.operations)
    story.purgatory.purge()
    assert (story.purgatory.watched, story.purgatory._watchers) == (0, {})
