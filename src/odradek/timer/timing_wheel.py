"""The hierarchical timing wheel: any number of time-outs, started and cancelled in O(1).

Theory
    A wheel is a ring of buckets, each `tick_ms` wide. Time is a hand that moves over them. A task
    that is due within one turn goes into the bucket of its deadline; when the hand reaches that
    bucket, everything in it is due. Nothing is ever sorted; a heap spends O(log n) on that, for
    deadlines that are nearly all cancelled in time.

    One turn of 20 buckets of 1 ms is 20 ms. Later deadlines go to an *overflow wheel*, created when
    first needed, whose bucket is as wide as this wheel's whole turn: 20 buckets of 20 ms, then of
    400 ms, 8 s, 160 s, and so on. When a bucket of an overflow wheel is reached its tasks are
    *demoted*: added again from the lowest wheel, where the time that is left to them now has room.
    Eight wheels span most of a year.

Picture (tick 1 ms, 20 buckets, at time 0; the tasks are due after 2, 350 and 450 ms)

    level 1   tick   1 ms  |  |  |2 |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |
    level 2   tick  20 ms  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |350  |  |  |
    level 3   tick 400 ms  |  |450  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |

Worked example, the task of 450 ms
    Level 1 reaches up to 20 ms and level 2 up to 400 ms, so it goes to level 3, slot 1, with
    all else that is due in [400, 800). The bucket is due at 400: then 50 ms are left, which
    is level 2, slot 2, the bucket of [440, 460). At 440 there are 10 ms left, which is level
    1, slot 10. At 450 that bucket is reached and the task runs. Two demotions, whatever the
    number of other tasks.

Cost
    start     O(levels), and levels grow with the logarithm of the longest delay
    cancel    O(1): unlinking a cell (`timer_task`)
    a tick    nothing at all while no bucket is due: the hand jumps from bucket to bucket,
              and the *buckets*, at most `wheel_size` a level, are what is kept in a heap

    A heap entry is made when a bucket gets a new expiration, so once for all tasks that
    share it. A bucket that cancelling has emptied stays queued until it is due.

Precision
    A deadline is cut down to a whole `tick_ms`. With a tick of 1 ms a task never runs before
    its millisecond; with a tick of t it may run up to t - 1 ms early.

Threads
    One owner: the thread or event loop that also advances it. There are no locks. Other
    threads hand over through the timer (`Timer.add_threadsafe`); they may call
    `TimerTask.cancel`, and nothing else here.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from odradek.clock import FARTHEST_MS
from odradek.timer.timer_task import TaskCounter, TimerTaskEntry, TimerTaskList

NEVER_MS: Final = 2**62
"""Later than every moment; when nothing is queued, this is when the first bucket is due."""
LONGEST_INTERVAL_MS: Final = 2**60
MOST_BUCKETS: Final = 2**20
"""How many buckets a level has at most: all of them are made with it, some 100 MiB by then."""


class BucketQueue:
    """The delay queue: buckets of all levels in the order in which they are due.

    It holds buckets and never tasks, so its length is bounded by the number of buckets.
    """

    __slots__ = ("_heap", "_sequence", "first_due_ms")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TimerTaskList]] = []
        self._sequence = 0
        # When the first bucket is due, or NEVER_MS; kept apart because `add` looks at it.
        self.first_due_ms: i64 = NEVER_MS

    def __len__(self) -> int:
        return len(self._heap)

    def offer(self, bucket: TimerTaskList) -> None:
        """Queues a bucket under its present expiration."""
        expiration_ms = bucket.expiration_ms
        # The sequence keeps buckets of one moment in order and from being compared.
        self._sequence += 1
        heappush(self._heap, (expiration_ms, self._sequence, bucket))
        if expiration_ms < self.first_due_ms:
            self.first_due_ms = expiration_ms

    def poll(self, now_ms: i64) -> TimerTaskList | None:
        """Takes out the first bucket that is due at `now_ms`; None when none is."""
        if self.first_due_ms > now_ms:
            return None
        _, _, bucket = heappop(self._heap)
        self.first_due_ms = self._heap[0][0] if self._heap else NEVER_MS
        return bucket

    def first_filled_due_ms(self) -> int:
        """When the first bucket that still has a task is due; `NEVER_MS` when none has."""
        if not self._heap:
            return NEVER_MS
        expiration_ms, _, bucket = self._heap[0]
        if not bucket.empty:
            return expiration_ms
        return min((due for due, _, bucket in self._heap if not bucket.empty), default=NEVER_MS)

    def buckets(self) -> list[TimerTaskList]:
        """The queued buckets in the order in which they are due."""
        return [bucket for _, _, bucket in sorted(self._heap)]

    def clear(self) -> None:
        """Forgets every bucket."""
        self._heap.clear()
        self.first_due_ms = NEVER_MS


class TimingWheel:
    """One level, and the way to the levels above it.

    All levels share one queue of buckets and one counter of pending tasks. Level 1 is the
    one that callers hold.
    """

    __slots__ = (
        "_overflow_wheel",
        "buckets",
        "counter",
        "current_time_ms",
        "interval_ms",
        "queue",
        "tick_ms",
        "wheel_size",
    )

    def __init__(
        self,
        tick_ms: int = 1,
        wheel_size: int = 20,
        start_ms: int = 0,
        counter: TaskCounter | None = None,
        queue: BucketQueue | None = None,
    ) -> None:
        """Makes one level, its hand at `start_ms` cut down to a whole tick.

        Raises:
            ValueError: the tick is under 1 ms or longer than any interval, or the wheel has
                fewer than 2 buckets (it could not tell now from later) or more than memory
                holds (`MOST_BUCKETS`); or it begins later than any clock can.
        """
        if not -FARTHEST_MS <= start_ms <= FARTHEST_MS:
            raise ValueError(f"no clock reads {start_ms} ms")
        if not 1 <= tick_ms <= LONGEST_INTERVAL_MS:
            raise ValueError(f"a tick lasts 1 to {LONGEST_INTERVAL_MS} ms, not {tick_ms}")
        if not 2 <= wheel_size <= MOST_BUCKETS:
            raise ValueError(f"a wheel has 2 to {MOST_BUCKETS} buckets, not {wheel_size}")
        self.tick_ms: i64 = tick_ms
        self.wheel_size: i64 = wheel_size
        # A level so wide that nothing can lie beyond it needs no wider figure.
        self.interval_ms: i64 = min(tick_ms * wheel_size, LONGEST_INTERVAL_MS)
        self.current_time_ms: i64 = start_ms - start_ms % tick_ms
        self.counter = counter if counter is not None else TaskCounter()
        self.queue = queue if queue is not None else BucketQueue()
        self.buckets = [TimerTaskList(self.counter) for _ in range(wheel_size)]
        self._overflow_wheel: TimingWheel | None = None

    def add(self, entry: TimerTaskEntry) -> bool:
        """Puts a cell into the bucket of its `expiration_ms`.

        False if it was cancelled or is already due: then it is in no bucket, and the caller runs it
        if it is due.
        """
        expiration_ms = entry.expiration_ms
        if entry.cancelled or expiration_ms < self.current_time_ms + self.tick_ms:
            return False
        wheel = self
        while expiration_ms >= wheel.current_time_ms + wheel.interval_ms:
            above = wheel._overflow_wheel
            wheel = above if above is not None else wheel.overflow_wheel()
        virtual_id = expiration_ms // wheel.tick_ms
        bucket = wheel.buckets[virtual_id % wheel.wheel_size]
        bucket.add(entry)
        if bucket.set_expiration(virtual_id * wheel.tick_ms):
            wheel.queue.offer(bucket)
        return True

    def advance_clock(self, time_ms: i64) -> None:
        """Moves the hands of all levels to `time_ms`, cut down to each level's tick.

        Time that does not reach the next tick, or goes back, moves nothing. Every bucket due
        by then must have been taken from the queue.
        """
        wheel: TimingWheel | None = self
        while wheel is not None and time_ms >= wheel.current_time_ms + wheel.tick_ms:
            time_ms -= time_ms % wheel.tick_ms
            wheel.current_time_ms = time_ms
            wheel = wheel._overflow_wheel

    def overflow_wheel(self) -> TimingWheel:
        """The next level, made when first needed.

        Raises:
            ValueError: this one reaches beyond every deadline that there can be.
        """
        if self.interval_ms == LONGEST_INTERVAL_MS:
            raise ValueError(f"nothing is due {self.interval_ms} ms after {self.current_time_ms}")
        if self._overflow_wheel is None:
            self._overflow_wheel = TimingWheel(
                self.interval_ms, self.wheel_size, self.current_time_ms, self.counter, self.queue
            )
        return self._overflow_wheel

    def levels(self) -> list[TimingWheel]:
        """The levels made so far, the lowest first."""
        found = [self]
        wheel = self._overflow_wheel
        while wheel is not None:
            found.append(wheel)
            wheel = wheel._overflow_wheel
        return found

    def tasks(self) -> list[TimerTaskEntry]:
        """Lists the tasks in the buckets of all levels, in no order."""
        return [
            task for wheel in self.levels() for bucket in wheel.buckets for task in bucket.tasks()
        ]

    def close(self) -> None:
        """Unlinks every task that is left; the wheel is of no more use."""
        self.queue.clear()
        for wheel in self.levels():
            for bucket in wheel.buckets:
                bucket.close()
