"""One run of the benchmark: requests arrive, complete or time out, and are counted.

The requests are fake, so that what is measured is waiting: creating an operation, watching
it under its keys, the time-out, the completion, and getting rid of it.

One thread enqueues and owns the purgatory and its timer; it turns the timer at every new
millisecond. Completions come in one of two ways. `thread` is the published harness: a second
thread takes due operations from its own delay queue and completes them directly. `wheel` has
a second timing wheel, of the design's own language: ours on the owner, Kafka's on a thread of its
own. In both, only requests that complete before their time-out are put in.

`PurgatoryHarness.java` does the same step by step, so that what differs is the purgatory. Both
draw everything before the clock starts, sleep a millisecond when they are ahead, hand in what
is due in slices, with one look at the clock for each (which the conditions ask for), and keep
the delay queue of the completing thread as a ring of milliseconds.

This module is compiled with the package in one piece, as the broker's own operations are.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from typing import Final

from mypy_extensions import i64, mypyc_attr

from benchmarks.purgatory.queue_purgatory import QueuedOperation, QueuePurgatory
from odradek.clock import SystemClock
from odradek.purgatory.delayed_operation import DelayedOperation
from odradek.purgatory.purgatory import DelayedOperationPurgatory
from odradek.timer.system_timer import SystemTimer
from odradek.timer.timer_task import TimerTask

LATENESS_LIMIT_MS = 10_000
SWITCH_INTERVAL_S = 0.0002
"""How long the completing thread waits before it asks for the interpreter."""
RING_MS: Final = 4096
"""How far the delay queue of the completing thread reaches; a power of two."""
PAYLOAD_TAIL: Final = b"."
SLICE: Final = 32
"""How many requests are handed in between two looks at the clock, if so many are due."""
COMPILED: Final = not __file__.endswith(".py")


@mypyc_attr(acyclic=True)
class Tally:
    """The counts of the operations of a run, and the time of the request that is handed in."""

    __slots__ = ("clock", "completed", "expired", "lateness", "now_ms")

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.now_ms: i64 = 0
        self.completed: i64 = 0
        self.expired: i64 = 0
        self.lateness = [0] * (LATENESS_LIMIT_MS + 1)

    def note_expired(self, deadline_ms: i64) -> None:
        """Counts a time-out by how long after its deadline it fired."""
        late_ms = self.clock.monotonic_ms() - deadline_ms
        self.lateness[min(max(late_ms, 0), LATENESS_LIMIT_MS)] += 1
        self.completed -= 1
        self.expired += 1


class FakeOperation(DelayedOperation):
    """A request of the wheel's design: the condition holds from `completes_at_ms` on."""

    __slots__ = ("completes_at_ms", "payload", "tally")

    def __init__(self, tally: Tally, delay_ms: int, completes_at_ms: i64, payload: bytes) -> None:
        super().__init__(delay_ms)
        self.tally = tally
        self.completes_at_ms = completes_at_ms
        self.payload = payload

    def try_complete(self) -> bool:
        if self.tally.now_ms < self.completes_at_ms:
            return False
        return self.force_complete()

    def on_complete(self) -> None:
        self.tally.completed += 1

    def on_expiration(self) -> None:
        self.tally.note_expired(self.expiration_ms)


class FakeQueuedOperation(QueuedOperation):
    """The same request in the old design."""

    __slots__ = ("completes_at_ms", "payload", "tally")

    def __init__(self, tally: Tally, delay_ms: int, completes_at_ms: i64, payload: bytes) -> None:
        super().__init__(delay_ms)
        self.tally = tally
        self.completes_at_ms = completes_at_ms
        self.payload = payload

    def try_complete(self) -> bool:
        if self.tally.now_ms < self.completes_at_ms:
            return False
        return self.force_complete()

    def on_complete(self) -> None:
        self.tally.completed += 1

    def on_expiration(self) -> None:
        self.tally.note_expired(self.deadline_ms)


Request = FakeOperation | FakeQueuedOperation


class Completions:
    """Completes requests when their latency is over."""

    def add(self, operation: Request) -> None:
        """Completes the request when its time has come."""
        raise NotImplementedError

    def start(self) -> None:
        """Begins."""

    def turn(self) -> None:
        """The enqueuing thread's share, every millisecond."""

    def stop(self) -> None:
        """Ends, when everything has completed."""


class Completion(TimerTask):
    """The moment at which a request completes, on the second wheel."""

    __slots__ = ("operation",)

    def __init__(self, delay_ms: int, operation: Request) -> None:
        super().__init__(delay_ms)
        self.operation = operation

    def run(self) -> None:
        self.operation.force_complete()


class CompletionWheel(Completions):
    """A second timer of ours, on the enqueuing thread."""

    def __init__(self, clock: SystemClock) -> None:
        self.timer = SystemTimer(clock)

    def add(self, operation: Request) -> None:
        latency_ms = operation.completes_at_ms - operation.tally.now_ms
        self.timer.add(Completion(latency_ms, operation))

    def turn(self) -> None:
        self.timer.advance_clock(0)


class CompletionThread(Completions):
    """The published way to complete: a thread and its delay queue.

    The queue is a ring of milliseconds. The enqueuing thread appends to one that is still to
    come, this thread takes them when they have come.
    """

    def __init__(self, clock: SystemClock) -> None:
        self.clock = clock
        self.ring: list[list[Request]] = [[] for _ in range(RING_MS)]
        self.taken_ms: i64 = clock.monotonic_ms()
        self.stopping = False
        self.thread = threading.Thread(target=self.work, daemon=True)

    def add(self, operation: Request) -> None:
        at_ms = operation.completes_at_ms
        # No call from here to `append`: the millisecond is not taken meanwhile.
        if at_ms <= self.taken_ms:
            at_ms = self.taken_ms + 1
        self.ring[at_ms % RING_MS].append(operation)

    def work(self) -> None:
        while not self.stopping:
            now_ms: i64 = self.clock.monotonic_ms()
            while self.taken_ms < now_ms:
                self.taken_ms += 1
                due = self.ring[self.taken_ms % RING_MS]
                self.ring[self.taken_ms % RING_MS] = []
                for operation in due:
                    operation.force_complete()
            time.sleep(0.001)

    def start(self) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self.thread.start()

    def turn(self) -> None:
        # Compiled code keeps the interpreter until it lets go of it.
        if COMPILED:
            time.sleep(0)

    def stop(self) -> None:
        self.stopping = True
        self.thread.join()


class Run:
    """The requests of one run, and the loop that hands them in.

    `arrivals_ms` are counted from the start; without any, requests come as fast as they are
    taken. `latencies_ms` are used again from the first when they run out.
    """

    def __init__(
        self,
        requests: int,
        seconds: float,
        arrivals_ms: list[int],
        latencies_ms: list[int],
        keys: list[str],
        timeout_ms: int,
        request_bytes: int,
    ) -> None:
        self.tally = Tally()
        self.clock = self.tally.clock
        self.requests: i64 = requests
        self.limit_ms: i64 = int(seconds * 1000)
        self.arrivals_ms = arrivals_ms
        self.latencies_ms = latencies_ms
        self.keys = keys
        self.timeout_ms: i64 = timeout_ms
        self.payload_head = bytes(max(0, request_bytes - len(PAYLOAD_TAIL)))
        self.purgatory: DelayedOperationPurgatory | None = None
        self.timer: SystemTimer | None = None
        self.old: QueuePurgatory | None = None
        self.completions: Completions = CompletionWheel(self.clock)
        self.turned_ms: i64 = 0
        self.enqueued: i64 = 0
        self.enqueued_s = 0.0

    def use_wheel(self, purge_interval: int, amortised_purge: bool) -> None:
        """Measures timing wheel and purgatory."""
        self.timer = SystemTimer(self.clock)
        self.purgatory = DelayedOperationPurgatory(
            "benchmark", self.timer, 0, purge_interval, True, amortised_purge
        )

    def use_queue(self, purge_interval: int, sweep_by_iterator: bool) -> None:
        """Measures the old design."""
        self.old = QueuePurgatory(self.clock, purge_interval, sweep_by_iterator)

    def complete_by_thread(self) -> None:
        """Completes as published, instead of by a second wheel."""
        self.completions = CompletionThread(self.clock)

    def start(self) -> None:
        """Enqueues everything, then waits until everything has completed."""
        self.completions.start()
        began = time.perf_counter()
        self.enqueue_all()
        self.enqueued_s = time.perf_counter() - began
        while self.tally.completed + self.tally.expired < self.enqueued:
            time.sleep(0.0005)
            self.turn()
        self.completions.stop()

    def enqueue_all(self) -> None:
        start_ms: i64 = self.clock.monotonic_ms()
        position: i64 = 0
        latencies: i64 = len(self.latencies_ms)
        paced = len(self.arrivals_ms) > 0
        while position < self.requests:
            now_ms: i64 = self.clock.monotonic_ms()
            if now_ms != self.turned_ms:
                if self.limit_ms > 0 and now_ms >= start_ms + self.limit_ms:
                    break
                self.turned_ms = now_ms
                self.turn()
            began = position
            until = min(began + SLICE, self.requests)
            elapsed_ms = now_ms - start_ms
            while position < until and (not paced or self.arrivals_ms[position] <= elapsed_ms):
                self.enqueue(now_ms, self.latencies_ms[position % latencies])
                position += 1
            if position == began:
                # Ahead of time: by a millisecond at most, since time-outs are due as well.
                time.sleep(0.001)
        self.enqueued = position

    def enqueue(self, now_ms: i64, latency_ms: i64) -> None:
        tally, completes_at_ms = self.tally, now_ms + latency_ms
        tally.now_ms = now_ms
        payload = self.payload_head + PAYLOAD_TAIL
        if self.purgatory is not None:
            operation = FakeOperation(tally, self.timeout_ms, completes_at_ms, payload)
            if latency_ms < self.timeout_ms:
                self.completions.add(operation)
            self.purgatory.try_complete_else_watch(operation, self.keys)
        elif self.old is not None:
            queued = FakeQueuedOperation(tally, self.timeout_ms, completes_at_ms, payload)
            if latency_ms < self.timeout_ms:
                self.completions.add(queued)
            self.old.try_complete_else_watch(queued, self.keys)

    def turn(self) -> None:
        """The work of each millisecond: completions and time-outs."""
        self.completions.turn()
        if self.timer is not None:
            self.timer.advance_clock(0)
        if self.old is not None:
            self.old.turn()


class CollectorWatch:
    """Time spent in the cyclic collector since it was made."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.began = 0.0
        gc.callbacks.append(self.note)

    def note(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self.began = time.perf_counter()
        else:
            self.seconds += time.perf_counter() - self.began
