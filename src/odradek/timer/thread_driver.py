"""ThreadDriver: a thread that owns a timer, for programs without an event loop.

The thread sleeps until the next bucket is due and runs the tasks; with nothing pending it is
never woken. Everybody else hands over: `Timer.add_threadsafe`, `Timer.call_threadsafe`,
`TimerTask.cancel`. What is due runs in slices, between which hand-overs are taken, so that
tasks that never come to an end do not keep the thread from being stopped.
"""

from __future__ import annotations

import threading

from odradek.timer.system_timer import ONE_DAY_MS, SystemTimer


class ThreadDriver:
    """Advances `timer` on a thread of its own, from `start` to `stop`; once only.

    Also a context manager. The thread is a daemon: it does not keep a program alive. It ends
    by itself when a task closes the timer.
    """

    def __init__(self, timer: SystemTimer, name: str = "timer", slice_tasks: int = 1000) -> None:
        """`slice_tasks`: after so many tasks the thread looks at what was handed over."""
        self._timer = timer
        self._slice_tasks = slice_tasks
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        """Hands the timer over to the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and waits for it; the timer belongs to the caller again.

        What is pending stays so. To be called by another thread than the timer's.
        """
        self._timer.call_threadsafe(self._leave)
        self._thread.join()

    def _leave(self) -> None:
        self._stopping = True

    def _work(self) -> None:
        while not self._stopping and not self._timer.closed:
            self._timer.advance(ONE_DAY_MS, self._slice_tasks)

    def __enter__(self) -> ThreadDriver:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
