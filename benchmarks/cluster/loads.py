"""Clients that a cluster is put under: what they see is what is measured."""

import itertools
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.broker import RECORD_BYTES, RECORDS_PER_CALL, produce

LARGE_BATCH = 1_000_000
GO = "go\n"


class SteadyWriter:
    """A producer that sends a record to each partition in turn, and keeps when it was
    acknowledged; with default settings but for those given. It writes for the length of a `with`
    block."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, records_per_s: int, **settings: int
    ) -> None:
        self.acknowledged: dict[int, list[float]] = defaultdict(list)
        self.errors: list[object] = []
        self.slowest_s = 0.0
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
        self._topic = topic
        self._partitions = partitions
        self._pause_s = 1 / records_per_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def longest_pause_s(self, partitions: Iterable[int], since: float = 0.0) -> float:
        """The longest time in which no record of one of these partitions was acknowledged, of
        those that ended after a moment."""
        return max(
            later - earlier
            for partition in partitions
            for earlier, later in itertools.pairwise(self.acknowledged[partition])
            if later > since
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(60)
        assert left == 0, f"{left} records were not answered"

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(self._pause_s):
            partition = number % self._partitions
            value = b"x" * RECORD_BYTES
            sent = time.monotonic()
            self._producer.produce(
                self._topic, value, partition=partition, on_delivery=self._noting(partition, sent)
            )
            self._producer.poll(0)
            number += 1

    def _noting(self, partition: int, sent: float) -> Callable[[Any, Any], None]:
        def note(error: object, _: object) -> None:
            if error is not None:
                self.errors.append(error)
                return
            now = time.monotonic()
            self.acknowledged[partition].append(now)
            self.slowest_s = max(self.slowest_s, now - sent)

        return note


def acknowledged_again(
    bootstrap: str, partitions: Sequence[TopicPartition], fault: Callable[[], None]
) -> tuple[float, float]:
    """The seconds from a fault until a producer with default settings, which has written to all
    partitions before, is acknowledged what it sends after it: by the first, and by the last."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    moments: list[float] = []
    errors: list[object] = []

    def on_delivery(error: object, _: object) -> None:
        moments.append(time.monotonic())
        if error is not None:
            errors.append(error)

    def send_to_all() -> None:
        moments.clear()
        for each in partitions:
            producer.produce(each.topic, b"x", partition=each.partition, on_delivery=on_delivery)
        left = producer.flush(180)
        assert (left, errors) == (0, []), f"{left} unanswered, {errors[:1]}"

    send_to_all()
    fault()
    began = time.monotonic()
    send_to_all()
    return min(moments) - began, max(moments) - began


def high_watermark(bootstrap: str, topic: str) -> int:
    """Up to where all replicas in sync have the first partition of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark", "log_level": 0})
    try:
        end: int = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
        return end
    finally:
        consumer.close()


def produce_on_cores(jobs: Sequence[tuple[int, str, str]], records: int) -> float:
    """MB/s that producers reach together, each on a core of its own: (core, address, topic)."""
    command = [sys.executable, "-m", "benchmarks.cluster.loads"]
    clients = [
        subprocess.Popen(
            [*command, str(core), bootstrap, topic, str(records)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for core, bootstrap, topic in jobs
    ]
    try:
        for each in clients:
            assert each.stdout is not None, "it is a pipe"
            assert each.stdout.readline() == GO, "it did not start"
        for each in clients:
            assert each.stdin is not None, "it is a pipe"
            each.stdin.write(GO)
            each.stdin.flush()
        seconds = [float(each.communicate()[0]) for each in clients]
    finally:
        for each in clients:
            each.kill()
            each.wait()
    return sum(records * RECORD_BYTES / 1e6 / each for each in seconds)


def pin(pid: int, cores: set[int]) -> None:
    """Keeps a process and all its threads on these cores."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), cores)


def main(arguments: list[str]) -> int:
    """One producer of `produce_on_cores`: says when it is ready, waits for the word, and tells
    how long it took."""
    core, bootstrap, topic, records = arguments
    os.sched_setaffinity(0, {int(core)})
    produce(bootstrap, topic, RECORDS_PER_CALL, LARGE_BATCH, "all")
    print(GO, end="", flush=True)
    assert sys.stdin.readline() == GO, "it was let go"
    began = time.perf_counter()
    produce(bootstrap, topic, int(records), LARGE_BATCH, "all")
    print(time.perf_counter() - began)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
