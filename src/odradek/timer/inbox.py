"""Inbox: what other threads hand over to the owner of a timer.

Putting comes before looking whether the owner was told, and the owner lays the word aside before
it takes anything out: whatever is put in is either still met, or the owner is told once more. So
nothing is lost, and a batch of hand-overs tells the owner once.

Each hand-over of a task bears a number of its own. It is void when a later one, or the owner's own
word about the task, has raised the task's number since.

The owner takes out only what is there when it opens the inbox, and of that only so much. To take
what comes meanwhile as well would never end while another thread puts in faster.
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
        """Hands a task over, from any thread; whether the owner is to be told of it."""
        task.hand_overs += 1
        self._queue.append((task, expiration_ms, task.hand_overs))
        return self._must_tell()

    def open(self, max_tasks: i64) -> i64:
        """Lays the word aside; how many tasks the owner may `take` now."""
        self._told = False
        waiting: i64 = len(self._queue)
        return min(waiting, max_tasks)

    def take(self) -> tuple[TimerTask, int, int]:
        """The next task, when it is due, and the number of its hand-over; `open` said that there
        is one."""
        return self._queue.popleft()

    def shut(self) -> bool:
        """Whether the owner is to be told of what was left, or has come meanwhile."""
        return len(self._queue) > 0 and self._must_tell()

    def clear(self) -> None:
        """Forgets everything."""
        self._queue.clear()

    def _must_tell(self) -> bool:
        if self._told:
            return False
        self._told = True
        return True
