"""One run of the benchmark: requests arrive, complete or time out, and are counted (R6).

The requests are fake, so that what is measured is waiting: creating an operation, watching
it under its keys, the time-out, the completion, and getting rid of it.

One thread enqueues and owns the purgatory and its timer; it turns the timer at every new
millisecond. Completions come in one of two ways. `thread` is the published harness: a second
thread takes due operations from its own delay queue (a heap) and completes them directly.
`wheel` has a second timing wheel on the owner. In both, only requests that complete before
their time-out are put in.

This module is compiled with the package in one piece, as the broker's own operations are.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from heapq import heappop, heappush

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
SEQUENCE_BITS = 32


@mypyc_attr(acyclic=True)
class Tally:
    """What the operations of a run count."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.completed: i64 = 0
        self.expired: i64 = 0
        self.lateness = [0] * (LATENESS_LIMIT_MS + 1)

    def note_expired(self, deadline_ms: i64) -> None:
        """Counts a time-out by how long after its deadline it fired."""
        late_ms = self.clock.monotonic_ms() - deadline_ms
        self.lateness[min(max(late_ms, 0), LATENESS_LIMIT_MS)] += 1
        self.completed -= 1
        self.expired += 1


@mypyc_attr(acyclic=True)
class FakeOperation(DelayedOperation):
    """A request of the wheel's design: the condition holds from `completes_at_ms` on."""

    def __init__(self, tally: Tally, delay_ms: int, completes_at_ms: i64, payload: bytes) -> None:
        super().__init__(delay_ms)
        self.tally = tally
        self.completes_at_ms = completes_at_ms
        self.payload = payload

    def try_complete(self) -> bool:
        if self.tally.clock.monotonic_ms() < self.completes_at_ms:
            return False
        return self.force_complete()

    def on_complete(self) -> None:
        self.tally.completed += 1

    def on_expiration(self) -> None:
        self.tally.note_expired(self.expiration_ms)


class FakeQueuedOperation(QueuedOperation):
    """The same request in the old design."""

    def __init__(self, tally: Tally, delay_ms: int, completes_at_ms: i64, payload: bytes) -> None:
        super().__init__(delay_ms)
        self.tally = tally
        self.completes_at_ms = completes_at_ms
        self.payload = payload

    def try_complete(self) -> bool:
        if self.tally.clock.monotonic_ms() < self.completes_at_ms:
            return False
        return self.force_complete()

    def on_complete(self) -> None:
        self.tally.completed += 1

    def on_expiration(self) -> None:
        self.tally.note_expired(self.deadline_ms)


@mypyc_attr(acyclic=True)
class Completion(TimerTask):
    """The moment at which a request completes, on the second wheel."""

    def __init__(self, delay_ms: int, operation: FakeOperation | FakeQueuedOperation) -> None:
        super().__init__(delay_ms)
        self.operation = operation

    def run(self) -> None:
        complete(self.operation)


def complete(operation: FakeOperation | FakeQueuedOperation) -> None:
    """Completes a request of either design."""
    if isinstance(operation, FakeOperation):
        operation.force_complete()
    else:
        operation.force_complete()


class CompletionThread:
    """The published way to complete: a thread and its delay queue."""

    def __init__(self, clock: SystemClock) -> None:
        self.clock = clock
        self.heap: list[tuple[int, FakeOperation | FakeQueuedOperation]] = []
        self.sequence = 0
        self.stopping = False
        self.thread = threading.Thread(target=self.work, daemon=True)

    def add(self, at_ms: int, operation: FakeOperation | FakeQueuedOperation) -> None:
        # One number for time and order of arrival, so that operations are never compared.
        self.sequence += 1
        heappush(self.heap, ((at_ms << SEQUENCE_BITS) + self.sequence, operation))

    def work(self) -> None:
        while not self.stopping:
            due = (self.clock.monotonic_ms() + 1) << SEQUENCE_BITS
            while self.heap and self.heap[0][0] < due:
                complete(heappop(self.heap)[1])
            time.sleep(0.001)


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
        self.timeout_ms = timeout_ms
        self.request_bytes = request_bytes
        self.purgatory: DelayedOperationPurgatory | None = None
        self.timer: SystemTimer | None = None
        self.old: QueuePurgatory | None = None
        self.completing: CompletionThread | None = None
        self.completions = SystemTimer(self.clock)
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
        self.completing = CompletionThread(self.clock)

    def start(self) -> None:
        """Enqueues everything, then waits until everything has completed."""
        if self.completing is not None:
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            self.completing.thread.start()
        began = time.perf_counter()
        self.enqueue_all()
        self.enqueued_s = time.perf_counter() - began
        while self.tally.completed + self.tally.expired < self.enqueued:
            time.sleep(0.0005)
            self.turn()
        if self.completing is not None:
            self.completing.stopping = True
            self.completing.thread.join()

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
            if paced and start_ms + self.arrivals_ms[position] > now_ms:
                # Ahead of time: by a millisecond at most, since time-outs are due as well.
                time.sleep(0.001)
                continue
            self.enqueue(now_ms, self.latencies_ms[position % latencies])
            position += 1
        self.enqueued = position

    def enqueue(self, now_ms: i64, latency_ms: i64) -> None:
        payload = bytes(self.request_bytes)
        if self.purgatory is not None:
            operation = FakeOperation(self.tally, self.timeout_ms, now_ms + latency_ms, payload)
            if latency_ms < self.timeout_ms:
                self.complete_later(now_ms, latency_ms, operation)
            self.purgatory.try_complete_else_watch(operation, self.keys)
        elif self.old is not None:
            queued = FakeQueuedOperation(self.tally, self.timeout_ms, now_ms + latency_ms, payload)
            if latency_ms < self.timeout_ms:
                self.complete_later(now_ms, latency_ms, queued)
            self.old.try_complete_else_watch(queued, self.keys)

    def complete_later(
        self, now_ms: i64, latency_ms: i64, operation: FakeOperation | FakeQueuedOperation
    ) -> None:
        if self.completing is not None:
            self.completing.add(now_ms + latency_ms, operation)
        else:
            self.completions.add(Completion(latency_ms, operation))

    def turn(self) -> None:
        """The work of each millisecond: completions, time-outs, and a chance for the thread."""
        if self.completing is None:
            self.completions.advance_clock(0)
        else:
            time.sleep(0)
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
