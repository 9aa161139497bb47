"""Inbox: the hand-overs of other threads to the owner of a timer.

Another thread puts first and then looks whether the owner was notified; the owner clears the
notification before it takes anything out. So it either still finds what was put in, or is notified
once more. So nothing is lost, and a batch of hand-overs tells the owner once.

Each hand-over of a task has a number. It is void when a later one, or a call of the owner about the
task, has raised the task's number since.

The owner takes out only what the inbox holds when it opens it, and of that a limited number. Taking
later hand-overs as well would never end while another thread is faster.
"""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from odradek.timer.timer_task import TimerTask


@final
class Inbox:
    """Tasks and when they are due. Any thread puts in; the owner opens, takes and shuts."""

    __slots__ = ("_queue", "_told")

    def __init__(self) -> None:
        self._queue: deque[tuple[TimerTask, int, int]] = deque()
        self._told = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take."""
        return not self._queue

    def put(self, task: TimerTask, expiration_ms: int) -> bool:
        """Hands a task over, from any thread; returns whether to notify the owner."""
        task.hand_overs += 1
        self._queue.append((task, expiration_ms, task.hand_overs))
        return self._must_tell()

    def open(self, max_tasks: i64) -> i64:
        """Clears the notification; returns how many tasks the owner may `take` now."""
        self._told = False
        waiting: i64 = len(self._queue)
        return min(waiting, max_tasks)

    def take(self) -> tuple[TimerTask, int, int]:
        """The next task, when it is due, and the number of its hand-over; `open` returned that
        there is one."""
        return self._queue.popleft()

    def shut(self) -> bool:
        """Whether to notify the owner again, of hand-overs that were left or have come
        meanwhile."""
        return len(self._queue) > 0 and self._must_tell()

    def clear(self) -> None:
        """Forgets everything."""
        self._queue.clear()

    def _must_tell(self) -> bool:
        if self._told:
            return False
        self._told = True
        return True
