"""A timing wheel to look at: a timer, named tasks, and their events.

`WheelShow` moves a real `MockTimer` of `odradek.timer` and records its events; nothing here is a
model of the wheel. A `Snapshot` is all that a drawing needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from odradek.timer import MockTimer, TimerTask

EVENTS_KEPT: Final = 200
MOST_DIGITS: Final = 15


class CommandError(ValueError):
    """A command of a show that cannot be read or does not apply."""


class Placed(NamedTuple):
    """A pending task and where it is; levels count from 1."""

    name: str
    level: int
    slot: int
    expiration_ms: int
    bucket_due_ms: int


class Level(NamedTuple):
    """One wheel: how wide its buckets are, where its hand is, what each bucket holds."""

    tick_ms: int
    hand_slot: int
    counts: tuple[int, ...]


class Snapshot(NamedTuple):
    """The whole wheel at one moment."""

    now_ms: int
    next_due_ms: int | None
    levels: tuple[Level, ...]
    tasks: tuple[Placed, ...]
    events: tuple[str, ...]


class NamedTask(TimerTask):
    """A task that tells the show when it fires."""

    def __init__(self, name: str, delay_ms: int, fired: Callable[[str], object]) -> None:
        super().__init__(delay_ms)
        self.name = name
        self._fired = fired

    def run(self) -> None:
        """Tells the show."""
        self._fired(self.name)


class WheelShow:
    """A wheel that starts at 0 and is moved by commands."""

    def __init__(self, tick_ms: int = 1, wheel_size: int = 20) -> None:
        self._timer = MockTimer(tick_ms, wheel_size)
        self._tasks: dict[str, NamedTask] = {}
        self._events: list[str] = []

    @property
    def now_ms(self) -> int:
        """The time on the wheel."""
        return self._timer.now_ms

    @property
    def names(self) -> list[str]:
        """The pending tasks, the oldest first."""
        return list(self._tasks)

    def do(self, command: str) -> None:
        """Carries out `add NAME MS`, `cancel NAME`, `step MS` or `next`.

        Raises:
            CommandError: there is no such command, or no such task.
        """
        match command.split():
            case ["add", name, delay_ms]:
                self.add(name, number(delay_ms))
            case ["cancel", name]:
                self.cancel(name)
            case ["step", duration_ms]:
                self.step(number(duration_ms))
            case ["next"]:
                self.next_bucket()
            case _:
                raise CommandError(f"not a command: {command!r}")

    def add(self, name: str, delay_ms: int) -> None:
        """Starts a task; a task of the same name is restarted."""
        before = self._tasks.get(name)
        if before is not None:
            before.cancel()
        task = NamedTask(name, delay_ms, self._on_fired)
        self._tasks[name] = task
        self._note(f"{name} is added with {delay_ms} ms")
        self._timer.add(task)

    def cancel(self, name: str) -> None:
        """Cancels a task.

        Raises:
            CommandError: no task of that name is pending.
        """
        task = self._tasks.pop(name, None)
        if task is None:
            raise CommandError(f"no task {name!r} is pending")
        task.cancel()
        self._note(f"{name} is cancelled")

    def step(self, duration_ms: int) -> None:
        """Moves the clock on, bucket by bucket, and records the tasks that fire and those that move
        to a lower level.
        """
        until_ms = self.now_ms + duration_ms
        while True:
            due_ms = self._timer.next_due_ms()
            target_ms = until_ms if due_ms is None else min(due_ms, until_ms)
            levels_before = {one.name: one.level for one in self._placed()}
            self._timer.advance_clock(target_ms - self.now_ms)
            for one in self._placed():
                before = levels_before.get(one.name, one.level)
                if one.level < before:
                    left_ms = one.expiration_ms - self.now_ms
                    place = f"level {before} to {one.level}, slot {one.slot}"
                    self._note(f"{one.name} moves down from {place}: {left_ms} ms left")
            if self.now_ms >= until_ms:
                return

    def next_bucket(self) -> None:
        """Moves the clock to the next due bucket; nothing happens when nothing is pending."""
        due_ms = self._timer.next_due_ms()
        if due_ms is not None:
            self.step(due_ms - self.now_ms)

    def snapshot(self) -> Snapshot:
        """The wheel as it is now."""
        levels = tuple(
            Level(
                wheel.tick_ms,
                # The time of the clock: the wheel itself moves its hand only when it must.
                self.now_ms // wheel.tick_ms % wheel.wheel_size,
                tuple(len(bucket.tasks()) for bucket in wheel.buckets),
            )
            for wheel in self._timer.wheel.levels()
        )
        tasks = tuple(sorted(self._placed(), key=lambda one: (one.expiration_ms, one.name)))
        return Snapshot(self.now_ms, self._timer.next_due_ms(), levels, tasks, tuple(self._events))

    def _placed(self) -> list[Placed]:
        return [
            Placed(task.name, level, slot, task.expiration_ms, bucket.expiration_ms)
            for level, wheel in enumerate(self._timer.wheel.levels(), 1)
            for slot, bucket in enumerate(wheel.buckets)
            for task in bucket.tasks()
            if isinstance(task, NamedTask)
        ]

    def _on_fired(self, name: str) -> None:
        self._tasks.pop(name, None)
        self._note(f"{name} fires")

    def _note(self, event: str) -> None:
        self._events.append(f"{self.now_ms} ms: {event}")
        del self._events[:-EVENTS_KEPT]


def number(text: str) -> int:
    """Reads a number of milliseconds.

    Raises:
        CommandError: it is not a whole number, it is negative, or beyond what a wheel counts.
    """
    if not text.isascii() or not text.isdigit() or len(text) > MOST_DIGITS:
        raise CommandError(f"not a number of milliseconds: {text!r}")
    return int(text)
