"""Breaks timers and purgatories on purpose, one line at a time; their tests have to notice."""

from pathlib import Path

import pytest
from tests.mutants import Mutants, Mutation

# The nearest first; what drives timers over real time is left out, since a mutant may hang there.
TESTS = [
    "tests/scenario/test_timing_wheel.py",
    "tests/unit/timer/test_timing_wheel.py",
    "tests/unit/timer/test_timer_task.py",
    "tests/unit/timer/test_timers.py",
    "tests/unit/timer/test_naps.py",
    "tests/unit/timer/test_hand_overs.py",
    "tests/unit/purgatory/test_purgatory.py",
    "tests/unit/purgatory/test_callbacks.py",
    "tests/unit/purgatory/test_conditions.py",
    "tests/property/time/test_timer_model.py",
    "tests/property/time/test_purgatory_model.py",
    "tests/property/time/test_purgatory_callbacks.py",
    "tests/unit/purgatory/test_meetings.py",
]

MUTATIONS = {
    "what comes down from a higher level runs at once": Mutation(
        "timer/system_timer.py", "if not self.wheel.add(entry):", "if True:"
    ),
    "what is due with the next tick runs with this one": Mutation(
        "timer/timing_wheel.py",
        "entry.cancelled or expiration_ms < self.current_time_ms + self.tick_ms",
        "entry.cancelled or expiration_ms < self.current_time_ms + 2 * self.tick_ms",
    ),
    "a level reaches one tick too far": Mutation(
        "timer/timing_wheel.py",
        "while expiration_ms >= wheel.current_time_ms + wheel.interval_ms",
        "while expiration_ms > wheel.current_time_ms + wheel.interval_ms",
    ),
    "a bucket is queued under its last expiration": Mutation(
        "timer/timing_wheel.py",
        "bucket.set_expiration(virtual_id * wheel.tick_ms)",
        "bucket.set_expiration(bucket.expiration_ms + wheel.interval_ms)",
    ),
    "the condition is not tried again after watching": Mutation(
        "purgatory/purgatory.py",
        "self._watch(operation, keys) and operation.safe_try_complete()",
        "self._watch(operation, keys) and False",
    ),
    "everybody who completes an operation wins": Mutation(
        "purgatory/delayed_operation.py",
        "self._completed = True\n        _complete(self, expired=False)",
        "self._completed = False\n        _complete(self, expired=False)",
    ),
    "a completion that comes during a check is forgotten": Mutation(
        "purgatory/delayed_operation.py",
        "self._asked_by = asking if unasked or self._asked_by == asking else SEVERAL",
        "self._asked_by = NOBODY",
    ),
    "a completed operation stays in the timer": Mutation(
        "purgatory/delayed_operation.py", "    operation.cancel()\n", ""
    ),
    "a completion inside of a completion inside of a completion runs there": Mutation(
        "purgatory/delayed_operation.py", "if completing.line is not None:", "if False:"
    ),
    "a completion inside of another purgatory's begins no line": Mutation(
        "purgatory/delayed_operation.py",
        "elif completing.is_running:",
        "elif operation._counts is None or operation._counts.depth > 0:",
    ),
    "word that another thread leaves counts once, as a condition's own does": Mutation(
        "purgatory/delayed_operation.py",
        "if not looked_again or asked_by != get_ident():",
        "if not looked_again:",
    ),
    "what a condition asks for is forgotten": Mutation(
        "purgatory/purgatory.py", "                self._has_asked = True\n", ""
    ),
    "what a condition hands in when it is looked at again is forgotten": Mutation(
        "purgatory/purgatory.py", "return bool(self._asked_watches) or not", "return not"
    ),
    "what a callback raises is told to nobody": Mutation(
        "purgatory/purgatory.py", "            raise reduce(graver, failures)", "            pass"
    ),
    "a completion is told what others have raised": Mutation(
        "purgatory/purgatory.py",
        "failed = len(self._failures)\n        completed = self._look(watchers)",
        "failed = 0\n        completed = self._look(watchers)",
    ),
    "what a condition asks for is lost with a key that is refused": Mutation(
        "purgatory/purgatory.py", "self._after_look((), len", "self._after_look(keys, len"
    ),
    "what another thread says while a condition raises again is lost": Mutation(
        "purgatory/delayed_operation.py",
        "while self._asked_by not in (NOBODY, own) and",
        "if self._asked_by not in (NOBODY, own) and",
    ),
    "a check that is asked for during a check, or after it, is not made": Mutation(
        "purgatory/purgatory.py", "        self._asked.discard(asked)\n", ""
    ),
    "what completes in a check that was handed over is no news": Mutation(
        "purgatory/purgatory.py", "        if is_new:\n", "        if False:\n"
    ),
    "the owner's generation is that of other threads' words": Mutation(
        "purgatory/purgatory.py", "generation if asking is checks else 0,", "max(1, generation),"
    ),
    "what comes while the owner looks is slept over": Mutation(
        "timer/system_timer.py",
        "nap.expect()\n                self._empty_inbox(max_tasks)\n",
        "self._empty_inbox(max_tasks)\n                nap.expect()\n",
    ),
    "what is handed over fires behind what is due later": Mutation(
        "timer/system_timer.py",
        "self._empty_inbox(max_tasks)\n        self._read_clock()\n        if timeout_ms",
        "self._read_clock()\n        self._empty_inbox(max_tasks)\n        if timeout_ms",
    ),
    "a key outlives its operations": Mutation(
        "purgatory/purgatory.py", "            del self._watchers[key]\n", "            pass\n"
    ),
}
MUTANTS = Mutants(MUTATIONS, TESTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS.names)
def test_a_mutant_is_noticed(tmp_path: Path, name: str) -> None:
    """The tests would let somebody break just this."""
    MUTANTS.hold(name, tmp_path)
