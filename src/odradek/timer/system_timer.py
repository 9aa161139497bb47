"""SystemTimer: a timing wheel that follows a clock.

The clock moves the wheel from bucket to bucket: `advance_clock` takes the due ones from the
queue, moves the hands to each, and empties it; a task that still has time left is added
again from the lowest level (demotion), any other runs. Between due buckets nothing happens.

Rules that are easy to break:

- Tasks run one after another, on the owner, and never inside one another: a task that a running one
  adds with no time left waits in `_ready` until that one has returned.
- A task runs *after* it has left its bucket, so it may add itself again.
- An exception of a task is reported to `on_error` once, and the wheel continues. KeyboardInterrupt
  and SystemExit pass through; tasks not reached yet run at the next call.
- With `max_tasks` a call stops after so many cells, in the middle of a bucket if need be,
  which then stays in hand for the next call: ten million tasks due at one moment do not keep
  an event loop from its other work. `next_due_ms` says "now" as long as something is left.
  It takes as many hand-overs at most (`inbox`).
- Time never goes back. While a clock stands still or jumps back, nothing fires and nothing
  is lost; when it has caught up, the rest is due.

It does not run by itself: see `AsyncioDriver`, or call `advance_clock`, which may sleep (`nap`).
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable
from typing import Final, cast

from mypy_extensions import i64, mypyc_attr

from odradek.clock import Clock, SystemClock, within_bounds
from odradek.timer.inbox import Inbox
from odradek.timer.nap import Nap
from odradek.timer.timer import Timer
from odradek.timer.timer_task import MAX_DELAY_MS, TimerTask, TimerTaskList, clamp
from odradek.timer.timing_wheel import BucketQueue, TimingWheel

UNLIMITED: Final = 2**62
"""As `max_tasks`: continue until nothing is due."""

_log = logging.getLogger(__name__)


def log_error(task: TimerTask, error: BaseException) -> None:
    """Logs a task's exception when there is no other handler."""
    _log.error("a timer task failed: %r", task, exc_info=error)


def is_interrupt(error: BaseException) -> bool:
    """Whether an exception ends the whole program, as KeyboardInterrupt does, and is no failure of
    one task. A CancelledError, of a future that a task asks for its result, is a failure of the
    task, as in an event loop."""
    return not isinstance(error, (Exception, CancelledError))


@mypyc_attr(allow_interpreted_subclasses=True)
class SystemTimer(Timer):
    """A `Timer` over a `Clock`.

    The driver of the timer sets `wake_ms`, the moment at which it will look by itself (with nothing
    pending `NEVER_MS`, without a driver 0), and two callbacks: `on_earlier` is called on the owner
    when a bucket is filled that is due before `wake_ms`, `on_handed_over` on the thread that handed
    something over, once per batch.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        tick_ms: int = 1,
        wheel_size: int = 20,
        on_error: Callable[[TimerTask, BaseException], object] = log_error,
    ) -> None:
        """Makes a timer whose wheel starts at the clock's present moment.

        Raises:
            ValueError: see `TimingWheel`.
        """
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.on_error = on_error
        self.wake_ms: i64 = 0
        self.on_earlier: Callable[[], object] | None = None
        self.on_handed_over: Callable[[], object] | None = None
        # Called for each task that runs, with the time and the milliseconds after its deadline.
        self.on_ran: Callable[[int, int], object] | None = None
        # The same clock where its type is known: compiled, that is a direct call.
        self._system_clock = self.clock if type(self.clock) is SystemClock else None
        self._now_ms: i64 = within_bounds(self.clock.monotonic_ms())
        self._queue = BucketQueue()
        self.wheel = TimingWheel(tick_ms, wheel_size, self._now_ms, None, self._queue)
        self._counter = self.wheel.counter
        self._ready = TimerTaskList(self._counter)
        self._in_hand: TimerTaskList | None = None
        self._running = False
        self._closed = False
        self._inbox = Inbox()
        self._nap = Nap(self.clock)

    @property
    def size(self) -> int:
        """How many tasks are pending, those that are due and have not run yet among them."""
        return self._counter.pending

    @property
    def now_ms(self) -> int:
        """The clock's monotonic time, or the latest seen if it went back."""
        return self._read_clock()

    @property
    def closed(self) -> bool:
        """Whether the timer was closed."""
        return self._closed

    def add(self, task: TimerTask) -> None:
        """Runs the task `task.delay_ms` from now; at once when that is due already."""
        task.cancelled = False
        if task.hand_overs > 0:
            task.hand_overs += 1  # a hand-over that waits to be taken was before this
        if not -1 <= task.delay_ms <= MAX_DELAY_MS:
            task.delay_ms = clamp(task.delay_ms)
        if not self._place(task, self._read_clock() + task.delay_ms) and not self._running:
            task.remove()
            self._run(task)
            # The driver was not notified of tasks that were added meanwhile.
            if self._queue.first_due_ms < self.wake_ms or not self._ready.empty:
                self._tell_earlier()

    def _place(self, task: TimerTask, expiration_ms: i64) -> bool:
        """Puts the task into the wheel, or into `_ready` (False) when it is due already."""
        if self._closed:
            task.cancel()
            return True
        if task.bucket is not None:
            task.remove()
        task.expiration_ms = expiration_ms
        wheel, now_ms, first_due_ms = self.wheel, self._now_ms, self._queue.first_due_ms
        # An idle wheel lags behind the clock, and from there near deadlines look far.
        if wheel.current_time_ms < now_ms < first_due_ms and self._in_hand is None:
            wheel.advance_clock(now_ms)
        # With a backlog the hands lag as well; a task that is due by the clock still runs at once.
        if expiration_ms <= now_ms or not wheel.add(task):
            self._ready.add(task)
            return False
        bucket = task.bucket
        if bucket is not None and bucket.expiration_ms < self.wake_ms:
            self._tell_earlier()
        return True

    def _tell_earlier(self) -> None:
        if self.on_earlier is not None and not self._running:
            self.on_earlier()

    def add_threadsafe(self, task: TimerTask) -> None:
        """Hands the task to the owner; its delay counts from now."""
        if self._closed:
            task.cancel()
            return
        task.cancelled = False
        task.delay_ms = clamp(task.delay_ms)
        # From the latest time seen, as the owner counts, if the clock went back.
        now_ms = max(self._now_ms, within_bounds(self.clock.monotonic_ms()))
        if self._inbox.put(task, now_ms + task.delay_ms):
            self._tell_handed_over()

    def _tell_handed_over(self) -> None:
        self._nap.wake()
        if self.on_handed_over is not None:
            self.on_handed_over()

    def call_threadsafe(self, action: Callable[[], object]) -> None:
        """Calls `action` when the owner next advances the clock."""
        self.add_threadsafe(TimerTask(0, action))

    def _empty_inbox(self, max_tasks: i64) -> None:
        for _ in range(self._inbox.open(max_tasks)):
            task, expiration_ms, number = self._inbox.take()
            if not task.cancelled and task.hand_overs == number:
                self._place(task, expiration_ms)
        if self._inbox.shut():
            self._tell_handed_over()

    def advance_clock(self, timeout_ms: int) -> bool:
        """Runs all that is due, after waiting at most `timeout_ms` for something to be."""
        return self.advance(timeout_ms, UNLIMITED)

    def advance(self, timeout_ms: int, max_tasks: int) -> bool:
        """Like `advance_clock`, and stops after `max_tasks` tasks, run or moved down a level.

        With no limit, a task that adds itself again with no delay never ends.
        """
        self._empty_inbox(max_tasks)
        self._read_clock()
        if timeout_ms > 0 and not self._something_due():
            self._wait(timeout_ms, max_tasks)
        return self._fire(max_tasks)

    def _something_due(self) -> bool:
        return (
            self._queue.first_due_ms <= self._now_ms
            or self._in_hand is not None
            or not self._ready.empty
        )

    def _wait(self, timeout_ms: int, max_tasks: i64) -> None:
        """Sleeps until something is due or the time is over; takes hand-overs meanwhile."""
        until_ms = self._now_ms + min(timeout_ms, MAX_DELAY_MS)
        nap = self._nap
        nap.lie_down()
        try:
            woken = True
            while woken and not self._closed:
                nap.expect()
                self._empty_inbox(max_tasks)
                self._read_clock()
                sleep_ms = min(until_ms, self._queue.first_due_ms) - self._now_ms
                if sleep_ms <= 0 or self._something_due():
                    break
                woken = nap.sleep(sleep_ms)
        finally:
            nap.get_up()
        self._read_clock()

    def _fire(self, max_tasks: i64) -> bool:
        """Runs and demotes at most `max_tasks`; True when a bucket was due."""
        if self._running:
            return False  # a task may not advance the timer that runs it
        any_due = False
        left = max_tasks
        while left > 0:
            bucket = self._in_hand
            if bucket is None:
                bucket = self._next_bucket()
            if bucket is not None:
                any_due = True
                entry = bucket.poll()
                if entry is None:
                    self._in_hand = None
                    continue
                if not self.wheel.add(entry):
                    self._run(cast(TimerTask, entry))
                elif entry.cancelled:  # by another thread, on its way down
                    entry.remove()
            else:
                entry = self._ready.poll()
                if entry is None:
                    break
                self._run(cast(TimerTask, entry))
            left -= 1
        if self._in_hand is not None and self._in_hand.empty:
            self._in_hand = None
        return any_due

    def _next_bucket(self) -> TimerTaskList | None:
        """Takes the next due bucket in hand and moves the hands of the wheel to it."""
        bucket = self._queue.poll(self._now_ms)
        if bucket is not None:
            self.wheel.advance_clock(bucket.expiration_ms)
            bucket.unqueue()
            self._in_hand = bucket
        return bucket

    def _run(self, task: TimerTask) -> None:
        if task.cancelled:  # by another thread, since it was found to be due
            return
        if self.on_ran is not None:
            self.on_ran(self._now_ms, self._now_ms - task.expiration_ms)
        self._running = True
        try:
            task.run()
        except BaseException as error:
            if is_interrupt(error):
                raise
            self.on_error(task, error)  # a task's failure must not stop the others
        finally:
            self._running = False

    def tasks(self) -> list[TimerTask]:
        """The pending tasks, the first that is due first; a look at all of them, for people."""
        found = self._ready.tasks() + self.wheel.tasks()
        return sorted((cast(TimerTask, one) for one in found), key=expiration_of)

    @property
    def is_idle(self) -> bool:
        """Whether `advance_clock` has nothing to do now: nothing is due, nothing handed over."""
        self._read_clock()
        return self._closed or (self._inbox.is_empty and not self._something_due())

    def next_due_ms(self) -> int | None:
        """When `advance_clock` next has something to do; None when nothing is pending."""
        if not (self._inbox.is_empty or self._closed):
            return self._now_ms
        if self._counter.pending == 0:
            return None
        if self._in_hand is not None or not self._ready.empty:
            return self._now_ms
        return self._queue.first_filled_due_ms()

    def _read_clock(self) -> i64:
        system_clock = self._system_clock
        if system_clock is not None:
            now_ms: i64 = system_clock.monotonic_ms()
        else:
            now_ms = within_bounds(self.clock.monotonic_ms())
        if now_ms > self._now_ms:
            self._now_ms = now_ms
        return self._now_ms

    def close(self) -> None:
        """Discards pending tasks; later ones are not accepted."""
        if self._closed:
            return
        self._closed = True
        self._inbox.clear()
        self._in_hand = None
        self._ready.close()
        self.wheel.close()
        self._nap.wake()


def expiration_of(task: TimerTask) -> int:
    """The key that tasks sort by."""
    return task.expiration_ms
