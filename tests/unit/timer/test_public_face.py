"""Timers and purgatories as programs outside of the broker use them: names, shapes, examples."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.clock import ManualClock
from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.timer import MockTimer, SystemTimer, TimerTask, TimingWheel

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "timing-wheels.md"


class Waiting(DelayedOperation):
    """The operation of the interface's example."""

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.ready = False
        self.events: list[str] = []

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.events.append("complete")

    def on_expiration(self) -> None:
        self.events.append("expired")


def test_the_heart_on_its_own() -> None:
    """Programs written for this face would break."""
    ran: list[str] = []

    def callback() -> None:
        ran.append("ran")

    timer = MockTimer(tick_ms=1, wheel_size=20)
    task = TimerTask(350, callback)
    timer.add(task)
    task.cancel()
    timer.add(task)
    assert (timer.size, timer.now_ms, timer.next_due_ms()) == (1, 0, 340)
    timer.advance_clock(350)
    assert ran == ["ran"]
    assert (timer.size, timer.now_ms, timer.next_due_ms()) == (0, 350, None)

    purgatory = DelayedOperationPurgatory(
        "fetch", timer, broker_id=0, purge_interval=1000, reaper_enabled=True
    )
    operation = Waiting(100)
    assert not purgatory.try_complete_else_watch(operation, ["key", ("other", 1)])
    assert (purgatory.watched, purgatory.delayed) == (2, 1)
    operation.ready = True
    assert purgatory.check_and_complete("key") == 1
    assert operation.events == ["complete"]
    assert (purgatory.watched, purgatory.delayed) == (1, 0)


@pytest.mark.parametrize("name", ["add", "advance_clock", "size", "now_ms", "next_due_ms", "close",
                                  "shutdown", "add_threadsafe", "call_threadsafe"])  # fmt: skip
def test_both_timers_have_the_same_methods(name: str) -> None:
    """Tests of the one must run over the other."""
    assert hasattr(SystemTimer(ManualClock()), name)
    assert hasattr(MockTimer(), name)


def test_defaults_are_the_published_ones() -> None:
    """1 ms and 20 buckets: the worked examples count on them."""
    for wheel in (TimingWheel(), SystemTimer(ManualClock()).wheel, MockTimer().wheel):
        assert (wheel.tick_ms, wheel.wheel_size, wheel.interval_ms) == (1, 20, 20)


def test_the_pages_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The first thing that a newcomer copies must work."""
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == "350 ms are over\n"


def test_neither_brings_the_broker_along() -> None:
    """Somebody who only wants a timer must not load a broker, nor any package that it needs."""
    program = (
        "import sys, odradek.timer, odradek.purgatory; "
        "print(sorted({name.split('.')[1] for name in sys.modules if name.startswith('odradek.')}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['_lazy', '_pure', 'clock', 'purgatory', 'timer', 'version']\n"
