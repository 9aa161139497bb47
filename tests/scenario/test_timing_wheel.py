"""The worked examples of the timing wheel, told step by step and compared to the letter.

A file of `testdata/timing_wheel/` is a story: comments, blocks of commands, and after `----` what
they showed. Commands: `wheel tick_ms=T size=N`, `add NAME delay_ms=D`, `cancel NAME`,
`wait ms=N` (the clock is moved, then everything due runs), `show` (each pending task: level
from 1, slot, and when its bucket is due), `queue` (the queued buckets).

`ODRADEK_REWRITE=1` writes the outcomes into the files: read the difference before keeping it.
"""

import os
from pathlib import Path

import pytest

from odradek.clock import ManualClock
from odradek.timer import SystemTimer, TimerTask, TimerTaskEntry

STORIES = sorted((Path(__file__).parent / "testdata" / "timing_wheel").glob("*.txt"))


class NamedTask(TimerTask):
    """A task that writes down when it ran."""

    def __init__(self, name: str, delay_ms: int, story: "Story") -> None:
        super().__init__(delay_ms)
        self.name = name
        self.story = story

    def run(self) -> None:
        self.story.lines.append(f"ran {self.name} at={self.story.clock.monotonic_ms()}")


class Story:
    """A timer, its clock, and what was shown since the last block."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tasks: dict[str, NamedTask] = {}
        self.wheel(tick_ms=1, size=20)

    def wheel(self, tick_ms: int, size: int) -> None:
        self.clock = ManualClock()
        self.timer = SystemTimer(self.clock, tick_ms, size)

    def add(self, name: str, delay_ms: int) -> None:
        self.tasks[name] = NamedTask(name, delay_ms, self)
        self.timer.add(self.tasks[name])

    def cancel(self, name: str) -> None:
        self.tasks[name].cancel()

    def wait(self, ms: int) -> None:
        self.clock.advance(ms)
        any_due = self.timer.advance_clock(0)
        self.lines.append(f"now={self.timer.now_ms} bucket_due={'yes' if any_due else 'no'}")

    def show(self) -> None:
        for level, wheel in enumerate(self.timer.wheel.levels(), 1):
            for slot, bucket in enumerate(wheel.buckets):
                for task in bucket.tasks():
                    self.lines.append(self._place(task, level, slot, bucket.expiration_ms))
        self.lines.append(f"size={self.timer.size} next_due={self.timer.next_due_ms()}")

    def _place(self, task: TimerTaskEntry, level: int, slot: int, bucket_due_ms: int) -> str:
        assert isinstance(task, NamedTask)
        left_ms = task.expiration_ms - self.timer.now_ms
        return f"{task.name}: level={level} slot={slot} bucket_due={bucket_due_ms} left={left_ms}"

    def queue(self) -> None:
        due = [str(bucket.expiration_ms) for bucket in self.timer.wheel.queue.buckets()]
        self.lines.append(f"queue={' '.join(due) if due else 'empty'}")

    def do(self, command: str) -> None:
        verb, *words = command.split()
        names = [word for word in words if "=" not in word]
        numbers = {key: int(value) for key, value in (w.split("=") for w in words if "=" in w)}
        getattr(self, verb)(*names, **numbers)


def retell(text: str) -> str:
    """Runs the commands of a story; the story with what really happened."""
    story = Story()
    told: list[str] = []
    for block in text.strip().split("\n\n"):
        commands = block.split("\n----")[0]
        story.lines = []
        for line in commands.splitlines():
            if not line.startswith("#"):
                story.do(line)
        told.append("\n".join([commands, "----", *story.lines]) if story.lines else commands)
    return "\n\n".join(told) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    """The wheel no longer does what its theory says; the story shows from which step on."""
    written = path.read_text(encoding="utf-8")
    told = retell(written)
    if os.environ.get("ODRADEK_REWRITE"):
        path.write_text(told, encoding="utf-8")
    assert told == written
