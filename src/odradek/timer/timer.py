"""The behaviour of every timer, whatever moves its clock.

Code that waits takes a `Timer` and does not care which: `SystemTimer` follows a `Clock`,
`MockTimer` goes where its caller says.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from odradek.timer.timer_task import TimerTask


@mypyc_attr(allow_interpreted_subclasses=True)
class Timer:
    """Runs tasks when their delay is over. All durations are in milliseconds.

    The owner, one thread or event loop, calls everything; other threads may call
    `add_threadsafe` and `call_threadsafe`, and `TimerTask.cancel`.
    """

    def add(self, task: TimerTask) -> None:
        """Runs the task `task.delay_ms` from now; at once when that is due already.

        A task that is pending is moved to its new deadline. A closed timer takes nothing.
        """
        raise NotImplementedError

    def add_threadsafe(self, task: TimerTask) -> None:
        """Like `add`, from any thread: hands the task to the owner; its delay counts from now."""
        raise NotImplementedError

    def call_threadsafe(self, action: Callable[[], object]) -> None:
        """Calls `action` at the owner's next turn, from any thread."""
        raise NotImplementedError

    def advance_clock(self, timeout_ms: int) -> bool:
        """Runs what is due; waits at most `timeout_ms` for something to be.

        True when a bucket of the wheel was due, even if its tasks only moved down a level.
        """
        raise NotImplementedError

    @property
    def size(self) -> int:
        """How many tasks are pending."""
        raise NotImplementedError

    @property
    def now_ms(self) -> int:
        """The clock that delays are counted on."""
        raise NotImplementedError

    def next_due_ms(self) -> int | None:
        """When `advance_clock` next has something to do; None when nothing is pending."""
        raise NotImplementedError

    @property
    def closed(self) -> bool:
        """Whether the timer was closed."""
        raise NotImplementedError

    def close(self) -> None:
        """Discards pending tasks; afterwards the timer accepts none."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """The same as `close`, by Kafka's name."""
        self.close()
